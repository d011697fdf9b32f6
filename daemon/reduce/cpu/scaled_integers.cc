// Reduces integers with scales or a divisor, and products of bytes. These are rare, so the code is
// scalar, and exact before fast.

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "daemon/base/check.h"
#include "daemon/reduce/cpu/job.h"

namespace rueda::reduce {
namespace {

// The bounds are compared as doubles because a cast of what does not fit is undefined.
template <class T>
T truncate_saturating(double x) {
  constexpr double kLowest = static_cast<double>(std::numeric_limits<T>::min());
  constexpr double kEnd = 2.0 * static_cast<double>(T{1} << (std::numeric_limits<T>::digits - 1));
  if (std::isnan(x)) return 0;
  if (x < kLowest) return std::numeric_limits<T>::min();
  if (x >= kEnd) return std::numeric_limits<T>::max();
  return static_cast<T>(x);
}

template <class T>
T scaled(T x, double scale) {
  return scale == 1.0 ? x : truncate_saturating<T>(static_cast<double>(x) * scale);
}

template <class T>
T load(const void* source, size_t index) {
  T value;
  std::memcpy(&value, static_cast<const uint8_t*>(source) + index * sizeof(T), sizeof(T));
  return value;
}

// Sums and products wrap, which only unsigned arithmetic may do.
template <class T, ReduceOp kOp>
T combine(T a, T b) {
  // What is narrower than int would become an int, whose product can overflow.
  using U = std::common_type_t<std::make_unsigned_t<T>, unsigned>;
  if constexpr (kOp == ReduceOp::kMin) return b < a ? b : a;
  if constexpr (kOp == ReduceOp::kMax) return b > a ? b : a;
  if constexpr (kOp == ReduceOp::kProduct) {
    return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
  }
  return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
}

// Each type is divided in the widest one of its kind, because neither of the two holds all values
// of the other. The divisor is greater than 0.
template <class T>
T divided(T x, int64_t divisor) {
  using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
  return static_cast<T>(static_cast<Wide>(x) / static_cast<Wide>(divisor));
}

template <class T, ReduceOp kOp>
void run(const Job& job) {
  for (size_t i = 0; i < job.count; ++i) {
    T sum = load<T>(job.first, i);
    if (!job.is_first_partial) sum = scaled(sum, job.prescale);
    for (size_t k = 0; k < job.rest_count; ++k) {
      sum = combine<T, kOp>(sum, scaled(load<T>(job.rest[k], i), job.prescale));
    }
    sum = scaled(sum, job.postscale);
    if (job.divisor != 1) sum = divided(sum, job.divisor);
    std::memcpy(job.dst + i * sizeof(T), &sum, sizeof(T));
  }
}

template <class T>
void run_op(const Job& job) {
  switch (job.op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage: return run<T, ReduceOp::kSum>(job);
    case ReduceOp::kMin: return run<T, ReduceOp::kMin>(job);
    case ReduceOp::kMax: return run<T, ReduceOp::kMax>(job);
    case ReduceOp::kProduct: return run<T, ReduceOp::kProduct>(job);
    case ReduceOp::kAdasum: break;
  }
  RUEDA_CHECK(!"an operator on elements");
}

}  // namespace

void reduce_integers_one_by_one(const Job& job) {
  switch (job.dtype) {
    case DType::kInt32: return run_op<int32_t>(job);
    case DType::kInt64: return run_op<int64_t>(job);
    case DType::kInt8: return run_op<int8_t>(job);
    case DType::kUInt8: return run_op<uint8_t>(job);
    case DType::kInt16: return run_op<int16_t>(job);
    case DType::kUInt16: return run_op<uint16_t>(job);
    case DType::kUInt32: return run_op<uint32_t>(job);
    case DType::kUInt64: return run_op<uint64_t>(job);
    default: break;
  }
  RUEDA_CHECK(!"an integer");
}

}  // namespace rueda::reduce
