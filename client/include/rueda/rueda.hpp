// The C++ interface of librueda: RAII, spans and exceptions over rueda.h. Header-only, C++20.
//
//   rueda::Context context;                    // joins the job, leaves at the end of the scope
//   rueda::Buffer<float> gradient(1024);       // memory that the daemon reads where it is
//   rueda::allreduce("gradient", gradient);    // in place, the average over all ranks
//
// Names of tensors are the same on all ranks. Sizes and lengths are in elements. Every function may
// be called from any thread, but an object must not be used by several threads without a lock.
// Every failure throws rueda::Error.
#ifndef RUEDA_RUEDA_HPP
#define RUEDA_RUEDA_HPP

#include <chrono>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "rueda/rueda.h"

namespace rueda {

// The exception of every failed call. code() is one of rueda_error; what() is a sentence that names
// who or what is to blame.
class Error : public std::runtime_error {
 public:
  Error(int code, const std::string& message) : std::runtime_error(message), code_(code) {}
  int code() const noexcept { return code_; }

 private:
  int code_;
};

namespace detail {
inline void check(int rc) {
  if (rc < 0) throw Error(rc, rueda_last_error());
}
inline int checked(int value) {
  check(value);
  return value;
}
}  // namespace detail

// Sixteen-bit floats are given by their bits: only the daemon does arithmetic on them.
struct Float16 {
  uint16_t bits = 0;
  bool operator==(const Float16&) const = default;
};
struct BFloat16 {
  uint16_t bits = 0;
  bool operator==(const BFloat16&) const = default;
};

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> : std::integral_constant<rueda_dtype, RUEDA_FLOAT32> {};
template <>
struct DTypeOf<double> : std::integral_constant<rueda_dtype, RUEDA_FLOAT64> {};
template <>
struct DTypeOf<Float16> : std::integral_constant<rueda_dtype, RUEDA_FLOAT16> {};
template <>
struct DTypeOf<BFloat16> : std::integral_constant<rueda_dtype, RUEDA_BFLOAT16> {};
template <>
struct DTypeOf<int32_t> : std::integral_constant<rueda_dtype, RUEDA_INT32> {};
template <>
struct DTypeOf<int64_t> : std::integral_constant<rueda_dtype, RUEDA_INT64> {};
template <>
struct DTypeOf<int8_t> : std::integral_constant<rueda_dtype, RUEDA_INT8> {};
template <>
struct DTypeOf<uint8_t> : std::integral_constant<rueda_dtype, RUEDA_UINT8> {};
template <>
struct DTypeOf<bool> : std::integral_constant<rueda_dtype, RUEDA_BOOL> {};
template <>
struct DTypeOf<int16_t> : std::integral_constant<rueda_dtype, RUEDA_INT16> {};
template <>
struct DTypeOf<uint16_t> : std::integral_constant<rueda_dtype, RUEDA_UINT16> {};
template <>
struct DTypeOf<uint32_t> : std::integral_constant<rueda_dtype, RUEDA_UINT32> {};
template <>
struct DTypeOf<uint64_t> : std::integral_constant<rueda_dtype, RUEDA_UINT64> {};
template <>
struct DTypeOf<std::complex<float>> : std::integral_constant<rueda_dtype, RUEDA_COMPLEX64> {};
template <>
struct DTypeOf<std::complex<double>> : std::integral_constant<rueda_dtype, RUEDA_COMPLEX128> {};

template <class T>
concept Element = requires {
  DTypeOf<T>::value;
};

enum class Op {
  kSum = RUEDA_SUM,
  kAverage = RUEDA_AVERAGE,
  kMin = RUEDA_MIN,
  kMax = RUEDA_MAX,
  kProduct = RUEDA_PRODUCT,
  kAdasum = RUEDA_ADASUM
};

enum class WireDType {
  kSame = RUEDA_WIRE_SAME,
  kFloat16 = RUEDA_WIRE_FLOAT16,
  kBFloat16 = RUEDA_WIRE_BFLOAT16
};

// Options of a reduction. prescale multiplies each rank's contribution, postscale the result.
struct ReduceOptions {
  Op op = Op::kAverage;
  double prescale = 1.0;
  double postscale = 1.0;
  uint32_t process_set = 0;                 // the set whose ranks take part; 0: all ranks
  int32_t priority = 0;                     // as rueda_reduce_options::priority
  WireDType wire_dtype = WireDType::kSame;  // type that values are rounded to on the network

  ReduceOptions() = default;
  ReduceOptions(Op chosen) : op(chosen) {}  // NOLINT: allreduce(name, data, Op::kSum) is the point
  ReduceOptions(Op chosen, double pre, double post) : op(chosen), prescale(pre), postscale(post) {}
};

using Milliseconds = std::chrono::milliseconds;

// Membership in the job, from construction to destruction. A process has at most one Context at a
// time.
class Context {
 public:
  // Joins the job that ruedarun describes in the environment.
  Context() { detail::check(rueda_init(nullptr)); }
  explicit Context(rueda_init_options options) {
    options.struct_bytes = sizeof(options);
    detail::check(rueda_init(&options));
  }
  ~Context() { rueda_shutdown(); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int rank() const { return detail::checked(rueda_rank()); }
  int size() const { return detail::checked(rueda_size()); }
  int local_rank() const { return detail::checked(rueda_local_rank()); }
  int local_size() const { return detail::checked(rueda_local_size()); }
  int cross_rank() const { return detail::checked(rueda_cross_rank()); }
  int cross_size() const { return detail::checked(rueda_cross_size()); }
  std::string node_id() const { return rueda_node_id(); }
  rueda_stats stats() const {
    rueda_stats stats{};
    detail::check(rueda_get_stats(&stats));
    return stats;
  }
  // Returns whether, in an elastic job, processes wait to take part (rueda_hosts_changed). Throws
  // the error that has ended this process's membership, if it has ended.
  bool hosts_changed() const { return detail::checked(rueda_hosts_changed()) != 0; }
  // Returns the first NaN or infinity that a rank contributed to a reduction (rueda.h), or nullopt
  // if this process has been told of none.
  std::optional<rueda_nonfinite> first_nonfinite() const {
    rueda_nonfinite first{};
    if (detail::checked(rueda_first_nonfinite(&first)) == 0) return std::nullopt;
    return first;
  }
};

// A buffer of `size` elements, zeroed at first, that the daemon reads and writes where they are,
// without copies. The memory stays readable after the Context has ended. A Buffer must not be
// destroyed while an operation uses it.
template <Element T>
class Buffer {
 public:
  explicit Buffer(size_t size) : size_(size) {
    if (size > SIZE_MAX / sizeof(T)) throw Error(RUEDA_ERR_RESOURCE_EXHAUSTED, "buffer too large");
    data_ = static_cast<T*>(rueda_alloc(size * sizeof(T)));
    if (data_ == nullptr) throw Error(RUEDA_ERR_RESOURCE_EXHAUSTED, rueda_last_error());
    for (T& element : span()) element = T{};
  }
  ~Buffer() { rueda_free(data_); }
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<T> span() { return {data_, size_}; }
  std::span<const T> span() const { return {data_, size_}; }
  T& operator[](size_t index) { return data_[index]; }
  const T& operator[](size_t index) const { return data_[index]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

// How an operation has ended (Handle::then).
struct Ended {
  int code = RUEDA_OK;  // one of rueda_error
  std::string message;  // a sentence; "" if the operation has succeeded
  rueda_result result{};

  // Throws the operation's error, if it has failed.
  void check() const {
    if (code < 0) throw Error(code, message);
  }
};

// An operation in flight. The memory that it uses must live until wait() has returned, or the
// function of then() is called. A Handle that is destroyed before either waits for the operation,
// and discards its error; in a function of then() it cannot wait, so there every Handle gets a
// then() of its own.
class Handle {
 public:
  explicit Handle(rueda_handle id) : id_(id) {}
  ~Handle() {
    if (id_ != 0) rueda_wait(id_, -1, nullptr);
  }
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, 0)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }

  // Sleeps until the operation has ended; without `timeout` there is no limit. The error
  // RUEDA_ERR_TIMEOUT leaves the operation in flight: wait() may be called again.
  rueda_result wait(std::optional<Milliseconds> timeout = std::nullopt) {
    rueda_result result{};
    int rc = rueda_wait(id_, timeout ? timeout->count() : -1, &result);
    if (rc != RUEDA_ERR_TIMEOUT) id_ = 0;
    detail::check(rc);
    return result;
  }
  // Returns true if wait() would return at once.
  bool test() const {
    int done = 0;
    detail::check(rueda_test(id_, &done));
    return done != 0;
  }
  // Takes back a send or a receive; wait() then throws RUEDA_ERR_UNAVAILABLE, unless it had met its
  // other half already. See rueda_cancel.
  void cancel() { detail::check(rueda_cancel(id_)); }
  // Has `told` called when the operation has ended, by a thread of the library, and gives the
  // handle up: nobody waits. rueda.h (rueda_then) says what `told` may do; it must not throw. If
  // this call throws, `told` is not called, and the handle is as it was.
  void then(std::function<void(const Ended&)> told) {
    auto kept = std::make_unique<std::function<void(const Ended&)>>(std::move(told));
    detail::check(rueda_then(id_, &tell, kept.get()));
    (void)kept.release();  // is tell()'s
    id_ = 0;
  }

 private:
  static void tell(rueda_handle, int error, const rueda_result* result, void* kept) noexcept {
    const std::unique_ptr<std::function<void(const Ended&)>> told(
        static_cast<std::function<void(const Ended&)>*>(kept));
    (*told)({error, error < 0 ? rueda_last_error() : "", *result});
  }

  rueda_handle id_ = 0;
};

namespace detail {
// Holds the shape that a rueda_tensor points to.
template <Element T>
class FlatTensor {
 public:
  FlatTensor(const std::string& name, std::span<const T> in, std::span<T> out)
      : name_(name), in_(in), out_(out), shape_(static_cast<int64_t>(in.size())) {
    if (in.size() == out.size()) return;
    throw Error(RUEDA_ERR_INVALID_ARGUMENT,
                "tensor \"" + name + "\" has " + std::to_string(in.size()) +
                    " elements of input and " + std::to_string(out.size()) + " of output");
  }
  rueda_tensor get(uint32_t process_set) const {
    return {name_.c_str(), in_.data(), out_.data(), &shape_, 1, DTypeOf<T>::value, process_set};
  }

 private:
  const std::string& name_;
  std::span<const T> in_;
  std::span<T> out_;
  int64_t shape_;
};

inline int64_t to_ms(std::optional<Milliseconds> timeout) {
  return timeout ? timeout->count() : -1;
}

inline rueda_reduce_options c_options(const ReduceOptions& options) {
  return {sizeof(rueda_reduce_options),
          static_cast<rueda_op>(options.op),
          options.prescale,
          options.postscale,
          options.priority,
          static_cast<rueda_wire_dtype>(options.wire_dtype)};
}
}  // namespace detail

// The blocking forms throw RUEDA_ERR_TIMEOUT when `timeout` has passed. The operation then goes on,
// and a Buffer that it uses must not be destroyed or written until it has ended.
//
// An all-reduce sets `out` to the reduction of every rank's `in`. The two spans have the same
// length, and are the same memory or do not overlap.
template <Element T>
Handle allreduce_async(const std::string& name, std::span<const std::type_identity_t<T>> in,
                       std::span<T> out, const ReduceOptions& options = {}) {
  detail::FlatTensor<T> flat(name, in, out);
  rueda_tensor tensor = flat.get(options.process_set);
  rueda_reduce_options c_options = detail::c_options(options);
  rueda_handle handle = 0;
  detail::check(rueda_allreduce_async(&tensor, &c_options, &handle));
  return Handle(handle);
}
template <Element T>
Handle allreduce_async(const std::string& name, Buffer<T>& data,
                       const ReduceOptions& options = {}) {
  return allreduce_async<T>(name, data.span(), data.span(), options);
}

template <Element T>
void allreduce(const std::string& name, std::span<const std::type_identity_t<T>> in,
               std::span<T> out, const ReduceOptions& options = {},
               std::optional<Milliseconds> timeout = std::nullopt) {
  detail::FlatTensor<T> flat(name, in, out);
  rueda_tensor tensor = flat.get(options.process_set);
  rueda_reduce_options c_options = detail::c_options(options);
  detail::check(rueda_allreduce(&tensor, &c_options, detail::to_ms(timeout)));
}
template <Element T>
void allreduce(const std::string& name, Buffer<T>& data, const ReduceOptions& options = {},
               std::optional<Milliseconds> timeout = std::nullopt) {
  allreduce<T>(name, data.span(), data.span(), options, timeout);
}

// Reduces several tensors together and in place: they become ready as one. The tensors are named
// "GROUP.0", "GROUP.1" and so on.
template <Element T>
Handle grouped_allreduce_async(const std::string& group, std::span<const std::span<T>> members,
                               const ReduceOptions& options = {}) {
  std::vector<std::string> names;
  std::vector<int64_t> shapes;
  for (size_t i = 0; i < members.size(); ++i) {
    names.push_back(group + "." + std::to_string(i));
    shapes.push_back(static_cast<int64_t>(members[i].size()));
  }
  std::vector<rueda_tensor> tensors;
  for (size_t i = 0; i < members.size(); ++i) {
    tensors.push_back({names[i].c_str(), members[i].data(), members[i].data(), &shapes[i], 1,
                       DTypeOf<T>::value, options.process_set});
  }
  rueda_reduce_options c_options = detail::c_options(options);
  rueda_handle handle = 0;
  detail::check(rueda_grouped_allreduce_async(group.c_str(), tensors.data(), tensors.size(),
                                              &c_options, &handle));
  return Handle(handle);
}
template <Element T>
void grouped_allreduce(const std::string& group, std::span<const std::span<T>> members,
                       const ReduceOptions& options = {}) {
  grouped_allreduce_async<T>(group, members, options).wait();
}

// Sets the root's `out` to what an all-reduce would give; other ranks pass an empty `out`.
template <Element T>
Handle reduce_async(const std::string& name, std::span<const std::type_identity_t<T>> in,
                    std::span<T> out, int root_rank, const ReduceOptions& options = {}) {
  const bool is_root = rueda_rank() == root_rank;
  const detail::FlatTensor<T> flat(name, in, is_root ? out : std::span<T>(out.data(), in.size()));
  const rueda_tensor tensor = flat.get(options.process_set);
  const rueda_reduce_options c_options = detail::c_options(options);
  rueda_handle handle = 0;
  detail::check(rueda_reduce_async(&tensor, root_rank, &c_options, &handle));
  return Handle(handle);
}

// In the collectives below each rank has a part of the elements to itself; parts follow each other
// in the order of the ranks. `sizes` has one entry for each rank of the process set, in elements,
// and is the same on all ranks. If it is empty, parts are as even as can be, and in a gather all
// ranks have as many elements as this rank. The functions do what the C functions of these names
// do, in one dimension.
namespace detail {
inline void check_size(const std::string& name, const char* what, size_t size, size_t needed) {
  if (size == needed) return;
  throw Error(RUEDA_ERR_INVALID_ARGUMENT, "tensor \"" + name + "\" has " + std::to_string(size) +
                                              " elements of " + what + ", and needs " +
                                              std::to_string(needed));
}

// The parts of the ranks of the process set. If `sizes` is empty, `all` elements are cut into parts
// as even as can be.
class Parts {
 public:
  Parts(std::span<const int64_t> sizes, uint32_t process_set, size_t all) : sizes_(sizes) {
    const auto count = static_cast<size_t>(checked(rueda_process_set_size(process_set)));
    if (!sizes.empty() && sizes.size() != count) {
      throw Error(RUEDA_ERR_INVALID_ARGUMENT,
                  std::to_string(sizes.size()) + " sizes for " + std::to_string(count) + " ranks");
    }
    int32_t place = -1;
    check(rueda_process_set_rank(process_set, &place));
    const auto at = static_cast<size_t>(place);
    own_ =
        sizes.empty() ? all / count + (at < all % count ? 1 : 0) : static_cast<size_t>(sizes[at]);
    for (const int64_t size : sizes) all_ += static_cast<size_t>(size);
    if (sizes.empty()) all_ = all;
    count_ = count;
  }
  const int64_t* get() const { return sizes_.empty() ? nullptr : sizes_.data(); }
  size_t own() const { return own_; }
  size_t all() const { return all_; }
  size_t count() const { return count_; }

 private:
  std::span<const int64_t> sizes_;
  size_t own_ = 0;
  size_t all_ = 0;
  size_t count_ = 0;
};

template <Element T>
Handle gather(const std::string& name, std::span<const std::type_identity_t<T>> in,
              std::span<T> out, std::span<const int64_t> sizes, uint32_t process_set,
              std::optional<int> root_rank) {
  const int64_t shape = static_cast<int64_t>(in.size());
  const Parts parts(sizes, process_set, 0);
  if (!root_rank || rueda_rank() == *root_rank) {
    check_size(name, "output", out.size(), sizes.empty() ? in.size() * parts.count() : parts.all());
  }
  const rueda_tensor tensor = {name.c_str(),      in.data(),  out.data(), &shape, 1,
                               DTypeOf<T>::value, process_set};
  rueda_handle handle = 0;
  check(root_rank ? rueda_gather_async(&tensor, parts.get(), *root_rank, &handle)
                  : rueda_allgather_async(&tensor, parts.get(), &handle));
  return Handle(handle);
}
}  // namespace detail

// Sets `out` to the `in` of all ranks, one behind the other.
template <Element T>
Handle allgather_async(const std::string& name, std::span<const std::type_identity_t<T>> in,
                       std::span<T> out, std::span<const int64_t> sizes = {},
                       uint32_t process_set = 0) {
  return detail::gather<T>(name, in, out, sizes, process_set, std::nullopt);
}
// Gathers as allgather_async does, to the root alone; other ranks pass an empty `out`.
template <Element T>
Handle gather_async(const std::string& name, std::span<const std::type_identity_t<T>> in,
                    std::span<T> out, int root_rank, std::span<const int64_t> sizes = {},
                    uint32_t process_set = 0) {
  return detail::gather<T>(name, in, out, sizes, process_set, root_rank);
}
// Sets `out` to this rank's part of what an all-reduce would give.
template <Element T>
Handle reduce_scatter_async(const std::string& name, std::span<const std::type_identity_t<T>> in,
                            std::span<T> out, const ReduceOptions& options = {},
                            std::span<const int64_t> sizes = {}) {
  const detail::Parts parts(sizes, options.process_set, in.size());
  detail::check_size(name, "input", in.size(), parts.all());
  detail::check_size(name, "output", out.size(), parts.own());
  const int64_t shape = static_cast<int64_t>(in.size());
  const rueda_tensor tensor = {name.c_str(),      in.data(),          out.data(), &shape, 1,
                               DTypeOf<T>::value, options.process_set};
  const rueda_reduce_options c_options = detail::c_options(options);
  rueda_handle handle = 0;
  detail::check(rueda_reduce_scatter_async(&tensor, parts.get(), &c_options, &handle));
  return Handle(handle);
}
// Sets `out` to this rank's part of the root's `in`, which has `all` elements; other ranks pass an
// empty `in`.
template <Element T>
Handle scatter_async(const std::string& name, std::span<const std::type_identity_t<T>> in,
                     std::span<T> out, size_t all, int root_rank,
                     std::span<const int64_t> sizes = {}, uint32_t process_set = 0) {
  const detail::Parts parts(sizes, process_set, all);
  if (rueda_rank() == root_rank) detail::check_size(name, "input", in.size(), all);
  detail::check_size(name, "output", out.size(), parts.own());
  const int64_t shape = static_cast<int64_t>(all);
  const rueda_tensor tensor = {name.c_str(),      in.data(),  out.data(), &shape, 1,
                               DTypeOf<T>::value, process_set};
  rueda_handle handle = 0;
  detail::check(rueda_scatter_async(&tensor, parts.get(), root_rank, &handle));
  return Handle(handle);
}
// Sets `out` to this rank's part of each rank's `in`, one behind the other. `splits` has an entry
// for each pair of the n ranks: splits[i * n + j] elements go from the i-th rank to the j-th. If it
// is empty, all parts are equal.
template <Element T>
Handle alltoall_async(const std::string& name, std::span<const std::type_identity_t<T>> in,
                      std::span<T> out, std::span<const int64_t> splits = {},
                      uint32_t process_set = 0) {
  const auto count = static_cast<size_t>(detail::checked(rueda_process_set_size(process_set)));
  int32_t place = -1;
  detail::check(rueda_process_set_rank(process_set, &place));
  if (!splits.empty() && splits.size() != count * count) {
    throw Error(RUEDA_ERR_INVALID_ARGUMENT,
                std::to_string(splits.size()) + " splits for " + std::to_string(count) + " ranks");
  }
  size_t received = splits.empty() ? in.size() : 0;
  for (size_t i = 0; i < (splits.empty() ? 0 : count); ++i) {
    received += static_cast<size_t>(splits[i * count + static_cast<size_t>(place)]);
  }
  detail::check_size(name, "output", out.size(), received);
  const int64_t shape = static_cast<int64_t>(in.size());
  const rueda_tensor tensor = {name.c_str(),      in.data(),  out.data(), &shape, 1,
                               DTypeOf<T>::value, process_set};
  rueda_handle handle = 0;
  detail::check(rueda_alltoall_async(&tensor, splits.empty() ? nullptr : splits.data(), &handle));
  return Handle(handle);
}

// Sets `data` to what it is on root_rank, a rank of the job.
template <Element T>
Handle broadcast_async(const std::string& name, std::span<T> data, int root_rank,
                       uint32_t process_set = 0) {
  detail::FlatTensor<T> flat(name, data, data);
  rueda_tensor tensor = flat.get(process_set);
  rueda_handle handle = 0;
  detail::check(rueda_broadcast_async(&tensor, root_rank, &handle));
  return Handle(handle);
}
template <Element T>
void broadcast(const std::string& name, std::span<T> data, int root_rank,
               std::optional<Milliseconds> timeout = std::nullopt) {
  detail::FlatTensor<T> flat(name, data, data);
  rueda_tensor tensor = flat.get(0);
  detail::check(rueda_broadcast(&tensor, root_rank, detail::to_ms(timeout)));
}
template <Element T>
void broadcast(const std::string& name, Buffer<T>& data, int root_rank,
               std::optional<Milliseconds> timeout = std::nullopt) {
  broadcast<T>(name, data.span(), root_rank, timeout);
}

// Says that this rank has no more data: until all ranks have joined, it contributes zeros to the
// operations of the others. Returns the last rank that joined.
inline int join(std::optional<Milliseconds> timeout = std::nullopt) {
  int32_t last_rank = -1;
  detail::check(rueda_join(detail::to_ms(timeout), &last_rank));
  return last_rank;
}

// Some of the job's ranks, which reduce among themselves: ReduceOptions::process_set = set.id().
class ProcessSet {
 public:
  // Adds the set. Every rank of the job constructs it with the same ranks, and waits for the
  // others. The set stays until remove(), also if the object is destroyed.
  explicit ProcessSet(std::span<const int32_t> ranks) {
    detail::check(rueda_process_set_add(ranks.data(), static_cast<int32_t>(ranks.size()), &id_));
  }
  // Removes the set. Every rank of the job makes this call, when nothing that it submitted is in
  // flight in the set.
  void remove() { detail::check(rueda_process_set_remove(id_)); }

  uint32_t id() const { return id_; }
  int size() const { return detail::checked(rueda_process_set_size(id_)); }
  // Returns this rank's place in the set; -1 if it is not in the set.
  int rank() const {
    int32_t rank = -1;
    detail::check(rueda_process_set_rank(id_, &rank));
    return rank;
  }

 private:
  uint32_t id_ = 0;
};

// A tensor that every training step reduces by an all-reduce, in one dimension, as the functions
// above submit it.
struct PlannedTensor {
  std::string name;
  size_t size = 0;  // in elements
  rueda_dtype dtype = RUEDA_FLOAT32;
  // The places in the list of the tensors whose results this tensor is computed from, each before
  // its own place.
  std::vector<uint32_t> after;
  // name of its grouped_allreduce, whose tensors follow each other in the list; "": none
  std::string group;
  ReduceOptions options;
  bool is_on_device = false;  // It will be in device memory.
};

// Declares what a training step consists of, before there has been a step: all its all-reduces, in
// the order in which they are expected to be ready. Every rank of the job makes this call, with the
// same list, before its first step or between two, and waits for the others. See
// rueda_plan_declare.
inline void declare_plan(std::span<const PlannedTensor> tensors) {
  std::vector<int64_t> shapes;
  std::vector<rueda_reduce_options> options;
  for (const PlannedTensor& planned : tensors) {
    shapes.push_back(static_cast<int64_t>(planned.size));
    options.push_back(detail::c_options(planned.options));
  }
  std::vector<rueda_planned_tensor> list;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const PlannedTensor& planned = tensors[i];
    list.push_back({{planned.name.c_str(), nullptr, nullptr, &shapes[i], 1, planned.dtype,
                     planned.options.process_set},
                    &options[i],
                    planned.group.empty() ? nullptr : planned.group.c_str(),
                    planned.after.data(),
                    planned.after.size(),
                    planned.is_on_device ? 1 : 0});
  }
  detail::check(rueda_plan_declare(list.data(), list.size()));
}

// Sends `data` to one rank of the job, which receives it with recv_async(); rueda.h says which
// sends and receives match. `data` must not change before the end of the wait.
template <Element T>
Handle send_async(std::span<const T> data, int destination, int64_t tag = 0,
                  uint32_t process_set = 0) {
  rueda_handle handle = 0;
  detail::check(rueda_send_async(data.data(), static_cast<int64_t>(data.size()), DTypeOf<T>::value,
                                 destination, tag, process_set, &handle));
  return Handle(handle);
}
// Receives into `data` from one rank, or from RUEDA_ANY_SOURCE. The `value` of wait()'s result is
// the rank that sent.
template <Element T>
Handle recv_async(std::span<T> data, int source, int64_t tag = 0, uint32_t process_set = 0) {
  rueda_handle handle = 0;
  detail::check(rueda_recv_async(data.data(), static_cast<int64_t>(data.size()), DTypeOf<T>::value,
                                 source, tag, process_set, &handle));
  return Handle(handle);
}

// Waits until every rank has called it.
inline void barrier(const std::string& name = "barrier",
                    std::optional<Milliseconds> timeout = std::nullopt) {
  detail::check(rueda_barrier(name.c_str(), detail::to_ms(timeout)));
}

}  // namespace rueda

#endif  // RUEDA_RUEDA_HPP
