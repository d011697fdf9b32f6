#include "tests/engine/operation_fixture.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "daemon/engine/operation/add_parts.h"
#include "daemon/reduce/kernels.h"
#include "tests/support/adasum_reference.h"

namespace rueda::engine::testing {
namespace {

template <class T>
void put(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof(value));
}

template <class T>
T get(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

uint16_t half_of(double value) {
  if (value == 0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(value), &exponent);  // is from 0.5 to 1
  const auto mantissa = static_cast<uint16_t>((fraction * 2 - 1) * 1024);
  const auto sign = static_cast<uint16_t>(value < 0 ? 0x8000 : 0);
  return static_cast<uint16_t>(sign | ((exponent - 1 + 15) << 10) | mantissa);
}

double value_of_half(uint16_t bits) {
  if ((bits & 0x7fff) == 0) return 0;
  const double fraction = 1 + (bits & 0x3ff) / 1024.0;
  return std::ldexp((bits & 0x8000) ? -fraction : fraction, ((bits >> 10) & 0x1f) - 15);
}

// The imaginary part is such that sums and products of few values are exact, and that no component
// of a product of others than 1 is a zero, whose sign would depend on the order.
double imaginary_of(double real) { return real == 1 ? 0 : real / 2; }

}  // namespace

void put_number(DType dtype, double value, std::byte* to) {
  const auto whole = static_cast<int64_t>(value);
  switch (dtype) {
    case DType::kFloat32: return put(static_cast<float>(value), to);
    case DType::kFloat64: return put(value, to);
    case DType::kComplex64:
    case DType::kComplex128: {
      const DType component = component_dtype(dtype);
      put_number(component, value, to);
      return put_number(component, imaginary_of(value), to + element_bytes(component));
    }
    case DType::kInt16: return put(static_cast<int16_t>(whole), to);
    case DType::kUInt16: return put(static_cast<uint16_t>(whole), to);
    case DType::kUInt32: return put(static_cast<uint32_t>(whole), to);
    case DType::kUInt64: return put(static_cast<uint64_t>(whole), to);
    case DType::kInt32: return put(static_cast<int32_t>(value), to);
    case DType::kInt64: return put(static_cast<int64_t>(value), to);
    case DType::kInt8: return put(static_cast<int8_t>(whole), to);
    case DType::kUInt8: return put(static_cast<uint8_t>(whole), to);
    case DType::kBool: return put(static_cast<uint8_t>(value != 0), to);
    case DType::kFloat16: return put(half_of(value), to);
    case DType::kBFloat16: {
      uint32_t bits = 0;
      put(static_cast<float>(value), reinterpret_cast<std::byte*>(&bits));
      return put(static_cast<uint16_t>(bits >> 16), to);
    }
  }
}

double get_number(DType dtype, const std::byte* from) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kComplex64: return get<float>(from);
    case DType::kFloat64:
    case DType::kComplex128: return get<double>(from);
    case DType::kInt16: return get<int16_t>(from);
    case DType::kUInt16: return get<uint16_t>(from);
    case DType::kUInt32: return get<uint32_t>(from);
    case DType::kUInt64: return static_cast<double>(get<uint64_t>(from));
    case DType::kInt32: return get<int32_t>(from);
    case DType::kInt64: return static_cast<double>(get<int64_t>(from));
    case DType::kInt8: return get<int8_t>(from);
    case DType::kUInt8:
    case DType::kBool: return get<uint8_t>(from);
    case DType::kFloat16: return value_of_half(get<uint16_t>(from));
    case DType::kBFloat16: {
      const uint32_t bits = uint32_t{get<uint16_t>(from)} << 16;
      return get<float>(reinterpret_cast<const std::byte*>(&bits));
    }
  }
  return 0;
}

OperationFixture::OperationFixture(OperationSpec spec, const std::vector<int>& ranks_per_node,
                                   Seq seq)
    : spec_(std::move(spec)), ranks_per_node_(ranks_per_node), seq_(seq) {
  fill_inputs();
  given_ = inputs_;
  for (int rank = 0; rank < ranks() && spec_.op != ReduceOp::kAdasum; ++rank) {
    expected_.emplace_back();
    for (size_t t = 0; t < spec_.sizes.size(); ++t) expected_.back().push_back(expected(rank, t));
  }
}

Extent OperationFixture::extent(int rank, size_t tensor) const {
  const int all = std::accumulate(ranks_per_node_.begin(), ranks_per_node_.end(), 0);
  return extent_of({"t", spec_.kind, {&spec_.sizes[tensor], 1}, spec_.counts}, rank, all,
                   rank == spec_.root.value);
}

double OperationFixture::value(int rank, int64_t element) const {
  const int all = std::accumulate(ranks_per_node_.begin(), ranks_per_node_.end(), 0);
  const auto turn = static_cast<int>((rank + element) % all);
  if (!reduces(spec_.kind)) return static_cast<double>((rank * 37 + element * 5) % 127) - 60;
  switch (spec_.op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage: return turn < 8 ? std::ldexp(1.0, turn) : 0.0;
    case ReduceOp::kMin:
    case ReduceOp::kMax: return static_cast<double>((rank * 7 + element * 3) % 23) - 11;
    case ReduceOp::kProduct: return turn < 3 ? -2.0 : 1.0;
    // The value has a part that all ranks have in common, and a part of the rank's own.
    case ReduceOp::kAdasum:
      return (static_cast<double>(element * 29 % 61) - 30 +
              static_cast<double>(((element + 7) * (rank * 3 + 5) + element / 9) % 83) - 41) /
             64;
  }
  return 0;
}

void OperationFixture::fill_inputs() {
  const int all = std::accumulate(ranks_per_node_.begin(), ranks_per_node_.end(), 0);
  const size_t size = element_bytes(spec_.dtype);
  for (int rank = 0; rank < all; ++rank) {
    std::mt19937 random(spec_.random_seed * 1000 + static_cast<uint32_t>(rank));
    std::vector<Bytes> tensors;
    int64_t at = 0;
    for (size_t t = 0; t < spec_.sizes.size(); ++t) {
      const Extent own = extent(rank, t);
      const int64_t elements = spec_.in_place ? std::max(own.input, own.output) : own.input;
      Bytes bytes(static_cast<size_t>(elements) * size);
      for (int64_t i = 0; i < elements; ++i, ++at) {
        std::byte* to = bytes.data() + static_cast<size_t>(i) * size;
        if (spec_.random_seed != 0) {
          put(std::uniform_real_distribution<float>(-1e3F, 1e3F)(random), to);
        } else {
          put_number(spec_.dtype, value(rank, at), to);
        }
      }
      tensors.push_back(std::move(bytes));
    }
    outputs_.push_back({});
    for (size_t t = 0; t < spec_.sizes.size() && !spec_.in_place; ++t) {
      outputs_.back().emplace_back(static_cast<size_t>(extent(rank, t).output) * size,
                                   std::byte{0xEE});
    }
    inputs_.push_back(std::move(tensors));
  }
}

// Computes the result straight from the definitions of the collectives.
Bytes OperationFixture::expected(int rank, size_t tensor) const {
  const bool is_root = rank == spec_.root.value;
  const auto size = static_cast<int64_t>(element_bytes(spec_.dtype));
  const auto slice = [&](const Bytes& from, int64_t begin, int64_t count) {
    return Bytes(from.begin() + begin * size, from.begin() + (begin + count) * size);
  };
  // Returns the rows of a part; for an alltoall those that one rank sends another.
  const auto rows = [&](int from, int to) {
    const bool is_pair = spec_.kind == CollectiveKind::kAlltoall;
    if (!spec_.counts.empty()) {
      return spec_.counts[static_cast<size_t>(is_pair ? from * ranks() + to : to)];
    }
    if (is_pair) return spec_.sizes[tensor] / ranks() / ranks();
    return spec_.sizes[tensor] / ranks() + (to < spec_.sizes[tensor] % ranks() ? 1 : 0);
  };
  const auto before = [&](int from, int to) {
    int64_t sum = 0;
    for (int other = 0; other < to; ++other) sum += rows(from, other);
    return sum;
  };
  Bytes result;
  const Bytes& of_root = given_[static_cast<size_t>(spec_.root.value)][tensor];
  switch (spec_.kind) {
    case CollectiveKind::kBroadcast: return of_root;
    case CollectiveKind::kReduce: return is_root ? reduced(tensor) : Bytes();
    case CollectiveKind::kReduceScatter:
      return slice(reduced(tensor), before(0, rank), rows(0, rank));
    case CollectiveKind::kScatter: return slice(of_root, before(0, rank), rows(0, rank));
    case CollectiveKind::kGather:
      if (!is_root) return {};
      [[fallthrough]];
    case CollectiveKind::kAllgather:
      for (const auto& tensors : given_) {
        result.insert(result.end(), tensors[tensor].begin(), tensors[tensor].end());
      }
      return result;
    case CollectiveKind::kAlltoall:
      for (int from = 0; from < ranks(); ++from) {
        const Bytes part =
            slice(given_[static_cast<size_t>(from)][tensor], before(from, rank), rows(from, rank));
        result.insert(result.end(), part.begin(), part.end());
      }
      return result;
    default: return reduced(tensor);
  }
}

Bytes OperationFixture::reduced(size_t tensor) const {
  Bytes result(given_.front()[tensor].size());
  std::vector<const void*> sources;
  for (const auto& tensors : given_) sources.push_back(tensors[tensor].data());
  reduce::ReduceArgs args;
  args.dtype = spec_.dtype;
  args.op = spec_.op;
  args.dst = result.data();
  args.sources = sources;
  args.count = static_cast<size_t>(spec_.sizes[tensor]);
  args.prescale = spec_.prescale;
  args.postscale = spec_.postscale;
  if (spec_.op == ReduceOp::kAverage) args.divisor = ranks();
  reduce::reduce(args);
  // Sums of the fixture's values are exact in every type; the final values may not be.
  if (spec_.wire_dtype == WireDType::kSame || ranks_per_node_.size() == 1) return result;
  const DType rounded = dtype_on_wire(spec_.dtype, spec_.wire_dtype);
  Bytes on_wire(args.count * element_bytes(rounded));
  const void* const source[] = {result.data()};
  void* const destination[] = {result.data()};
  reduce::reduce(
      {.sum_dtype = rounded, .dst = on_wire.data(), .sources = source, .count = args.count});
  reduce::widen(destination, on_wire.data(), rounded, args.count);
  return result;
}

std::vector<double> OperationFixture::adasum_of(size_t tensor) const {
  std::vector<std::vector<rueda::testing::Vector>> groups;
  size_t rank = 0;
  for (const int local_ranks : ranks_per_node_) {
    groups.emplace_back();
    for (int i = 0; i < local_ranks; ++i, ++rank) {
      rueda::testing::Vector& vector = groups.back().emplace_back();
      for (int64_t at = 0; at < spec_.sizes[tensor]; ++at) {
        vector.push_back(get_number(
            spec_.dtype,
            given_[rank][tensor].data() + static_cast<size_t>(at) * element_bytes(spec_.dtype)));
      }
    }
  }
  rueda::testing::Vector result = rueda::testing::adasum(groups);
  for (double& value : result) value *= spec_.prescale * spec_.postscale;
  return result;
}

// A value is rounded once on each node that it passes, and the weights by as much.
std::string OperationFixture::check_adasum() const {
  const bool is_alone = ranks_per_node_.size() == 1;
  double precision = 0x1p-7;
  switch (is_alone ? spec_.dtype : dtype_on_wire(spec_.dtype, spec_.wire_dtype)) {
    case DType::kFloat64: precision = 0x1p-48; break;
    case DType::kFloat32: precision = 0x1p-20; break;
    case DType::kFloat16: precision = 0x1p-10; break;
    default: break;
  }
  for (size_t t = 0; t < spec_.sizes.size(); ++t) {
    const std::vector<double> want = adasum_of(t);
    constexpr double largest = 4;  // of all inputs and results
    for (size_t at = 0; at < want.size(); ++at) {
      const double got =
          get_number(spec_.dtype, output_of(Rank{0}, t) + at * element_bytes(spec_.dtype));
      if (std::fabs(got - want[at]) <= 4 * precision * largest) continue;
      return "adasum of " + std::string(rueda::to_string(spec_.dtype)) + ": tensor " +
             std::to_string(t) + ", element " + std::to_string(at) + " is " + std::to_string(got) +
             " instead of " + std::to_string(want[at]);
    }
  }
  for (int rank = 1; rank < ranks(); ++rank) {
    if (output(Rank{rank}) != output(Rank{0})) {
      return "adasum: ranks 0 and " + std::to_string(rank) + " have different bits";
    }
  }
  return {};
}

const std::byte* OperationFixture::input_of(Rank rank, size_t tensor) const {
  return inputs_[static_cast<size_t>(rank.value)][tensor].data();
}

std::byte* OperationFixture::output_of(Rank rank, size_t tensor) const {
  const auto r = static_cast<size_t>(rank.value);
  return spec_.in_place ? inputs_[r][tensor].data() : outputs_[r][tensor].data();
}

std::unique_ptr<Operation> OperationFixture::operation(NodeIndex node) const {
  auto operation = std::make_unique<Operation>();
  operation->epoch = Epoch{1};
  operation->seq = seq_;
  operation->plan_hash = spec_.plan_hash;
  operation->tuning = spec_.tuning;
  operation->urgency = spec_.urgency;
  operation->kind = spec_.kind;
  operation->dtype = spec_.dtype;
  operation->op = spec_.op;
  operation->prescale = spec_.prescale;
  operation->postscale = spec_.postscale;
  operation->wire_dtype = spec_.wire_dtype;
  if (spec_.op == ReduceOp::kAverage && reduces(spec_.kind)) {
    operation->divisor = ranks();
  }
  int first_rank = 0;
  int root_left = spec_.root.value;
  for (int n = 0; n < static_cast<int>(ranks_per_node_.size()); ++n) {
    const int local_ranks = ranks_per_node_[static_cast<size_t>(n)];
    if (n < node.value) first_rank += local_ranks;
    if (!has_root(spec_.kind) || operation->root_node.value >= 0) continue;
    if (root_left < local_ranks) operation->root_node = NodeIndex{n};
    root_left -= local_ranks;
  }
  operation->first_element.push_back(0);
  for (size_t t = 0; t < spec_.sizes.size(); ++t) {
    std::vector<RankBuffers> buffers;
    for (int i = 0; i < ranks_per_node_[static_cast<size_t>(node.value)]; ++i) {
      const Rank rank{first_rank + i};
      const Extent own = extent(rank.value, t);
      buffers.push_back({own.input > 0 ? input_of(rank, t) : nullptr,
                         own.output > 0 ? output_of(rank, t) : nullptr});
    }
    if (has_parts(spec_.kind)) {
      core::TensorDescriptor tensor;
      tensor.kind = spec_.kind;
      tensor.dtype = spec_.dtype;
      tensor.shape = {spec_.sizes[t]};
      tensor.counts = spec_.counts;
      tensor.root = spec_.root;
      std::vector<Reach> reaches;
      for (int i = 0; i < ranks_per_node_[static_cast<size_t>(node.value)]; ++i) {
        const Extent own = extent(first_rank + i, t);
        const size_t element = element_bytes(spec_.dtype);
        reaches.push_back(
            {static_cast<size_t>(own.input) * element, static_cast<size_t>(own.output) * element});
      }
      RUEDA_CHECK(add_parts(tensor, layout(), node, buffers, reaches, *operation).empty());
      continue;
    }
    operation->first_element.push_back(operation->first_element.back() + spec_.sizes[t]);
    operation->tensors.push_back({spec_.sizes[t], buffers});
  }
  return operation;
}

core::Layout OperationFixture::layout() const {
  std::vector<core::LayoutNode> nodes;
  int rank = 0;
  for (size_t n = 0; n < ranks_per_node_.size(); ++n) {
    core::LayoutNode& node = nodes.emplace_back();
    node.node_id = std::to_string(n);
    node.control_address = "node:" + std::to_string(n);
    for (int i = 0; i < ranks_per_node_[n]; ++i) node.ranks.push_back(Rank{rank++});
  }
  return core::Layout::make(std::move(nodes)).value();
}

Bytes OperationFixture::output(Rank rank) const {
  Bytes all;
  const auto r = static_cast<size_t>(rank.value);
  for (const Bytes& bytes : spec_.in_place ? inputs_[r] : outputs_[r]) {
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

std::string OperationFixture::check() const {
  const std::string name = "operation " + std::to_string(seq_.value);
  const size_t size = element_bytes(spec_.dtype);
  for (int rank = 0; rank < ranks(); ++rank) {
    const auto r = static_cast<size_t>(rank);
    if (!spec_.in_place && inputs_[r] != given_[r]) {
      return name + ": the input of rank " + std::to_string(rank) + " was written to";
    }
    if (spec_.op == ReduceOp::kAdasum) continue;
    if (spec_.random_seed != 0) {
      if (output(Rank{rank}) != output(Rank{0})) {
        return name + ": ranks 0 and " + std::to_string(rank) + " have different bits";
      }
      continue;
    }
    for (size_t t = 0; t < spec_.sizes.size(); ++t) {
      const Bytes& want = expected_[r][t];
      for (size_t at = 0; at < want.size(); at += size) {
        const std::byte* got = output_of(Rank{rank}, t) + at;
        if (std::memcmp(got, want.data() + at, size) == 0) continue;
        return name + " (" + rueda::to_string(spec_.kind) + " " + rueda::to_string(spec_.op) + " " +
               rueda::to_string(spec_.dtype) + "): rank " + std::to_string(rank) + ", tensor " +
               std::to_string(t) + ", element " + std::to_string(at / size) + " is " +
               std::to_string(get_number(spec_.dtype, got)) + " instead of " +
               std::to_string(get_number(spec_.dtype, want.data() + at));
      }
    }
  }
  return spec_.op == ReduceOp::kAdasum ? check_adasum() : std::string();
}

}  // namespace rueda::engine::testing
