// Defines the element types for the checker: how a stored element becomes a number and back. It is
// written apart from the daemon's own conversions, so that an error there cannot hide itself.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <rueda/rueda.h>

namespace rueda::bench {

// The lists leave out bool, which is no number. In the first one an element is one number.
inline constexpr rueda_dtype kRealDTypes[] = {
    RUEDA_FLOAT32, RUEDA_FLOAT64, RUEDA_FLOAT16, RUEDA_BFLOAT16, RUEDA_INT32,  RUEDA_INT64,
    RUEDA_INT8,    RUEDA_UINT8,   RUEDA_INT16,   RUEDA_UINT16,   RUEDA_UINT32, RUEDA_UINT64};
inline constexpr rueda_dtype kAllDTypes[] = {
    RUEDA_FLOAT32, RUEDA_FLOAT64, RUEDA_FLOAT16,   RUEDA_BFLOAT16,  RUEDA_INT32,
    RUEDA_INT64,   RUEDA_INT8,    RUEDA_UINT8,     RUEDA_INT16,     RUEDA_UINT16,
    RUEDA_UINT32,  RUEDA_UINT64,  RUEDA_COMPLEX64, RUEDA_COMPLEX128};
inline constexpr rueda_wire_dtype kAllWires[] = {RUEDA_WIRE_SAME, RUEDA_WIRE_FLOAT16,
                                                 RUEDA_WIRE_BFLOAT16};
inline constexpr rueda_op kAllOps[] = {RUEDA_SUM, RUEDA_AVERAGE, RUEDA_MIN, RUEDA_MAX,
                                       RUEDA_PRODUCT};

const char* to_string(rueda_dtype dtype);
const char* to_string(rueda_op op);
const char* to_string(rueda_wire_dtype wire);  // is "same", "float16" or "bfloat16"
// Returns the dtype of this name, or nullopt if the name is not known.
std::optional<rueda_dtype> dtype_from_string(std::string_view name);
std::optional<rueda_op> op_from_string(std::string_view name);
std::optional<rueda_wire_dtype> wire_from_string(std::string_view name);
size_t element_bytes(rueda_dtype dtype);
// Returns how many numbers an element is: a complex number is checked as its two components.
size_t components_of(rueda_dtype dtype);
// Returns whether the checker knows what the operator makes of this type. Of complex numbers it
// knows what goes component by component.
bool can_check(rueda_dtype dtype, rueda_op op);

// These round to nearest even; NaN stays NaN.
uint16_t float_to_half(float value);
float half_to_float(uint16_t half);
uint16_t float_to_bfloat16(float value);
float bfloat16_to_float(uint16_t half);

// Each type has: Storage (what lies in the buffer), Wide (the reference is computed in it),
// Accumulator (the daemon sums in it, daemon/reduce/kernels.h), kExactBits (integers up to
// 2^kExactBits are exact), kMaxExponent (2^kMaxExponent is the largest power of two).
// For the floats kUnitRoundoff bounds the relative error of one rounding, and kHalfTiny its
// absolute error where results are subnormal.
struct Float32 {
  using Storage = float;
  using Wide = double;
  using Accumulator = float;
  static constexpr bool kInteger = false;
  static constexpr int kExactBits = 24;
  static constexpr int kMaxExponent = 127;
  static constexpr long double kUnitRoundoff = 0x1p-24L;
  static constexpr long double kHalfTiny = 0x1p-150L;
  static Wide widen(Storage value) { return value; }
  static Storage narrow(Accumulator value) { return value; }
};

struct Float64 {
  using Storage = double;
  using Wide = long double;
  using Accumulator = double;
  static constexpr bool kInteger = false;
  static constexpr int kExactBits = 53;
  static constexpr int kMaxExponent = 1023;
  static constexpr long double kUnitRoundoff = 0x1p-53L;
  static constexpr long double kHalfTiny = 0x1p-1075L;
  static Wide widen(Storage value) { return value; }
  static Storage narrow(Accumulator value) { return value; }
};

struct Float16 {
  using Storage = uint16_t;
  using Wide = double;
  using Accumulator = float;
  static constexpr bool kInteger = false;
  static constexpr int kExactBits = 11;
  static constexpr int kMaxExponent = 15;
  static constexpr long double kUnitRoundoff = 0x1p-11L;
  static constexpr long double kHalfTiny = 0x1p-25L;
  static Wide widen(Storage value) { return half_to_float(value); }
  static Storage narrow(Accumulator value) { return float_to_half(value); }
};

struct BFloat16 {
  using Storage = uint16_t;
  using Wide = double;
  using Accumulator = float;
  static constexpr bool kInteger = false;
  static constexpr int kExactBits = 8;
  static constexpr int kMaxExponent = 127;
  static constexpr long double kUnitRoundoff = 0x1p-8L;
  static constexpr long double kHalfTiny = 0x1p-134L;
  static Wide widen(Storage value) { return bfloat16_to_float(value); }
  static Storage narrow(Accumulator value) { return float_to_bfloat16(value); }
};

template <class Integer, int kBits>
struct IntegerElement {
  using Storage = Integer;
  using Wide = std::conditional_t<std::is_signed_v<Integer>, int64_t, uint64_t>;
  using Accumulator = Integer;
  static constexpr bool kInteger = true;
  static constexpr int kExactBits = kBits;
  static constexpr int kMaxExponent = kBits;
  static Wide widen(Storage value) { return value; }
  static Storage narrow(Accumulator value) { return value; }
};
using Int32 = IntegerElement<int32_t, 30>;
using Int64 = IntegerElement<int64_t, 62>;
using Int8 = IntegerElement<int8_t, 6>;
using UInt8 = IntegerElement<uint8_t, 7>;
using Int16 = IntegerElement<int16_t, 14>;
using UInt16 = IntegerElement<uint16_t, 15>;
using UInt32 = IntegerElement<uint32_t, 31>;
using UInt64 = IntegerElement<uint64_t, 62>;

// Calls visitor.template operator()<E>() for the type of `dtype`, or of its components.
template <class Visitor>
auto with_element(rueda_dtype dtype, Visitor&& visitor) {
  switch (dtype) {
    case RUEDA_FLOAT64:
    case RUEDA_COMPLEX128: return visitor.template operator()<Float64>();
    case RUEDA_FLOAT16: return visitor.template operator()<Float16>();
    case RUEDA_BFLOAT16: return visitor.template operator()<BFloat16>();
    case RUEDA_INT32: return visitor.template operator()<Int32>();
    case RUEDA_INT64: return visitor.template operator()<Int64>();
    case RUEDA_INT8: return visitor.template operator()<Int8>();
    case RUEDA_UINT8: return visitor.template operator()<UInt8>();
    case RUEDA_INT16: return visitor.template operator()<Int16>();
    case RUEDA_UINT16: return visitor.template operator()<UInt16>();
    case RUEDA_UINT32: return visitor.template operator()<UInt32>();
    case RUEDA_UINT64: return visitor.template operator()<UInt64>();
    case RUEDA_BOOL:
    case RUEDA_COMPLEX64:
    case RUEDA_FLOAT32: break;
  }
  return visitor.template operator()<Float32>();
}

}  // namespace rueda::bench
