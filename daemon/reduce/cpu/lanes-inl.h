// Reads each dtype into vector lanes, combines lanes and writes them back, once per Highway target.
// Its guard toggles, because foreach_target.h includes this file again for each target.
#if defined(RUEDA_REDUCE_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RUEDA_REDUCE_LANES_INL_H_
#undef RUEDA_REDUCE_LANES_INL_H_
#else
#define RUEDA_REDUCE_LANES_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include <hwy/highway.h>

#include "daemon/base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace rueda::reduce::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Highway's scalar target dereferences the pointer, which must then be aligned; memcpy need not.
template <class D>
HWY_INLINE hn::Vec<D> load_bytes(D d, const uint8_t* from) {
  using T = hn::TFromD<D>;
#if HWY_TARGET == HWY_SCALAR
  T lane;
  std::memcpy(&lane, from, sizeof(T));
  return hn::Set(d, lane);
#else
  return hn::LoadU(d, reinterpret_cast<const T*>(from));
#endif
}

template <class D>
HWY_INLINE void store_bytes([[maybe_unused]] D d, hn::Vec<D> v, uint8_t* to) {
  using T = hn::TFromD<D>;
#if HWY_TARGET == HWY_SCALAR
  const T lane = hn::GetLane(v);
  std::memcpy(to, &lane, sizeof(T));
#else
  hn::StoreU(v, d, reinterpret_cast<T*>(to));
#endif
}

// Writes the vector past the caches. `to` is aligned to the vector. The caller calls
// hwy::FlushStream() afterwards. Highway writes a whole register, so what fills only part of one is
// stored.
template <class D>
HWY_INLINE void stream_bytes(D d, hn::Vec<D> v, uint8_t* to) {
  if constexpr (hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) < 16) {
    store_bytes(d, v, to);
  } else {
    hn::Stream(v, d, reinterpret_cast<hn::TFromD<D>*>(to));
  }
}

// float32, float64 and the integers are computed in the type they are stored in.
template <class T>
struct NativeLanes {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  static constexpr size_t kBytes = sizeof(T);

  using StoredD = D;

  static HWY_INLINE V load(const uint8_t* from) { return load_bytes(D(), from); }
  static HWY_INLINE V pack(V v) { return v; }
};

// Any byte but 0 is true. Once bytes are 0 or 1, "or" is a maximum and "and" a minimum.
struct BoolLanes {
  using D = hn::ScalableTag<uint8_t>;
  using V = hn::Vec<D>;
  static constexpr size_t kBytes = 1;
  using StoredD = D;

  static HWY_INLINE V load(const uint8_t* from) {
    return hn::Min(load_bytes(D(), from), hn::Set(D(), 1));
  }
  static HWY_INLINE V pack(V v) { return v; }
};

// The two 16-bit types are float32 in the lanes. The bit patterns are int32 throughout: they are
// small or have their sign removed, and signed compares are the ones that every target has.
using F32 = hn::ScalableTag<float>;
using I32 = hn::RebindToSigned<F32>;
using U16 = hn::Rebind<uint16_t, F32>;
using VF32 = hn::Vec<F32>;
using VI32 = hn::Vec<I32>;
using VU16 = hn::Vec<U16>;

HWY_INLINE VI32 bits_of(VF32 v) { return hn::BitCast(I32(), v); }
HWY_INLINE VF32 float_of(VI32 v) { return hn::BitCast(F32(), v); }
HWY_INLINE VI32 constant(int32_t value) { return hn::Set(I32(), value); }

HWY_INLINE VI32 load_16_bits(const uint8_t* from) {
  return hn::PromoteTo(I32(), load_bytes(U16(), from));
}
HWY_INLINE VU16 pack_16_bits(VI32 v) { return hn::DemoteTo(U16(), v); }

struct BFloat16Lanes {
  using D = F32;
  using V = VF32;
  static constexpr size_t kBytes = 2;
  using StoredD = U16;

  static HWY_INLINE V load(const uint8_t* from) {
    return float_of(hn::ShiftLeft<16>(load_16_bits(from)));
  }

  // Highway's DemoteTo truncates, so the rounding is done here. A NaN must not be rounded: it
  // could carry over into the sign.
  static HWY_INLINE VU16 pack(V v) {
    const VI32 bits = bits_of(v);
    const VI32 magnitude = hn::And(bits, constant(0x7fffffff));
    const VI32 sign = hn::And(hn::ShiftRight<16>(bits), constant(0x8000));
    const VI32 odd = hn::And(hn::ShiftRight<16>(magnitude), constant(1));
    const VI32 rounded = hn::ShiftRight<16>(hn::Add(magnitude, hn::Add(odd, constant(0x7fff))));
    const VI32 quiet_nan = hn::Or(hn::ShiftRight<16>(magnitude), constant(0x40));
    const auto is_nan = hn::Gt(magnitude, constant(0x7f800000));
    return pack_16_bits(hn::Or(sign, hn::IfThenElse(is_nan, quiet_nan, rounded)));
  }
};

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
// These have conversion instructions that treat every value as IEEE 754 says.
struct Float16Lanes {
  using D = F32;
  using V = VF32;
  using F16 = hn::Rebind<hwy::float16_t, F32>;
  static constexpr size_t kBytes = 2;
  using StoredD = U16;

  static HWY_INLINE V load(const uint8_t* from) {
    return hn::PromoteTo(F32(), hn::BitCast(F16(), load_bytes(U16(), from)));
  }
  static HWY_INLINE VU16 pack(V v) { return hn::BitCast(U16(), hn::DemoteTo(F16(), v)); }
};
#else
// Highway's own conversions without such instructions know neither infinity nor NaN and truncate.
struct Float16Lanes {
  using D = F32;
  using V = VF32;
  static constexpr size_t kBytes = 2;
  using StoredD = U16;

  static HWY_INLINE V load(const uint8_t* from) {
    constexpr int32_t kBiasChange = (127 - 15) << 23;
    const VI32 half = load_16_bits(from);
    const VI32 sign = hn::ShiftLeft<16>(hn::And(half, constant(0x8000)));
    const VI32 magnitude = hn::And(half, constant(0x7fff));
    const VI32 normal = hn::Add(hn::ShiftLeft<13>(magnitude), constant(kBiasChange));
    const VI32 infinite_or_nan = hn::Add(normal, constant(kBiasChange));
    const VI32 subnormal =
        bits_of(hn::Mul(hn::ConvertTo(F32(), magnitude), hn::Set(F32(), 0x1p-24f)));
    VI32 bits = hn::IfThenElse(hn::Gt(magnitude, constant(0x7bff)), infinite_or_nan, normal);
    bits = hn::IfThenElse(hn::Lt(magnitude, constant(0x0400)), subnormal, bits);
    return float_of(hn::Or(sign, bits));
  }

  static HWY_INLINE VU16 pack(V v) {
    constexpr int32_t kBiasChange = (127 - 15) << 23;
    const VI32 bits = bits_of(v);
    const VI32 sign = hn::And(hn::ShiftRight<16>(bits), constant(0x8000));
    const VI32 magnitude = hn::And(bits, constant(0x7fffffff));
    const VI32 odd = hn::And(hn::ShiftRight<13>(magnitude), constant(1));
    const VI32 rebiased = hn::Sub(magnitude, constant(kBiasChange - 0xfff));
    const VI32 normal = hn::ShiftRight<13>(hn::Add(rebiased, odd));
    // One unit in the last place of 0.5f is the smallest float16, so the adder does the rounding.
    const VF32 half = hn::Set(F32(), 0.5f);
    const VI32 subnormal = hn::Sub(bits_of(hn::Add(float_of(magnitude), half)), bits_of(half));
    const VI32 quiet_nan =
        hn::Or(constant(0x7e00), hn::And(hn::ShiftRight<13>(magnitude), constant(0x3ff)));
    VI32 out = hn::IfThenElse(hn::Lt(magnitude, constant(0x38800000)), subnormal, normal);
    out = hn::IfThenElse(hn::Gt(magnitude, constant(0x477fffff)), constant(0x7c00), out);
    out = hn::IfThenElse(hn::Gt(magnitude, constant(0x7f800000)), quiet_nan, out);
    return pack_16_bits(hn::Or(sign, out));
  }
};
#endif

// Returns a (op) b. Min and max spell out what they do with NaN, because Highway's differ by
// target; of equal values (0 and -0) the first stays.
template <ReduceOp kOp, class V>
HWY_INLINE V combine(V a, V b) {
  using T = hn::TFromV<V>;
  if constexpr (kOp == ReduceOp::kSum) {
    return hn::Add(a, b);
  } else if constexpr (kOp == ReduceOp::kProduct) {
    return hn::Mul(a, b);
  } else if constexpr (!hwy::IsFloat<T>()) {
    return kOp == ReduceOp::kMin ? hn::Min(a, b) : hn::Max(a, b);
  } else {
    const auto is_better = kOp == ReduceOp::kMin ? hn::Lt(b, a) : hn::Gt(b, a);
    return hn::IfThenElse(hn::IsNaN(b), b, hn::IfThenElse(is_better, b, a));
  }
}

}  // namespace rueda::reduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RUEDA_REDUCE_LANES_INL_H_
