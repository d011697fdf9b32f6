// Finds NaN and infinity by their bits, because only their exponent is all ones. So nothing depends
// on how a CPU treats subnormal or signalling operands.
#include <cstdint>
#include <cstring>

#include "daemon/base/check.h"
#include "daemon/reduce/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "daemon/reduce/cpu/nonfinite.cc"  // NOLINT
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "daemon/reduce/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rueda::reduce::HWY_NAMESPACE {

// The lowest bit of the exponent, added to an exponent of ones alone, carries into the sign's
// place. So one addition and two bit operations a vector tell, and nobody asks before the end of
// a block.
template <class T, T kExponent>
size_t find_exponent_of_ones(const uint8_t* values, size_t count) {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  constexpr T kLowest = kExponent & static_cast<T>(-kExponent);
  const D d;
  const hn::RebindToSigned<D> signed_d;
  const V exponent = hn::Set(d, kExponent);
  const V lowest = hn::Set(d, kLowest);
  const auto carry = [&](const uint8_t* from) HWY_ATTR {
    return hn::Add(hn::And(load_bytes(d, from), exponent), lowest);
  };
  const auto has_sign = [&](V v) HWY_ATTR {
    return !hn::AllFalse(signed_d, hn::Lt(hn::BitCast(signed_d, v), hn::Zero(signed_d)));
  };
  constexpr size_t kVectors = 8;
  const size_t lanes = hn::Lanes(d);
  const size_t step = lanes * sizeof(T);
  size_t at = 0;
  for (; count - at >= kVectors * lanes; at += kVectors * lanes) {
    const uint8_t* from = values + at * sizeof(T);
    const V v01 = hn::Or(carry(from), carry(from + step));
    const V v23 = hn::Or(carry(from + 2 * step), carry(from + 3 * step));
    const V v45 = hn::Or(carry(from + 4 * step), carry(from + 5 * step));
    const V v67 = hn::Or(carry(from + 6 * step), carry(from + 7 * step));
    if (has_sign(hn::Or(hn::Or(v01, v23), hn::Or(v45, v67)))) break;
  }
  for (; count - at >= lanes && !has_sign(carry(values + at * sizeof(T))); at += lanes) {
  }
  for (; at < count; ++at) {
    T bits;
    std::memcpy(&bits, values + at * sizeof(T), sizeof(T));
    if ((bits & kExponent) == kExponent) break;
  }
  return at;
}

size_t find_nonfinite_in(DType dtype, const uint8_t* values, size_t count) {
  switch (dtype) {
    case DType::kFloat16: return find_exponent_of_ones<uint16_t, 0x7c00>(values, count);
    case DType::kBFloat16: return find_exponent_of_ones<uint16_t, 0x7f80>(values, count);
    case DType::kFloat32: return find_exponent_of_ones<uint32_t, 0x7f800000>(values, count);
    case DType::kFloat64: return find_exponent_of_ones<uint64_t, 0x7ff0000000000000>(values, count);
    default: break;
  }
  RUEDA_CHECK(!"a floating dtype");
}

}  // namespace rueda::reduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rueda::reduce {

HWY_EXPORT(find_nonfinite_in);

size_t find_nonfinite(DType dtype, const void* values, size_t count) {
  const size_t components = components_of(dtype);
  return HWY_DYNAMIC_DISPATCH(find_nonfinite_in)(
             component_dtype(dtype), static_cast<const uint8_t*>(values), count * components) /
         components;
}

}  // namespace rueda::reduce
#endif  // HWY_ONCE
