// Tests elements against the model of tests/reduce, which shares nothing with them.
#include "daemon/gpu/element.h"

#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "tests/reduce/reference.h"

namespace rueda::gpu {
namespace {

namespace model = reduce::testing;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class Element>
void expect_all_are_read(model::Format format) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto stored = static_cast<uint16_t>(bits);
    const double expected = model::decode_bits(format, bits, 16);
    const float value = Element::load(stored);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_TRUE(std::isnan(Element::load(Element::store(value)))) << bits;
    } else {
      ASSERT_EQ(bits_of(value), bits_of(static_cast<float>(expected))) << bits;
      ASSERT_EQ(Element::store(value), stored);
    }
  }
}

TEST(Element, EveryHalfIsReadAndWritten) { expect_all_are_read<Half>(model::kHalf); }
TEST(Element, EveryBrainIsReadAndWritten) { expect_all_are_read<Brain>(model::kBrain); }

template <class Element>
void expect_rounded(model::Format format) {
  std::mt19937 random(1);
  const auto check = [&](float value) {
    if (std::isnan(value)) return;
    ASSERT_EQ(Element::store(value), model::encode_bits(format, value)) << value;
  };
  for (int i = 0; i < 1'000'000; ++i) check(float_of(static_cast<uint32_t>(random())));
  // The values are ties, and their neighbours.
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float low = Element::load(static_cast<uint16_t>(bits));
    const float high = Element::load(static_cast<uint16_t>(bits + 1));
    const float middle = low / 2 + high / 2;
    for (const uint32_t near : {bits_of(middle) - 1, bits_of(middle), bits_of(middle) + 1}) {
      check(float_of(near));
    }
  }
  check(65519.996f);
  check(65520.0f);
}

TEST(Element, HalvesAreRoundedToNearestEven) { expect_rounded<Half>(model::kHalf); }
TEST(Element, BrainsAreRoundedToNearestEven) { expect_rounded<Brain>(model::kBrain); }

TEST(Element, AnyByteButZeroIsTrue) {
  EXPECT_EQ(Bool::load(0), 0);
  for (int byte = 1; byte < 256; ++byte) EXPECT_EQ(Bool::load(static_cast<uint8_t>(byte)), 1);
}

TEST(Element, NanWinsAndTheFirstOfEqualsStays) {
  for (const double nan_first : {true, false}) {
    const double a = nan_first ? kNan : 1;
    const double b = nan_first ? 1 : kNan;
    EXPECT_TRUE(std::isnan(combine<ReduceOp::kMin>(a, b)));
    EXPECT_TRUE(std::isnan(combine<ReduceOp::kMax>(a, b)));
  }
  EXPECT_TRUE(std::signbit(combine<ReduceOp::kMin>(-0.0, 0.0)));
  EXPECT_FALSE(std::signbit(combine<ReduceOp::kMin>(0.0, -0.0)));
  EXPECT_TRUE(std::signbit(combine<ReduceOp::kMax>(-0.0, 0.0)));
  EXPECT_FALSE(std::signbit(combine<ReduceOp::kMax>(0.0, -0.0)));
  EXPECT_EQ(combine<ReduceOp::kMax>(kInfinity, 1.0), kInfinity);
}

TEST(Element, IntegersWrap) {
  EXPECT_EQ(combine<ReduceOp::kSum>(INT32_MAX, int32_t{1}), INT32_MIN);
  EXPECT_EQ(combine<ReduceOp::kProduct>(INT64_MAX, int64_t{2}), -2);
  EXPECT_EQ(combine<ReduceOp::kSum>(int8_t{127}, int8_t{1}), -128);
  EXPECT_EQ(combine<ReduceOp::kProduct>(uint8_t{16}, uint8_t{17}), 16);
  EXPECT_EQ(combine<ReduceOp::kMin>(int8_t{-1}, int8_t{1}), -1);
  EXPECT_EQ(combine<ReduceOp::kProduct>(uint16_t{0xffff}, uint16_t{0xffff}), 1);
  EXPECT_EQ(combine<ReduceOp::kProduct>(int16_t{-0x8000}, int16_t{-1}), -0x8000);
  EXPECT_EQ(combine<ReduceOp::kSum>(UINT64_MAX, uint64_t{2}), 1u);
  EXPECT_EQ(combine<ReduceOp::kMax>(UINT64_MAX, uint64_t{1}), UINT64_MAX);
}

TEST(Element, ComplexNumbersAreAddedMultipliedAndScaled) {
  const Complex<float> a{3, 4};
  const Complex<float> b{1, -2};
  const auto sum = combine<ReduceOp::kSum>(a, b);
  EXPECT_EQ(sum.real, 4);
  EXPECT_EQ(sum.imaginary, 2);
  const auto product = combine<ReduceOp::kProduct>(a, b);
  EXPECT_EQ(product.real, 11);
  EXPECT_EQ(product.imaginary, -2);
  const Scaler<Complex<float>> third({.prescale = 0.1, .postscale = 2, .divisor = 3});
  EXPECT_EQ(third.source(a).imaginary, 4.0f * 0.1f);
  EXPECT_EQ(third.finish(a).real, 6.0f / 3.0f);
  EXPECT_EQ(third.finish(a).imaginary, 8.0f / 3.0f);
}

TEST(Element, UnsignedIntegersAreDividedAsSuch) {
  const Scaler<uint64_t> fifth({.divisor = 5});
  EXPECT_EQ(fifth.finish(UINT64_MAX), UINT64_MAX / 5);
  const Scaler<int16_t> third({.divisor = 3});
  EXPECT_EQ(third.finish(-32'768), -10'922);
  EXPECT_EQ(truncate_saturating<uint64_t>(0x1p64), UINT64_MAX);
  EXPECT_EQ(truncate_saturating<uint64_t>(0x1p63), uint64_t{1} << 63);
  EXPECT_EQ(truncate_saturating<uint64_t>(-1), 0u);
  EXPECT_EQ(truncate_saturating<uint16_t>(65'536), 65'535);
}

TEST(Element, ScaledIntegersTruncateAndSaturate) {
  EXPECT_EQ(truncate_saturating<int32_t>(-1.9), -1);
  EXPECT_EQ(truncate_saturating<int32_t>(1e300), INT32_MAX);
  EXPECT_EQ(truncate_saturating<int32_t>(-1e300), INT32_MIN);
  EXPECT_EQ(truncate_saturating<int32_t>(kNan), 0);
  EXPECT_EQ(truncate_saturating<uint8_t>(255.9), 255);
  EXPECT_EQ(truncate_saturating<uint8_t>(256), 255);
  EXPECT_EQ(truncate_saturating<uint8_t>(-1), 0);
  EXPECT_EQ(truncate_saturating<int64_t>(0x1p63), INT64_MAX);
  EXPECT_EQ(truncate_saturating<int64_t>(-0x1p63), INT64_MIN);
  const Scaler<int32_t> half({.prescale = 0.5, .postscale = 3, .divisor = 4});
  EXPECT_EQ(half.source(7), 3);
  EXPECT_EQ(half.finish(-5), -3);
}

TEST(Element, FloatsAreScaledInTheirOwnType) {
  const Scaler<float> third({.prescale = 0.1, .postscale = 2, .divisor = 3});
  EXPECT_EQ(third.source(3.0f), 3.0f * 0.1f);
  EXPECT_EQ(third.finish(5.0f), 10.0f / 3.0f);
  const Scaler<double> quarter({.divisor = 4});
  EXPECT_EQ(quarter.finish(5.0), 1.25);
}

}  // namespace
}  // namespace rueda::gpu
