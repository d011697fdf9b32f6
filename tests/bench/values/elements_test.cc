#include "bench/values/elements.h"

#include <limits>

#include <gtest/gtest.h>

namespace rueda::bench {
namespace {

TEST(ElementsTest, NamesGoBothWays) {
  for (rueda_dtype dtype : kAllDTypes) EXPECT_EQ(dtype_from_string(to_string(dtype)), dtype);
  for (rueda_op op : kAllOps) EXPECT_EQ(op_from_string(to_string(op)), op);
  EXPECT_FALSE(dtype_from_string("float8"));
  EXPECT_FALSE(op_from_string("median"));
}

TEST(ElementsTest, Bytes) {
  EXPECT_EQ(element_bytes(RUEDA_FLOAT32), 4u);
  EXPECT_EQ(element_bytes(RUEDA_FLOAT64), 8u);
  EXPECT_EQ(element_bytes(RUEDA_FLOAT16), 2u);
  EXPECT_EQ(element_bytes(RUEDA_BFLOAT16), 2u);
  EXPECT_EQ(element_bytes(RUEDA_INT32), 4u);
  EXPECT_EQ(element_bytes(RUEDA_INT64), 8u);
  EXPECT_EQ(element_bytes(RUEDA_INT16), 2u);
  EXPECT_EQ(element_bytes(RUEDA_UINT16), 2u);
  EXPECT_EQ(element_bytes(RUEDA_UINT32), 4u);
  EXPECT_EQ(element_bytes(RUEDA_UINT64), 8u);
  EXPECT_EQ(element_bytes(RUEDA_COMPLEX64), 8u);
  EXPECT_EQ(element_bytes(RUEDA_COMPLEX128), 16u);
}

TEST(ElementsTest, OfComplexNumbersTheCheckerKnowsSumsAndAverages) {
  for (rueda_op op : kAllOps) {
    const bool is_componentwise = op == RUEDA_SUM || op == RUEDA_AVERAGE;
    EXPECT_EQ(can_check(RUEDA_COMPLEX64, op), is_componentwise) << to_string(op);
    EXPECT_TRUE(can_check(RUEDA_UINT64, op)) << to_string(op);
  }
}

TEST(HalfTest, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = half_to_float(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(half_to_float(float_to_half(value))));
    } else {
      ASSERT_EQ(float_to_half(value), half) << value;
    }
    const float wide = bfloat16_to_float(half);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(wide))));
    } else {
      ASSERT_EQ(float_to_bfloat16(wide), half) << wide;
    }
  }
}

TEST(HalfTest, KnownValues) {
  EXPECT_EQ(half_to_float(0x3c00), 1.0f);
  EXPECT_EQ(half_to_float(0xc000), -2.0f);
  EXPECT_EQ(half_to_float(0x7bff), 65504.0f);
  EXPECT_EQ(half_to_float(0x0001), 0x1p-24f);
  EXPECT_EQ(half_to_float(0x7c00), std::numeric_limits<float>::infinity());
  EXPECT_EQ(bfloat16_to_float(0x3f80), 1.0f);
}

TEST(HalfTest, RoundsToNearestEven) {
  EXPECT_EQ(float_to_half(1.0f + 0x1p-11f), 0x3c00);      // a tie, which goes down to even
  EXPECT_EQ(float_to_half(1.0f + 3 * 0x1p-11f), 0x3c02);  // a tie, which goes up to even
  EXPECT_EQ(float_to_half(1.0f + 0x1p-11f + 0x1p-20f), 0x3c01);
  EXPECT_EQ(float_to_half(65519.0f), 0x7bff);
  EXPECT_EQ(float_to_half(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_half(0x1p-25f), 0x0000);  // a tie between 0 and the smallest number
  EXPECT_EQ(float_to_half(-0x1.8p-25f), 0x8001);
  EXPECT_EQ(float_to_bfloat16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(float_to_bfloat16(1.0f + 3 * 0x1p-8f), 0x3f82);
}

}  // namespace
}  // namespace rueda::bench
