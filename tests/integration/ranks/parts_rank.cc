// Runs a rank that carries out random collectives, the same on all ranks, and compares every
// element with the expected result: all collectives in which a rank has a part, all dtypes and
// operators, odd and uneven sizes, roots, process sets; memory of the daemon, foreign memory, both,
// and in place.
//
//  parts_rank SEED OPERATIONS
//
// It ends with "ok HASH", a hash of all results, which is the same for the same seed.
#include <algorithm>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <rueda/rueda.h>

namespace {

enum class Kind { kAllreduce, kReduce, kAllgather, kGather, kReduceScatter, kScatter, kAlltoall };
const char* const kNames[] = {"allreduce",      "reduce",  "allgather", "gather",
                              "reduce_scatter", "scatter", "alltoall"};
enum class Memory { kArena, kForeign, kForeignInput, kForeignOutput, kInPlace };

[[noreturn]] void fail(const std::string& what) {
  std::printf("error %s\n", what.c_str());
  std::exit(3);
}

void check(int code, const std::string& what) {
  if (code < 0) fail(what + ": " + rueda_error_name(code) + ": " + rueda_last_error());
}

size_t bytes_of(rueda_dtype dtype) {
  constexpr size_t kBytes[] = {4, 8, 2, 2, 4, 8, 1, 1, 1, 2, 2, 4, 8, 8, 16};
  return kBytes[dtype];
}

bool is_complex(rueda_dtype dtype) { return dtype == RUEDA_COMPLEX64 || dtype == RUEDA_COMPLEX128; }

template <class T>
void put(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof(value));
}

// Stores a whole number from 0 to 256, which every dtype but the bytes holds exactly; bytes wrap.
void encode(rueda_dtype dtype, double value, std::byte* to) {
  const auto whole = static_cast<int64_t>(value);
  const auto single = static_cast<float>(value);
  uint32_t bits = 0;
  std::memcpy(&bits, &single, sizeof(bits));
  switch (dtype) {
    case RUEDA_FLOAT32: return put(single, to);
    case RUEDA_FLOAT64: return put(value, to);
    case RUEDA_BFLOAT16: return put(static_cast<uint16_t>(bits >> 16), to);
    case RUEDA_FLOAT16: {
      const uint32_t exponent = (bits >> 23) - 127 + 15;
      const uint32_t half = value == 0 ? 0 : (exponent << 10) | ((bits >> 13) & 0x3ff);
      return put(static_cast<uint16_t>(half), to);
    }
    case RUEDA_INT32: return put(static_cast<int32_t>(whole), to);
    case RUEDA_INT64: return put(whole, to);
    case RUEDA_INT8: return put(static_cast<int8_t>(whole), to);
    case RUEDA_UINT8: return put(static_cast<uint8_t>(whole), to);
    case RUEDA_BOOL: return put(static_cast<uint8_t>(value != 0), to);
    case RUEDA_INT16: return put(static_cast<int16_t>(whole), to);
    case RUEDA_UINT16: return put(static_cast<uint16_t>(whole), to);
    case RUEDA_UINT32: return put(static_cast<uint32_t>(whole), to);
    case RUEDA_UINT64: return put(static_cast<uint64_t>(whole), to);
    // The imaginary part is 0: no product of such values depends on the order in any bit, because
    // none is negative.
    case RUEDA_COMPLEX64: return put(std::complex<float>(single), to);
    case RUEDA_COMPLEX128: return put(std::complex<double>(value), to);
  }
}

// Holds what all ranks choose alike.
struct Choice {
  Kind kind;
  rueda_dtype dtype;
  rueda_op op;
  Memory memory;
  uint32_t set;
  std::vector<int32_t> ranks;   // the ranks of the set
  int root;                     // the root's place in the set
  std::vector<int64_t> counts;  // rows by part; for an alltoall by pair
  bool says_counts;
  int64_t row;            // elements of a row
  rueda_wire_dtype wire;  // for float32; its values are exact in all, except for averages

  int places() const { return static_cast<int>(ranks.size()); }
  bool is_exchange() const { return kind == Kind::kAlltoall; }
  bool is_gathering() const { return kind == Kind::kAllgather || kind == Kind::kGather; }
  bool is_scattering() const { return kind == Kind::kReduceScatter || kind == Kind::kScatter; }
  bool is_whole() const { return kind == Kind::kAllreduce || kind == Kind::kReduce; }
  int64_t rows() const { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }
  int64_t count(int from, int to) const {
    return counts[static_cast<size_t>(is_exchange() ? from * places() + to : to)];
  }
  int64_t before(int place) const {
    return std::accumulate(counts.begin(), counts.begin() + place, int64_t{0});
  }
};

class Chooser {
 public:
  explicit Chooser(uint32_t seed) : random_(seed) {}

  int below(int bound) {
    return static_cast<int>(random_() % static_cast<uint32_t>(bound));  // the same everywhere
  }

  Choice choose(const std::vector<std::vector<int32_t>>& sets) {
    Choice choice{};
    choice.kind = static_cast<Kind>(below(7));
    choice.dtype = static_cast<rueda_dtype>(below(15));
    choice.op = static_cast<rueda_op>(below(5));
    if (choice.dtype == RUEDA_BOOL && choice.op == RUEDA_AVERAGE) choice.op = RUEDA_SUM;
    const bool orders = choice.op == RUEDA_MIN || choice.op == RUEDA_MAX;
    if (orders && is_complex(choice.dtype)) choice.op = RUEDA_PRODUCT;
    choice.memory = static_cast<Memory>(below(5));
    if (choice.is_exchange() && choice.memory == Memory::kInPlace) choice.memory = Memory::kArena;
    choice.set = static_cast<uint32_t>(below(static_cast<int>(sets.size())));
    choice.ranks = sets[choice.set];
    choice.root = below(choice.places());
    choice.row = 1 + below(3);
    choice.wire = static_cast<rueda_wire_dtype>(below(3));
    if (choice.dtype != RUEDA_FLOAT32) choice.wire = RUEDA_WIRE_SAME;
    const int most = below(4) == 0 ? 40'000 : 30;
    const auto parts = static_cast<size_t>(choice.is_exchange() ? choice.places() * choice.places()
                                                                : choice.places());
    choice.says_counts = !choice.is_whole() && below(2) == 0;
    if (choice.says_counts) {
      for (size_t i = 0; i < parts; ++i) {
        choice.counts.push_back(below(4) == 0 ? 0 : below(most / choice.places()));
      }
      return choice;
    }
    const int64_t rows = below(most / choice.places());
    if (choice.is_exchange() || choice.is_gathering()) {
      choice.counts.assign(parts, rows);
      return choice;
    }
    for (int place = 0; place < choice.places(); ++place) {  // the first places have one row more
      choice.counts.push_back(rows / choice.places() + (place < rows % choice.places() ? 1 : 0));
    }
    return choice;
  }

 private:
  std::mt19937 random_;
};

// Returns what the rank in this place gives in an element of its input.
double given(const Choice& choice, int place, int64_t element) {
  if (choice.op == RUEDA_PRODUCT && !choice.is_gathering()) {
    return (place + element) % 3 == 0 ? 2.0 : 1.0;  // at most 2^6, with 8 ranks
  }
  return static_cast<double>((place * 7 + element * 5) % 11);
}

double reduced(const Choice& choice, int64_t element) {
  double result = given(choice, 0, element);
  for (int place = 1; place < choice.places(); ++place) {
    const double value = given(choice, place, element);
    switch (choice.op) {
      case RUEDA_MIN: result = std::min(result, value); break;
      case RUEDA_MAX: result = std::max(result, value); break;
      case RUEDA_PRODUCT: result *= value; break;
      default: result += value;
    }
  }
  if (choice.op != RUEDA_AVERAGE) return result;
  const bool is_integer = choice.dtype >= RUEDA_INT32 && !is_complex(choice.dtype);
  return is_integer ? static_cast<double>(static_cast<int64_t>(result) / choice.places())
                    : result / choice.places();
}

bool is_logical_and(const Choice& choice) {
  return choice.dtype == RUEDA_BOOL && (choice.op == RUEDA_MIN || choice.op == RUEDA_PRODUCT);
}

// Returns the expected output of the rank in this place, by element.
std::vector<double> expected(const Choice& choice, int self) {
  std::vector<double> values;
  const auto add_given = [&](int from, int64_t begin, int64_t end) {
    for (int64_t i = begin * choice.row; i < end * choice.row; ++i) {
      values.push_back(given(choice, from, i));
    }
  };
  const auto add_reduced = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * choice.row; i < end * choice.row; ++i) {
      bool all = true;
      for (int place = 0; place < choice.places(); ++place) all &= given(choice, place, i) != 0;
      values.push_back(is_logical_and(choice) ? all : reduced(choice, i));
    }
  };
  switch (choice.kind) {
    case Kind::kReduce:
      if (self != choice.root) return {};
      [[fallthrough]];
    case Kind::kAllreduce: add_reduced(0, choice.rows()); break;
    case Kind::kGather:
      if (self != choice.root) return {};
      [[fallthrough]];
    case Kind::kAllgather:
      for (int from = 0; from < choice.places(); ++from) add_given(from, 0, choice.count(0, from));
      break;
    case Kind::kReduceScatter:
      add_reduced(choice.before(self), choice.before(self) + choice.count(0, self));
      break;
    case Kind::kScatter:
      add_given(choice.root, choice.before(self), choice.before(self) + choice.count(0, self));
      break;
    case Kind::kAlltoall:
      for (int from = 0; from < choice.places(); ++from) {
        int64_t begin = 0;
        for (int to = 0; to < self; ++to) begin += choice.count(from, to);
        add_given(from, begin, begin + choice.count(from, self));
      }
  }
  return values;
}

int64_t input_rows(const Choice& choice, int self) {
  if (choice.is_gathering()) return choice.count(0, self);
  if (choice.kind == Kind::kScatter && self != choice.root) return 0;
  if (!choice.is_exchange()) return choice.rows();
  int64_t rows = 0;
  for (int to = 0; to < choice.places(); ++to) rows += choice.count(self, to);
  return rows;
}

// Memory of this size, filled with bytes that are no result.
class Block {
 public:
  Block(size_t bytes, bool is_foreign) : own_(is_foreign ? bytes + 1 : 0) {
    if (is_foreign) {
      data_ = own_.data();
    } else {
      data_ = static_cast<std::byte*>(rueda_alloc(std::max<size_t>(bytes, 1)));
      if (data_ == nullptr) fail(std::string("rueda_alloc: ") + rueda_last_error());
    }
    std::memset(data_, 0x5A, bytes);
    is_foreign_ = is_foreign;
  }
  ~Block() {
    if (!is_foreign_) rueda_free(data_);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::vector<std::byte> own_;
  std::byte* data_ = nullptr;
  bool is_foreign_ = false;
};

int start(const Choice& choice, const rueda_tensor& tensor, rueda_handle* handle) {
  const rueda_reduce_options options = {sizeof(options), choice.op, 1.0, 1.0, 0, choice.wire};
  const int64_t* counts = choice.says_counts ? choice.counts.data() : nullptr;
  const int root = choice.ranks[static_cast<size_t>(choice.root)];
  switch (choice.kind) {
    case Kind::kAllreduce: return rueda_allreduce_async(&tensor, &options, handle);
    case Kind::kReduce: return rueda_reduce_async(&tensor, root, &options, handle);
    case Kind::kAllgather: return rueda_allgather_async(&tensor, counts, handle);
    case Kind::kGather: return rueda_gather_async(&tensor, counts, root, handle);
    case Kind::kReduceScatter: return rueda_reduce_scatter_async(&tensor, counts, &options, handle);
    case Kind::kScatter: return rueda_scatter_async(&tensor, counts, root, handle);
    case Kind::kAlltoall: return rueda_alltoall_async(&tensor, counts, handle);
  }
  return RUEDA_ERR_INTERNAL;
}

// Carries out an operation, and returns the hash of its result.
uint64_t carry_out(const Choice& choice, const std::string& name, int self) {
  const size_t element = bytes_of(choice.dtype);
  const int64_t in_rows = input_rows(choice, self);
  const size_t in_bytes = static_cast<size_t>(in_rows * choice.row) * element;
  const std::vector<double> wanted = expected(choice, self);
  const size_t out_bytes = wanted.size() * element;
  const bool is_one = choice.memory == Memory::kInPlace && in_bytes > 0 && out_bytes > 0;
  const Memory memory = choice.memory;
  const Block first(is_one ? std::max(in_bytes, out_bytes) : in_bytes,
                    memory == Memory::kForeign || memory == Memory::kForeignInput);
  const Block second(is_one ? 0 : out_bytes,
                     memory == Memory::kForeign || memory == Memory::kForeignOutput);
  std::byte* in = first.data();
  std::byte* out = is_one ? first.data() : second.data();
  if (is_one && !choice.is_whole()) {
    const auto own = static_cast<size_t>(choice.before(self) * choice.row) * element;
    (choice.is_gathering() ? in : out) += own;
  }
  for (int64_t i = 0; i < in_rows * choice.row; ++i) {
    encode(choice.dtype, given(choice, self, i), in + static_cast<size_t>(i) * element);
  }
  const int64_t first_dim = choice.is_scattering() ? choice.rows() : in_rows;
  const int64_t shape[] = {choice.is_whole() ? choice.rows() : first_dim, choice.row};
  const rueda_tensor tensor = {name.c_str(),
                               in_bytes > 0 ? in : nullptr,
                               out_bytes > 0 ? out : nullptr,
                               shape,
                               2,
                               choice.dtype,
                               choice.set};
  rueda_handle handle = 0;
  check(start(choice, tensor, &handle), name);
  size_t index = 1;
  check(rueda_wait_any(&handle, 1, -1, &index), name);
  check(rueda_wait(handle, 0, nullptr), name);
  uint64_t hash = 14695981039346656037u;
  std::byte want[8];
  for (size_t i = 0; i < wanted.size(); ++i) {
    const std::byte* got = out + i * element;
    // Averages are not whole. For them the daemon's division is the reference, for all ranks alike.
    const bool is_exact = choice.op != RUEDA_AVERAGE || choice.dtype >= RUEDA_INT32 ||
                          wanted[i] == static_cast<double>(static_cast<int64_t>(wanted[i]));
    encode(choice.dtype, wanted[i], want);
    const bool is_reduced = choice.is_whole() || choice.kind == Kind::kReduceScatter;
    if ((is_exact || !is_reduced) && std::memcmp(got, want, element) != 0) {
      fail(name + ", element " + std::to_string(i) + " is not " + std::to_string(wanted[i]));
    }
    for (size_t b = 0; b < element; ++b) {
      hash = (hash ^ static_cast<uint64_t>(got[b])) * 1099511628211u;
    }
  }
  return hash;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) fail("usage: parts_rank SEED OPERATIONS");
  check(rueda_init(nullptr), "init");
  const int rank = rueda_rank();
  std::vector<std::vector<int32_t>> sets(1);
  for (int32_t i = 0; i < rueda_size(); ++i) sets[0].push_back(i);
  for (int32_t step = 2; step <= 3 && rueda_size() > step; ++step) {
    std::vector<int32_t> some;
    for (int32_t i = 0; i < rueda_size(); i += step) some.push_back(i);
    uint32_t id = 0;
    check(rueda_process_set_add(some.data(), static_cast<int32_t>(some.size()), &id), "add");
    sets.push_back(some);
  }
  Chooser chooser(static_cast<uint32_t>(std::atoi(argv[1])));
  uint64_t hash = 0;
  for (int i = 0; i < std::atoi(argv[2]); ++i) {
    const Choice choice = chooser.choose(sets);
    const auto place = std::lower_bound(choice.ranks.begin(), choice.ranks.end(), rank);
    if (place == choice.ranks.end() || *place != rank) continue;
    const std::string name = std::to_string(i) + "." + kNames[static_cast<size_t>(choice.kind)];
    hash = hash * 31 + carry_out(choice, name, static_cast<int>(place - choice.ranks.begin()));
  }
  std::printf("ok %016llx\n", static_cast<unsigned long long>(hash));
  check(rueda_shutdown(), "shutdown");
  return 0;
}
