#include "daemon/reduce/cpu/dot.h"

#include <array>
#include <cstdint>
#include <cstring>

// foreach_target.h compiles this file once for each instruction set, then once for the dispatch.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "daemon/reduce/cpu/dot.cc"  // NOLINT
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "daemon/reduce/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rueda::reduce::HWY_NAMESPACE {

constexpr size_t kSums = 16;

using F64 = hn::ScalableTag<double>;
using VF64 = hn::Vec<F64>;
constexpr size_t kLanes = hn::MaxLanes(F64());
static_assert(kSums % kLanes == 0);

template <class T>
HWY_INLINE VF64 load_as_double(const uint8_t* from) {
  if constexpr (sizeof(T) == sizeof(double)) {
    return load_bytes(F64(), from);
  } else {
    return hn::PromoteTo(F64(), load_bytes(hn::Rebind<T, F64>(), from));
  }
}

// A product of float32 is exact in float64. A product of float64 is rounded before it is added,
// because not all targets have an instruction that does both.
template <class T>
double dot(const void* left, const void* right, size_t count) {
  const auto* a = static_cast<const uint8_t*>(left);
  const auto* b = static_cast<const uint8_t*>(right);
  VF64 sums[kSums / kLanes];
  for (VF64& sum : sums) sum = hn::Zero(F64());
  const auto add = [&](const uint8_t* from_a, const uint8_t* from_b) {
    for (size_t v = 0; v < kSums / kLanes; ++v) {
      const size_t at = v * kLanes * sizeof(T);
      sums[v] =
          hn::Add(sums[v], hn::Mul(load_as_double<T>(from_a + at), load_as_double<T>(from_b + at)));
    }
  };
  constexpr size_t kStep = kSums * sizeof(T);
  size_t left_over = count;
  for (; left_over >= kSums; left_over -= kSums, a += kStep, b += kStep) add(a, b);
  if (left_over > 0) {
    uint8_t last_a[kStep] = {};
    uint8_t last_b[kStep] = {};
    std::memcpy(last_a, a, left_over * sizeof(T));
    std::memcpy(last_b, b, left_over * sizeof(T));
    add(last_a, last_b);
  }
  std::array<double, kSums> lanes;
  for (size_t v = 0; v < kSums / kLanes; ++v) {
    store_bytes(F64(), sums[v], reinterpret_cast<uint8_t*>(lanes.data() + v * kLanes));
  }
  double total = 0;
  for (const double lane : lanes) total += lane;
  return total;
}

double dot_of_float32(const void* a, const void* b, size_t count) {
  return dot<float>(a, b, count);
}
double dot_of_float64(const void* a, const void* b, size_t count) {
  return dot<double>(a, b, count);
}

}  // namespace rueda::reduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rueda::reduce {

HWY_EXPORT(dot_of_float32);
HWY_EXPORT(dot_of_float64);

double dot_float32(const void* a, const void* b, size_t count) {
  return HWY_DYNAMIC_DISPATCH(dot_of_float32)(a, b, count);
}
double dot_float64(const void* a, const void* b, size_t count) {
  return HWY_DYNAMIC_DISPATCH(dot_of_float64)(a, b, count);
}

}  // namespace rueda::reduce
#endif  // HWY_ONCE
