// The arithmetic of one element, for the fake device's loop and for the kernels of cuda/: both
// compile the same source, so that tests on a CPU see what a GPU computes. The rules are those of
// daemon/reduce/kernels.h. Both sides are compiled without fused multiply-adds.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "daemon/base/dtype.h"

#ifdef __CUDACC__
#include <cuda_fp16.h>
#define RUEDA_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define RUEDA_HOST_DEVICE inline
#endif

namespace rueda::gpu {

RUEDA_HOST_DEVICE uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
RUEDA_HOST_DEVICE float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// An element type says how a dtype lies in memory (Stored) and what type it is computed in (Value).
template <class T>
struct Plain {
  using Stored = T;
  using Value = T;
  static RUEDA_HOST_DEVICE Value load(Stored stored) { return stored; }
  static RUEDA_HOST_DEVICE Stored store(Value value) { return value; }
};

// A complex number is read and written as a whole.
template <class T>
struct alignas(2 * sizeof(T)) Complex {
  T real;
  T imaginary;
};

struct Bool {
  using Stored = uint8_t;
  using Value = uint8_t;
  static RUEDA_HOST_DEVICE Value load(Stored stored) { return stored != 0 ? 1 : 0; }
  static RUEDA_HOST_DEVICE Stored store(Value value) { return value; }
};

struct Brain {
  using Stored = uint16_t;
  using Value = float;
  static RUEDA_HOST_DEVICE Value load(Stored stored) { return float_of(uint32_t{stored} << 16); }
  // A NaN is not rounded: it could become an infinity, or carry into the sign.
  static RUEDA_HOST_DEVICE Stored store(Value value) {
    const uint32_t bits = bits_of(value);
    if (value != value) return static_cast<Stored>((bits >> 16) | 0x40);
    return static_cast<Stored>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
};

struct Half {
  using Stored = uint16_t;
  using Value = float;
#ifdef __CUDA_ARCH__
  static __device__ __forceinline__ Value load(Stored stored) {
    return __half2float(__ushort_as_half(stored));
  }
  static __device__ __forceinline__ Stored store(Value value) {
    return __half_as_ushort(__float2half_rn(value));
  }
#else
  static RUEDA_HOST_DEVICE Value load(Stored stored) {
    const uint32_t sign = (stored & 0x8000u) << 16;
    const uint32_t magnitude = stored & 0x7fffu;
    constexpr float kSmallest = 0x1p-24f;
    if (magnitude < 0x400) {
      return float_of(bits_of(static_cast<float>(magnitude) * kSmallest) | sign);
    }
    const uint32_t rebias = magnitude < 0x7c00 ? (127 - 15) << 23 : (255 - 31) << 23;
    return float_of(((magnitude << 13) + rebias) | sign);
  }
  static RUEDA_HOST_DEVICE Stored store(Value value) {
    const uint32_t bits = bits_of(value);
    const uint32_t sign = (bits >> 16) & 0x8000;
    const uint32_t magnitude = bits & 0x7fffffff;
    uint32_t out;
    if (magnitude > 0x7f800000) {
      out = 0x7e00;
    } else if (magnitude >= 0x477ff000) {  // This rounds to 2^16, which is too large.
      out = 0x7c00;
    } else if (magnitude < 0x38800000) {
      // One unit in the last place of 0.5f is the smallest float16, so the addition rounds.
      out = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
    } else {
      out = (magnitude - ((127 - 15) << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    }
    return static_cast<Stored>(sign | out);
  }
#endif
};

// Returns a (op) b. Sums and products of integers wrap; a NaN wins, and of two equal values the
// first is returned.
template <ReduceOp kOp, class V>
RUEDA_HOST_DEVICE V combine(V a, V b) {
  if constexpr (kOp == ReduceOp::kMin) {
    return b != b || b < a ? b : a;
  } else if constexpr (kOp == ReduceOp::kMax) {
    return b != b || b > a ? b : a;
  } else if constexpr (std::is_floating_point_v<V>) {
    return kOp == ReduceOp::kProduct ? a * b : a + b;
  } else {
    // What is narrower than int would become an int, whose product can overflow.
    using U = std::common_type_t<std::make_unsigned_t<V>, unsigned>;
    const U x = static_cast<U>(a);
    const U y = static_cast<U>(b);
    return static_cast<V>(kOp == ReduceOp::kProduct ? x * y : x + y);
  }
}

template <ReduceOp kOp, class T>
RUEDA_HOST_DEVICE Complex<T> combine(Complex<T> a, Complex<T> b) {
  static_assert(kOp == ReduceOp::kSum || kOp == ReduceOp::kProduct);
  if constexpr (kOp == ReduceOp::kSum) {
    return {a.real + b.real, a.imaginary + b.imaginary};
  } else {
    return {a.real * b.real - a.imaginary * b.imaginary,
            a.real * b.imaginary + a.imaginary * b.real};
  }
}

struct Scales {
  double prescale = 1.0;
  double postscale = 1.0;
  int64_t divisor = 1;
};

template <class T>
RUEDA_HOST_DEVICE T truncate_saturating(double x) {
  constexpr double kLowest = static_cast<double>(std::numeric_limits<T>::min());
  // A power of two. NOLINTNEXTLINE(bugprone-integer-division)
  constexpr double kEnd = 2.0 * static_cast<double>(std::numeric_limits<T>::max() / 2 + 1);
  if (x != x) return 0;
  if (x < kLowest) return std::numeric_limits<T>::min();
  return x < kEnd ? static_cast<T>(x) : std::numeric_limits<T>::max();
}

// Computes prescale * source, and finish().
template <class V, bool kIsFloating = std::is_floating_point_v<V>>
class Scaler {
 public:
  explicit RUEDA_HOST_DEVICE Scaler(const Scales& scales)
      : prescale_(static_cast<V>(scales.prescale)),
        postscale_(static_cast<V>(scales.postscale)),
        divisor_(static_cast<V>(scales.divisor)),
        is_divided_((scales.divisor & (scales.divisor - 1)) != 0) {
    if (!is_divided_) divisor_ = V(1) / divisor_;
  }
  RUEDA_HOST_DEVICE V source(V v) const { return v * prescale_; }
  RUEDA_HOST_DEVICE V finish(V v) const {
    const V product = v * postscale_;
    return is_divided_ ? product / divisor_ : product * divisor_;
  }

 private:
  V prescale_;
  V postscale_;
  V divisor_;  // It may be the divisor's reciprocal, which is exact for a power of two.
  bool is_divided_;
};

template <class V>
class Scaler<V, false> {
 public:
  explicit RUEDA_HOST_DEVICE Scaler(const Scales& scales) : scales_(scales) {}
  RUEDA_HOST_DEVICE V source(V v) const { return scaled(v, scales_.prescale); }
  RUEDA_HOST_DEVICE V finish(V v) const {
    const V product = scaled(v, scales_.postscale);
    if (scales_.divisor == 1) return product;
    return static_cast<V>(static_cast<Wide>(product) / static_cast<Wide>(scales_.divisor));
  }

 private:
  // Neither of the two widest types holds all values of the other.
  using Wide = std::conditional_t<std::is_signed_v<V>, int64_t, uint64_t>;

  static RUEDA_HOST_DEVICE V scaled(V v, double scale) {
    return scale == 1.0 ? v : truncate_saturating<V>(static_cast<double>(v) * scale);
  }
  Scales scales_;
};

// The scales of complex numbers are real.
template <class T>
class Scaler<Complex<T>, false> {
 public:
  explicit RUEDA_HOST_DEVICE Scaler(const Scales& scales) : component_(scales) {}
  RUEDA_HOST_DEVICE Complex<T> source(Complex<T> v) const {
    return {component_.source(v.real), component_.source(v.imaginary)};
  }
  RUEDA_HOST_DEVICE Complex<T> finish(Complex<T> v) const {
    return {component_.finish(v.real), component_.finish(v.imaginary)};
  }

 private:
  Scaler<T> component_;
};

// The types and the operator of one pass of a batch, known at compile time.
template <class SourceElement, class PartialElement, class DstElement, ReduceOp kTheOp>
struct Kind {
  using Source = SourceElement;
  using Partial = PartialElement;
  using Dst = DstElement;
  using Value = typename SourceElement::Value;
  static constexpr ReduceOp kOp = kTheOp;
};

}  // namespace rueda::gpu
