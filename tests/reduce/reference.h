// Provides a scalar model of the kernels that shares nothing with them, and the buffers to compare
// with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "daemon/reduce/kernels.h"

namespace rueda::reduce::testing {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
// This byte stands around memory that a kernel may write to.
inline constexpr uint8_t kGuard = 0xa5;

// These types hold products of nine small numbers; bytes have bytes_test.cc, and complex numbers
// complex_test.cc.
inline constexpr DType kDTypes[] = {
    DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16, DType::kInt32,
    DType::kInt64,   DType::kInt16,   DType::kUInt16,  DType::kUInt32,   DType::kUInt64};
inline constexpr DType kFloatDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16,
                                         DType::kBFloat16};
inline constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin,
                                    ReduceOp::kMax, ReduceOp::kProduct};

// Describes the layout of an IEEE binary format of at most 32 bits.
struct Format {
  int mantissa_bits;
  int bias;
};
inline constexpr Format kHalf{10, 15};
inline constexpr Format kBrain{7, 127};

inline double decode_bits(Format format, uint32_t bits, int total_bits) {
  const uint32_t ones = (1u << format.mantissa_bits) - 1;
  const int exponent_ones = 2 * format.bias + 1;
  const int exponent = static_cast<int>(bits >> format.mantissa_bits) & exponent_ones;
  const double fraction = bits & ones;
  const double sign = (bits >> (total_bits - 1)) != 0 ? -1.0 : 1.0;
  if (exponent == exponent_ones) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  const double significand = exponent == 0 ? fraction : fraction + ones + 1;
  const int scale = (exponent == 0 ? 1 : exponent) - format.bias - format.mantissa_bits;
  return sign * std::ldexp(significand, scale);
}

// Rounds to nearest even, as std::nearbyint does in the default rounding mode.
inline uint16_t encode_bits(Format format, double x) {
  const auto sign = static_cast<uint16_t>(std::signbit(x) ? 0x8000 : 0);
  const auto infinity = static_cast<uint16_t>((2 * format.bias + 1) << format.mantissa_bits);
  if (std::isnan(x)) return static_cast<uint16_t>(infinity | (1 << (format.mantissa_bits - 1)));
  if (std::isinf(x)) return sign | infinity;
  const double magnitude = std::fabs(x);
  if (magnitude == 0) return sign;
  const int smallest = 1 - format.bias;
  const int exponent = std::max(std::ilogb(magnitude), smallest);
  const auto units =
      static_cast<int64_t>(std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent)));
  // A carry out of the units runs into the exponent, which is what it should do.
  const int64_t bits = (int64_t{exponent - smallest} << format.mantissa_bits) + units;
  return bits >= infinity ? sign | infinity : static_cast<uint16_t>(sign | bits);
}

inline double decode(DType dtype, const uint8_t* at) {
  const auto as = [at]<class T>(T value) {
    std::memcpy(&value, at, sizeof(T));
    return value;
  };
  switch (dtype) {
    case DType::kFloat32: return as(float{});
    case DType::kFloat64: return as(double{});
    case DType::kFloat16: return decode_bits(kHalf, as(uint16_t{}), 16);
    case DType::kBFloat16: return decode_bits(kBrain, as(uint16_t{}), 16);
    case DType::kInt32: return as(int32_t{});
    case DType::kInt64: return static_cast<double>(as(int64_t{}));
    case DType::kInt8: return as(int8_t{});
    case DType::kUInt8:
    case DType::kBool: return as(uint8_t{});
    case DType::kInt16: return as(int16_t{});
    case DType::kUInt16: return as(uint16_t{});
    case DType::kUInt32: return as(uint32_t{});
    case DType::kUInt64: return static_cast<double>(as(uint64_t{}));
    case DType::kComplex64:
    case DType::kComplex128: break;  // A number is a component of theirs.
  }
  return 0;
}

inline bool is_unsigned(DType dtype) {
  return dtype == DType::kUInt8 || dtype == DType::kUInt16 || dtype == DType::kUInt32 ||
         dtype == DType::kUInt64;
}

inline void encode(DType dtype, double x, uint8_t* at) {
  const auto put = [at]<class T>(T value) { std::memcpy(at, &value, sizeof(T)); };
  switch (dtype) {
    case DType::kFloat32: return put(static_cast<float>(x));
    case DType::kFloat64: return put(x);
    case DType::kFloat16: return put(encode_bits(kHalf, x));
    case DType::kBFloat16: return put(encode_bits(kBrain, x));
    case DType::kInt32: return put(static_cast<int32_t>(x));
    case DType::kInt64: return put(static_cast<int64_t>(x));
    case DType::kInt8: return put(static_cast<int8_t>(x));
    case DType::kUInt8:
    case DType::kBool: return put(static_cast<uint8_t>(x));
    case DType::kInt16: return put(static_cast<int16_t>(x));
    case DType::kUInt16: return put(static_cast<uint16_t>(x));
    case DType::kUInt32: return put(static_cast<uint32_t>(x));
    case DType::kUInt64: return put(static_cast<uint64_t>(x));
    case DType::kComplex64:
    case DType::kComplex128: break;  // A number is a component of theirs.
  }
}

inline double combine(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage: return a + b;
    case ReduceOp::kMin: return std::isnan(a) || std::isnan(b) ? a + b : (b < a ? b : a);
    case ReduceOp::kMax: return std::isnan(a) || std::isnan(b) ? a + b : (b > a ? b : a);
    case ReduceOp::kProduct: return a * b;
    case ReduceOp::kAdasum: break;
  }
  return 0;
}

// Holds `count` elements at an odd place. Nothing follows the last one, so that the address
// sanitizer sees a read past the end.
class Buffer {
 public:
  Buffer(DType dtype, size_t count, size_t offset_bytes = 0)
      : dtype_(dtype),
        count_(count),
        offset_bytes_(offset_bytes),
        bytes_(offset_bytes + count * element_bytes(dtype)) {}
  static Buffer of(DType dtype, const std::vector<double>& values) {
    Buffer out(dtype, values.size());
    for (size_t i = 0; i < out.count_; ++i) out.set(i, values[i]);
    return out;
  }

  void* data() { return bytes_.data() + offset_bytes_; }
  const void* data() const { return bytes_.data() + offset_bytes_; }
  size_t count() const { return count_; }
  size_t size_bytes() const { return bytes_.size() - offset_bytes_; }
  uint8_t* at(size_t i) { return bytes_.data() + offset_bytes_ + i * element_bytes(dtype_); }
  const uint8_t* at(size_t i) const {
    return bytes_.data() + offset_bytes_ + i * element_bytes(dtype_);
  }
  double get(size_t i) const { return decode(dtype_, at(i)); }
  void set(size_t i, double value) { encode(dtype_, value, at(i)); }
  std::vector<double> values() const {
    std::vector<double> out;
    for (size_t i = 0; i < count_; ++i) out.push_back(get(i));
    return out;
  }

 private:
  DType dtype_;
  size_t count_;
  size_t offset_bytes_;
  std::vector<uint8_t> bytes_;
};

inline std::vector<const void*> pointers_to(const std::vector<Buffer>& buffers) {
  std::vector<const void*> out;
  for (const Buffer& buffer : buffers) out.push_back(buffer.data());
  return out;
}

// Runs `body` once for each instruction set that was compiled and that this machine has.
template <class Body>
void for_each_target(const Body& body) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    ASSERT_STREQ(simd_target(), hwy::TargetName(target));
    body();
    hwy::SetSupportedTargetsForTest(0);
  }
}

}  // namespace rueda::reduce::testing
