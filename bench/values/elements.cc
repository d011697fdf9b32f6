#include "bench/values/elements.h"

namespace rueda::bench {

const char* to_string(rueda_dtype dtype) {
  switch (dtype) {
    case RUEDA_FLOAT32: return "float32";
    case RUEDA_FLOAT64: return "float64";
    case RUEDA_FLOAT16: return "float16";
    case RUEDA_BFLOAT16: return "bfloat16";
    case RUEDA_INT32: return "int32";
    case RUEDA_INT64: return "int64";
    case RUEDA_INT8: return "int8";
    case RUEDA_UINT8: return "uint8";
    case RUEDA_BOOL: return "bool";
    case RUEDA_INT16: return "int16";
    case RUEDA_UINT16: return "uint16";
    case RUEDA_UINT32: return "uint32";
    case RUEDA_UINT64: return "uint64";
    case RUEDA_COMPLEX64: return "complex64";
    case RUEDA_COMPLEX128: return "complex128";
  }
  return "unknown";
}

const char* to_string(rueda_op op) {
  switch (op) {
    case RUEDA_SUM: return "sum";
    case RUEDA_AVERAGE: return "average";
    case RUEDA_MIN: return "min";
    case RUEDA_MAX: return "max";
    case RUEDA_PRODUCT: return "product";
    case RUEDA_ADASUM: return "adasum";
  }
  return "unknown";
}

const char* to_string(rueda_wire_dtype wire) {
  switch (wire) {
    case RUEDA_WIRE_SAME: return "same";
    case RUEDA_WIRE_FLOAT16: return "float16";
    case RUEDA_WIRE_BFLOAT16: return "bfloat16";
  }
  return "unknown";
}

std::optional<rueda_wire_dtype> wire_from_string(std::string_view name) {
  for (rueda_wire_dtype wire : kAllWires) {
    if (name == to_string(wire)) return wire;
  }
  return std::nullopt;
}

std::optional<rueda_dtype> dtype_from_string(std::string_view name) {
  for (rueda_dtype dtype : kAllDTypes) {
    if (name == to_string(dtype)) return dtype;
  }
  return std::nullopt;
}

std::optional<rueda_op> op_from_string(std::string_view name) {
  for (rueda_op op : kAllOps) {
    if (name == to_string(op)) return op;
  }
  return std::nullopt;
}

size_t element_bytes(rueda_dtype dtype) {
  return components_of(dtype) *
         with_element(dtype, []<class E>() { return sizeof(typename E::Storage); });
}

size_t components_of(rueda_dtype dtype) {
  return dtype == RUEDA_COMPLEX64 || dtype == RUEDA_COMPLEX128 ? 2 : 1;
}

bool can_check(rueda_dtype dtype, rueda_op op) {
  return components_of(dtype) == 1 || op == RUEDA_SUM || op == RUEDA_AVERAGE;
}

uint16_t float_to_half(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  constexpr uint32_t kFirstThatRoundsToInfinity = 0x477ff000u;  // is 65520
  if (bits >= kFirstThatRoundsToInfinity) return static_cast<uint16_t>(sign | 0x7c00u);
  constexpr uint32_t kSmallestNormal = 0x38800000u;  // is 2^-14
  if (bits < kSmallestNormal) {
    // The spacing of floats in [0.5, 1) is that of binary16's subnormals, so the addition rounds.
    const float rounded = std::bit_cast<float>(bits) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(rounded) - 0x3f000000u));
  }
  const uint32_t odd = (bits >> 13) & 1u;
  bits -= 112u << 23;  // the exponent's bias is 15, not 127
  return static_cast<uint16_t>(sign | ((bits + 0xfffu + odd) >> 13));
}

float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t rest = static_cast<uint32_t>(half & 0x7fffu) << 13;
  constexpr uint32_t kInfinity = 0x0f800000u;
  if (rest >= kInfinity) return std::bit_cast<float>(sign | 0x70000000u | rest);
  // Multiplying moves the exponent's bias and makes subnormals normal.
  const float magnitude = std::bit_cast<float>(rest) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

uint16_t float_to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float bfloat16_to_float(uint16_t half) {
  return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
}

}  // namespace rueda::bench
