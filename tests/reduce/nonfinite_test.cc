// Tests that NaN and infinity are found wherever they are, on every instruction set, and nothing
// else is.
#include <string>

#include "tests/reduce/reference.h"

namespace rueda::reduce::testing {
namespace {

// Holds bits as an integer of the element's size.
struct Bits {
  const char* name;
  uint64_t float16, bfloat16, float32, float64;

  uint64_t of(DType dtype) const {
    switch (dtype) {
      case DType::kFloat16: return float16;
      case DType::kBFloat16: return bfloat16;
      case DType::kFloat32: return float32;
      default: return float64;
    }
  }
};

constexpr Bits kNotFinite[] = {
    {"infinity", 0x7c00, 0x7f80, 0x7f800000, 0x7ff0000000000000},
    {"-infinity", 0xfc00, 0xff80, 0xff800000, 0xfff0000000000000},
    {"quiet NaN", 0x7e00, 0x7fc0, 0x7fc00000, 0x7ff8000000000000},
    {"negative NaN", 0xfe01, 0xffc1, 0xffc00001, 0xfff8000000000001},
    {"signalling NaN", 0x7c01, 0x7f81, 0x7f800001, 0x7ff0000000000001},
};
constexpr Bits kFinite[] = {
    {"largest", 0x7bff, 0x7f7f, 0x7f7fffff, 0x7fefffffffffffff},
    {"-largest", 0xfbff, 0xff7f, 0xff7fffff, 0xffefffffffffffff},
    {"smallest subnormal", 0x0001, 0x0001, 0x00000001, 0x0000000000000001},
    {"largest subnormal", 0x03ff, 0x007f, 0x007fffff, 0x000fffffffffffff},
    {"-largest subnormal", 0x83ff, 0x807f, 0x807fffff, 0x800fffffffffffff},
    {"-0", 0x8000, 0x8000, 0x80000000, 0x8000000000000000},
    {"1", 0x3c00, 0x3f80, 0x3f800000, 0x3ff0000000000000},
    {"all but one bit of the exponent", 0x7800, 0x7f00, 0x7f000000, 0x7fe0000000000000},
};

// Stores bits as little-endian, as everything here does.
void put(Buffer& buffer, size_t i, uint64_t bits) {
  std::memcpy(buffer.at(i), &bits, buffer.size_bytes() / buffer.count());
}

Buffer finite_values(DType dtype, size_t count, size_t offset_bytes) {
  Buffer buffer(dtype, count, offset_bytes);
  for (size_t i = 0; i < count; ++i) put(buffer, i, kFinite[i % std::size(kFinite)].of(dtype));
  return buffer;
}

// The longest vectors have 32 elements of 16 bits, and a block eight of them.
constexpr size_t kCount = 2 * 8 * 32 + 37;

TEST(FindNonfinite, FindsNothingInFiniteValuesOfAnyLength) {
  for_each_target([] {
    for (const DType dtype : kFloatDTypes) {
      for (const size_t offset_bytes : {size_t{0}, size_t{1}, element_bytes(dtype)}) {
        for (size_t count = 0; count <= kCount; ++count) {
          const Buffer values = finite_values(dtype, count, offset_bytes);
          ASSERT_EQ(find_nonfinite(dtype, values.data(), count), count) << to_string(dtype);
        }
      }
    }
  });
}

TEST(FindNonfinite, FindsEachKindAtEveryPlaceOfAllLengths) {
  for_each_target([] {
    for (const DType dtype : kFloatDTypes) {
      for (const size_t count : {size_t{1}, size_t{7}, size_t{33}, size_t{64}, kCount}) {
        Buffer values = finite_values(dtype, count, 1);
        for (size_t i = 0; i < count; ++i) {
          const uint64_t before = kFinite[i % std::size(kFinite)].of(dtype);
          for (const Bits& bad : kNotFinite) {
            put(values, i, bad.of(dtype));
            ASSERT_EQ(find_nonfinite(dtype, values.data(), count), i)
                << bad.name << " in " << to_string(dtype) << " of " << count;
          }
          put(values, i, before);
        }
      }
    }
  });
}

TEST(FindNonfinite, FindsTheFirstOfSeveral) {
  for_each_target([] {
    for (const DType dtype : kFloatDTypes) {
      Buffer values = finite_values(dtype, kCount, 0);
      for (size_t i = kCount; i-- > 0;) {
        put(values, i, kNotFinite[i % std::size(kNotFinite)].of(dtype));
        ASSERT_EQ(find_nonfinite(dtype, values.data(), kCount), i) << to_string(dtype);
      }
    }
  });
}

TEST(FindNonfinite, DoesNotLookPastTheEnd) {
  for (const DType dtype : kFloatDTypes) {
    Buffer values = finite_values(dtype, kCount, 0);
    put(values, 100, kNotFinite[0].of(dtype));
    EXPECT_EQ(find_nonfinite(dtype, values.data(), 100), 100u);
    EXPECT_EQ(find_nonfinite(dtype, values.data(), 101), 100u);
  }
}

}  // namespace
}  // namespace rueda::reduce::testing
