// Tests sums of float32 that travel as float16 or bfloat16: rounded where they leave, widened where
// they arrive, and float32 between.
#include <random>

#include <gmock/gmock.h>

#include "tests/reduce/reference.h"

namespace rueda::reduce::testing {
namespace {

constexpr DType kRounded[] = {DType::kFloat16, DType::kBFloat16};
constexpr size_t kCounts[] = {1, 2, 3, 7, 15, 16, 17, 31, 33, 63, 64, 65, 257, 1000, 4097};

Format format_of(DType dtype) { return dtype == DType::kFloat16 ? kHalf : kBrain; }

// Returns a value of any magnitude that the type has, and now and then a larger one.
double any_value(DType rounded, std::mt19937& random) {
  const int range = rounded == DType::kFloat16 ? 17 : 40;
  const double fraction = std::uniform_real_distribution<double>(-1, 1)(random);
  return static_cast<float>(
      std::ldexp(fraction, static_cast<int>(random() % (2u * range + 12)) - range - 10));
}

// Returns the result of adding in float32, in the order of the kernels, and of rounding at the end.
uint16_t expected_bits(DType rounded, ReduceOp op, const std::vector<float>& inputs, float prescale,
                       bool has_partial, float postscale, float divisor) {
  float sum = has_partial ? inputs[0] : inputs[0] * prescale;
  for (size_t k = 1; k < inputs.size(); ++k) {
    sum = static_cast<float>(combine(op, sum, inputs[k] * prescale));
  }
  return encode_bits(format_of(rounded), sum * postscale / divisor);
}

struct Float32Scales {
  float prescale, postscale;
  int64_t divisor;
};

void check_once(DType rounded, ReduceOp op, size_t source_count, bool has_partial, size_t count,
                size_t offset, const Float32Scales& scales, std::mt19937& random) {
  std::vector<Buffer> sources;
  for (size_t k = 0; k < source_count; ++k) {
    Buffer& source = sources.emplace_back(DType::kFloat32, count, offset == 0 ? 0 : offset + k);
    for (size_t i = 0; i < count; ++i) source.set(i, any_value(rounded, random));
  }
  Buffer partial(rounded, count, offset);
  for (size_t i = 0; i < count; ++i) partial.set(i, any_value(rounded, random));

  const auto pointers = pointers_to(sources);
  std::vector<uint8_t> out(offset + count * 2 + 64, kGuard);
  reduce({.sum_dtype = rounded,
          .op = op,
          .dst = out.data() + offset,
          .partial = has_partial ? partial.data() : nullptr,
          .sources = pointers,
          .count = count,
          .prescale = scales.prescale,
          .postscale = scales.postscale,
          .divisor = scales.divisor});
  for (size_t i = 0; i < count; ++i) {
    std::vector<float> inputs;
    if (has_partial) inputs.push_back(static_cast<float>(partial.get(i)));
    for (const Buffer& source : sources) inputs.push_back(static_cast<float>(source.get(i)));
    uint16_t got = 0;
    std::memcpy(&got, out.data() + offset + i * 2, 2);
    const uint16_t want = expected_bits(rounded, op, inputs, scales.prescale, has_partial,
                                        scales.postscale, static_cast<float>(scales.divisor));
    const double value = decode_bits(format_of(rounded), want, 16);
    if (std::isnan(value) && std::isnan(decode_bits(format_of(rounded), got, 16))) continue;
    ASSERT_EQ(got, want) << to_string(rounded) << " " << to_string(op) << ", " << source_count
                         << " sources, partial " << has_partial << ", element " << i << " of "
                         << count << ", " << value;
  }
  for (size_t i = 0; i < offset; ++i) ASSERT_EQ(out[i], kGuard) << "before dst";
  for (size_t i = out.size() - 64; i < out.size(); ++i) ASSERT_EQ(out[i], kGuard) << "behind dst";
}

TEST(Rounded, SumsAreFloat32AndAreRoundedOnceAtTheEnd) {
  constexpr Float32Scales kScales[] = {{1, 1, 1}, {1, 1, 4}, {0.3F, 1, 1}, {1.7F, 0.9F, 3}};
  for_each_target([&] {
    std::mt19937 random(11);
    for (const DType rounded : kRounded) {
      for (const ReduceOp op : kOps) {
        for (const size_t count : kCounts) {
          for (const bool has_partial : {false, true}) {
            for (const size_t sources : {1, 2, 3, 5}) {
              const Float32Scales& scales = kScales[random() % 4];
              check_once(rounded, op, sources, has_partial, count, random() % 4, scales, random);
            }
          }
        }
      }
    }
  });
}

TEST(Rounded, InPlaceOfThePartial) {
  for (const DType rounded : kRounded) {
    for (const size_t count : {1, 17, 64, 1000}) {
      Buffer slot = Buffer::of(rounded, std::vector<double>(count, 3));
      const Buffer own = Buffer::of(DType::kFloat32, std::vector<double>(count, 0.25));
      const std::vector<const void*> sources{own.data(), own.data()};
      reduce({.sum_dtype = rounded,
              .dst = slot.data(),
              .partial = slot.data(),
              .sources = sources,
              .count = count});
      EXPECT_THAT(slot.values(), ::testing::Each(3.5));
    }
  }
}

TEST(Rounded, APartialAloneStaysAsItIs) {
  for (const DType rounded : kRounded) {
    const Buffer partial = Buffer::of(rounded, {1, -2, 0.5, kInf});
    Buffer out(rounded, 4);
    reduce({.sum_dtype = rounded, .dst = out.data(), .partial = partial.data(), .count = 4});
    EXPECT_EQ(out.values(), partial.values());
  }
}

TEST(Rounded, WhatIsTooLargeForFloat16BecomesInfinite) {
  for_each_target([] {
    const Buffer large = Buffer::of(DType::kFloat32, std::vector<double>(35, -40'000));
    const std::vector<const void*> twice{large.data(), large.data()};
    Buffer out(DType::kFloat16, 35);
    reduce({.sum_dtype = DType::kFloat16, .dst = out.data(), .sources = twice, .count = 35});
    EXPECT_THAT(out.values(), ::testing::Each(-kInf));
    // It does not overflow if it is small again before it is rounded.
    reduce({.sum_dtype = DType::kFloat16,
            .dst = out.data(),
            .sources = twice,
            .count = 35,
            .divisor = 2});
    EXPECT_THAT(out.values(), ::testing::Each(-40'000));
    Buffer brain(DType::kBFloat16, 35);
    reduce({.sum_dtype = DType::kBFloat16, .dst = brain.data(), .sources = twice, .count = 35});
    EXPECT_THAT(brain.values(), ::testing::Each(-79'872));
  });
}

TEST(Rounded, NanAndInfinityTravel) {
  for_each_target([] {
    for (const DType rounded : kRounded) {
      for (const ReduceOp op : kOps) {
        const std::vector<double> some(33, std::numeric_limits<double>::quiet_NaN());
        const Buffer nan = Buffer::of(DType::kFloat32, some);
        const Buffer one = Buffer::of(rounded, std::vector<double>(33, 1));
        const std::vector<const void*> sources{nan.data()};
        Buffer out(rounded, 33);
        reduce({.sum_dtype = rounded,
                .op = op,
                .dst = out.data(),
                .partial = one.data(),
                .sources = sources,
                .count = 33});
        for (const double value : out.values()) ASSERT_TRUE(std::isnan(value)) << to_string(op);
      }
      const Buffer infinite = Buffer::of(DType::kFloat32, std::vector<double>(33, -kInf));
      const std::vector<const void*> sources{infinite.data()};
      Buffer out(rounded, 33);
      reduce({.sum_dtype = rounded, .dst = out.data(), .sources = sources, .count = 33});
      EXPECT_THAT(out.values(), ::testing::Each(-kInf));
    }
  });
}

// The test takes each of the 65,536 values, at any place, to several destinations.
TEST(Rounded, WideningIsExact) {
  for_each_target([] {
    for (const DType rounded : kRounded) {
      for (const size_t count : {size_t{1}, size_t{67}, size_t{5000}, size_t{65'536}}) {
        Buffer all(rounded, count, 2);
        for (size_t i = 0; i < count; ++i) {
          const auto bits = static_cast<uint16_t>(i * (65'536 / count));
          std::memcpy(all.at(i), &bits, 2);
        }
        Buffer first(DType::kFloat32, count, 1);
        Buffer second(DType::kFloat32, count, 3);
        void* const destinations[] = {first.data(), second.data()};
        widen(destinations, all.data(), rounded, count);
        for (size_t i = 0; i < count; ++i) {
          const double value = all.get(i);
          ASSERT_EQ(std::memcmp(first.at(i), second.at(i), 4), 0);
          if (std::isnan(value)) {
            ASSERT_TRUE(std::isnan(first.get(i)));
          } else {
            ASSERT_EQ(first.get(i), value) << to_string(rounded) << " at " << i;
            ASSERT_EQ(std::signbit(first.get(i)), std::signbit(value));
          }
        }
      }
    }
  });
}

TEST(RoundedDeathTest, OnlyFloat32IsRounded) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  Buffer out = Buffer::of(DType::kFloat64, {1});
  const std::vector<const void*> sources{out.data()};
  EXPECT_DEATH(reduce({.dtype = DType::kFloat64,
                       .sum_dtype = DType::kBFloat16,
                       .dst = out.data(),
                       .sources = sources,
                       .count = 1}),
               "is_rounding_of");
}

}  // namespace
}  // namespace rueda::reduce::testing
