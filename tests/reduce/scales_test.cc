// Tests what prescale, postscale and divisor do, and to which inputs.
#include <gmock/gmock.h>

#include "tests/reduce/reference.h"

namespace rueda::reduce::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

struct Scales {
  double prescale = 1.0;
  double postscale = 1.0;
  int64_t divisor = 1;
};

// Returns the results for 133 elements of each value: whole blocks, single vectors and a short one
// on the wide targets.
Buffer scaled(DType dtype, ReduceOp op, const std::vector<double>& source_values,
              const Scales& scales, const double* partial_value = nullptr) {
  constexpr size_t kCount = 133;
  std::vector<Buffer> inputs;
  for (double value : source_values)
    inputs.push_back(Buffer::of(dtype, std::vector(kCount, value)));
  const double filler = partial_value != nullptr ? *partial_value : 0.0;
  const Buffer partial = Buffer::of(dtype, std::vector(kCount, filler));
  const auto sources = pointers_to(inputs);
  Buffer out(dtype, kCount);
  reduce({.dtype = dtype,
          .op = op,
          .dst = out.data(),
          .partial = partial_value != nullptr ? partial.data() : nullptr,
          .sources = sources,
          .count = kCount,
          .prescale = scales.prescale,
          .postscale = scales.postscale,
          .divisor = scales.divisor});
  return out;
}

TEST(Scales, PrescaleAppliesToSourcesAndNotToThePartial) {
  const double partial = 100;
  for_each_target([&] {
    for (DType dtype : kDTypes) {
      const Scales scales{.prescale = 0.5};
      EXPECT_THAT(scaled(dtype, ReduceOp::kSum, {4, 6}, scales).values(), Each(5.0));
      EXPECT_THAT(scaled(dtype, ReduceOp::kSum, {4, 6}, scales, &partial).values(), Each(105.0));
      EXPECT_THAT(scaled(dtype, ReduceOp::kMax, {4, 6}, scales).values(), Each(3.0));
      EXPECT_THAT(scaled(dtype, ReduceOp::kMin, {4, 6}, scales, &partial).values(), Each(2.0));
      EXPECT_THAT(scaled(dtype, ReduceOp::kProduct, {4, 6}, scales).values(), Each(6.0));
      EXPECT_THAT(scaled(dtype, ReduceOp::kSum, {8}, scales).values(), Each(4.0));
    }
  });
}

TEST(Scales, PostscaleAndDivisorApplyToTheWholeOnce) {
  const double partial = 6;
  for_each_target([&] {
    for (DType dtype : kDTypes) {
      EXPECT_THAT(scaled(dtype, ReduceOp::kSum, {4, 6}, {.postscale = 2}, &partial).values(),
                  Each(32.0));
      EXPECT_THAT(scaled(dtype, ReduceOp::kAverage, {4, 8}, {.divisor = 3}, &partial).values(),
                  Each(6.0));
      EXPECT_THAT(scaled(dtype, ReduceOp::kAverage, {4, 6}, {.divisor = 4}, &partial).values(),
                  Each(4.0));
      EXPECT_THAT(scaled(dtype, ReduceOp::kSum, {4, 6},
                         {.prescale = 2, .postscale = 3, .divisor = 6}, &partial)
                      .values(),
                  Each(13.0));
      EXPECT_THAT(scaled(dtype, ReduceOp::kSum, {}, {.divisor = 2}, &partial).values(), Each(3.0));
    }
  });
}

TEST(Scales, FloatsDivideInsteadOfMultiplyingByAReciprocal) {
  for_each_target([] {
    for (int64_t divisor : {3, 5, 7, 10, 49, 8, 64}) {
      for (float x : {1.0f, 5.0f, 0x1.fffffep0f, 1e-40f}) {
        const Buffer out =
            scaled(DType::kFloat32, ReduceOp::kAverage, {x, 0}, {.divisor = divisor});
        EXPECT_THAT(out.values(), Each(double{x / static_cast<float>(divisor)}));
      }
    }
  });
}

TEST(Scales, ScalesOfOneChangeNoBits) {
  for_each_target([] {
    // Infinity and the smallest denormals would show a factor or a rounding.
    for (double x :
         {double{std::numeric_limits<float>::infinity()}, 0x1p-149, -0.0, 0x1.fffffep1}) {
      const Buffer plain = scaled(DType::kFloat32, ReduceOp::kSum, {x, -0.0}, {});
      const Buffer other =
          scaled(DType::kFloat32, ReduceOp::kSum, {x, -0.0}, {.prescale = 1 + 0x1p-40});
      EXPECT_EQ(std::memcmp(plain.data(), other.data(), plain.size_bytes()), 0);
    }
  });
}

TEST(Scales, IntegersTruncateTowardsZero) {
  for (DType dtype : {DType::kInt16, DType::kInt32, DType::kInt64}) {
    EXPECT_THAT(scaled(dtype, ReduceOp::kAverage, {7, 4}, {.divisor = 4}).values(), Each(2.0));
    EXPECT_THAT(scaled(dtype, ReduceOp::kAverage, {-7, -4}, {.divisor = 4}).values(), Each(-2.0));
    EXPECT_THAT(scaled(dtype, ReduceOp::kSum, {7, -9}, {.prescale = 0.5}).values(), Each(-1.0));
    EXPECT_THAT(scaled(dtype, ReduceOp::kSum, {-7, 2}, {.postscale = 0.5}).values(), Each(-2.0));
  }
}

TEST(Scales, IntegerAveragesAreExactBeyondTheMantissaOfADouble) {
  const int64_t big = (int64_t{1} << 62) + 3;
  int64_t out = 0;
  const std::vector<const void*> sources{&big};
  reduce({.dtype = DType::kInt64, .dst = &out, .sources = sources, .count = 1, .divisor = 5});
  EXPECT_EQ(out, big / 5);
}

TEST(Scales, UnsignedIntegersAreNoSignedOnes) {
  for (DType dtype : {DType::kUInt16, DType::kUInt32, DType::kUInt64}) {
    const double large = std::ldexp(1.0, 8 * static_cast<int>(element_bytes(dtype)) - 1);
    EXPECT_THAT(scaled(dtype, ReduceOp::kAverage, {large, 4}, {.divisor = 4}).values(),
                Each(large / 4 + 1));
    EXPECT_THAT(scaled(dtype, ReduceOp::kSum, {large}, {.prescale = 0.5}).values(),
                Each(large / 2));
    EXPECT_THAT(scaled(dtype, ReduceOp::kMax, {large, 4}, {.postscale = 0.25}).values(),
                Each(large / 4));
    EXPECT_THAT(scaled(dtype, ReduceOp::kMin, {large, 8}, {.prescale = 0.5}).values(), Each(4.0));
    EXPECT_THAT(scaled(dtype, ReduceOp::kSum, {large}, {.postscale = -1}).values(), Each(0.0));
  }
  const uint64_t big = (uint64_t{1} << 63) + 3;
  uint64_t out = 0;
  const std::vector<const void*> sources{&big};
  reduce({.dtype = DType::kUInt64, .dst = &out, .sources = sources, .count = 1, .divisor = 5});
  EXPECT_EQ(out, big / 5) << "an average is exact beyond the mantissa of a double";
  reduce({.dtype = DType::kUInt64, .dst = &out, .sources = sources, .count = 1, .prescale = 2});
  EXPECT_EQ(out, std::numeric_limits<uint64_t>::max());
}

TEST(Scales, SixteenBitIntegersSaturate) {
  EXPECT_THAT(scaled(DType::kInt16, ReduceOp::kSum, {20'000}, {.prescale = 2}).values(),
              Each(32'767.0));
  EXPECT_THAT(scaled(DType::kInt16, ReduceOp::kSum, {20'000}, {.prescale = -2}).values(),
              Each(-32'768.0));
  EXPECT_THAT(scaled(DType::kUInt16, ReduceOp::kSum, {40'000}, {.prescale = 2}).values(),
              Each(65'535.0));
}

TEST(Scales, IntegersSaturateWhenAScaleLeavesTheirRange) {
  using Limits = std::numeric_limits<int32_t>;
  for (auto [scale, expected] : {std::pair{1e10, double{Limits::max()}},
                                 {-1e10, double{Limits::min()}},
                                 {0x1p31, double{Limits::max()}},
                                 {-0x1p31, double{Limits::min()}},
                                 {kNan, 0.0}}) {
    EXPECT_THAT(scaled(DType::kInt32, ReduceOp::kMax, {1}, {.prescale = scale}).values(),
                Each(expected));
  }
  const int64_t one = 1;
  int64_t out = 0;
  const std::vector<const void*> sources{&one};
  reduce(
      {.dtype = DType::kInt64, .dst = &out, .sources = sources, .count = 1, .postscale = 0x1p63});
  EXPECT_EQ(out, std::numeric_limits<int64_t>::max());
}

TEST(Scales, SixteenBitTypesScaleBeforeTheirOnlyRounding) {
  // The sum overflows float16; its half does not.
  EXPECT_THAT(scaled(DType::kFloat16, ReduceOp::kAverage, {65504, 65504}, {.divisor = 2}).values(),
              Each(65504.0));
}

TEST(Scales, WorkInPlace) {
  Buffer mine = Buffer::of(DType::kBFloat16, {2, 4, 6});
  const Buffer partial = Buffer::of(DType::kBFloat16, {10, 20, 30});
  const std::vector<const void*> sources{mine.data()};
  reduce({.dtype = DType::kBFloat16,
          .op = ReduceOp::kAverage,
          .dst = mine.data(),
          .partial = partial.data(),
          .sources = sources,
          .count = 3,
          .divisor = 2});
  EXPECT_THAT(mine.values(), ElementsAre(6, 12, 18));
}

}  // namespace
}  // namespace rueda::reduce::testing
