// Tests rounding, overflow and the values that are not ordinary numbers.
#include <random>

#include <gmock/gmock.h>

#include "tests/reduce/reference.h"

namespace rueda::reduce::testing {
namespace {

Buffer reduced(DType dtype, ReduceOp op, const std::vector<Buffer>& inputs) {
  Buffer out(dtype, inputs[0].count());
  const auto sources = pointers_to(inputs);
  reduce({.dtype = dtype, .op = op, .dst = out.data(), .sources = sources, .count = out.count()});
  return out;
}

// Returns the results of many copies of a pair, so that both the vector loop and the short last
// vector see it.
Buffer reduced_pair(DType dtype, ReduceOp op, double a, double b) {
  constexpr size_t kCount = 131;
  const std::vector<double> as(kCount, a), bs(kCount, b);
  return reduced(dtype, op, {Buffer::of(dtype, as), Buffer::of(dtype, bs)});
}

void expect_pair(DType dtype, ReduceOp op, double a, double b, double expected) {
  const Buffer out = reduced_pair(dtype, op, a, b);
  for (size_t i = 0; i < out.count(); ++i) {
    const double x = out.get(i);
    const bool is_same = std::isnan(expected)
                             ? std::isnan(x)
                             : x == expected && std::signbit(x) == std::signbit(expected);
    ASSERT_TRUE(is_same) << to_string(dtype) << " " << to_string(op) << " of " << a << " and " << b
                         << " gave " << x << " at " << i << ", expected " << expected;
  }
}

TEST(Numerics, NanInAnyInputGivesNan) {
  for_each_target([] {
    for (DType dtype : kFloatDTypes) {
      for (ReduceOp op : kOps) {
        expect_pair(dtype, op, kNan, 1, kNan);
        expect_pair(dtype, op, 1, kNan, kNan);
        expect_pair(dtype, op, kNan, kNan, kNan);
        expect_pair(dtype, op, -kInf, kNan, kNan);
        expect_pair(dtype, op, kNan, kInf, kNan);
      }
    }
  });
}

TEST(Numerics, NanSurvivesInputsThatFollow) {
  for_each_target([] {
    for (DType dtype : kFloatDTypes) {
      for (ReduceOp op : kOps) {
        for (size_t place = 0; place < 6; ++place) {
          std::vector<Buffer> inputs;
          for (size_t k = 0; k < 6; ++k) {
            const double value = k == place ? kNan : static_cast<double>(k);
            inputs.push_back(Buffer::of(dtype, std::vector(67, value)));
          }
          for (double x : reduced(dtype, op, inputs).values()) ASSERT_TRUE(std::isnan(x));
        }
      }
    }
  });
}

TEST(Numerics, InfinitiesFollowIeee) {
  for_each_target([] {
    for (DType dtype : kFloatDTypes) {
      expect_pair(dtype, ReduceOp::kSum, kInf, 1, kInf);
      expect_pair(dtype, ReduceOp::kSum, kInf, -kInf, kNan);
      expect_pair(dtype, ReduceOp::kSum, -kInf, -2, -kInf);
      expect_pair(dtype, ReduceOp::kMin, kInf, 3, 3);
      expect_pair(dtype, ReduceOp::kMin, kInf, -kInf, -kInf);
      expect_pair(dtype, ReduceOp::kMax, -kInf, 3, 3);
      expect_pair(dtype, ReduceOp::kMax, 3, kInf, kInf);
      expect_pair(dtype, ReduceOp::kProduct, kInf, -2, -kInf);
      expect_pair(dtype, ReduceOp::kProduct, kInf, 0, kNan);
    }
  });
}

TEST(Numerics, ZerosKeepTheirSign) {
  for_each_target([] {
    for (DType dtype : kFloatDTypes) {
      expect_pair(dtype, ReduceOp::kSum, -0.0, -0.0, -0.0);
      expect_pair(dtype, ReduceOp::kSum, -0.0, 0.0, 0.0);
      expect_pair(dtype, ReduceOp::kProduct, -0.0, 3, -0.0);
      expect_pair(dtype, ReduceOp::kMin, 0.0, -0.0, 0.0);
      expect_pair(dtype, ReduceOp::kMax, -0.0, 0.0, -0.0);
    }
  });
}

TEST(Numerics, DenormalsAreNotFlushed) {
  const auto smallest = [](DType dtype) {
    switch (dtype) {
      case DType::kFloat32: return 0x1p-149;
      case DType::kFloat64: return 0x1p-1074;
      case DType::kFloat16: return 0x1p-24;
      default: return 0x1p-133;
    }
  };
  for_each_target([&] {
    for (DType dtype : kFloatDTypes) {
      const double tiny = smallest(dtype);
      expect_pair(dtype, ReduceOp::kSum, tiny, tiny, 2 * tiny);
      expect_pair(dtype, ReduceOp::kSum, 3 * tiny, -tiny, 2 * tiny);
      expect_pair(dtype, ReduceOp::kMin, tiny, 0, 0);
      expect_pair(dtype, ReduceOp::kMax, tiny, 0, tiny);
      expect_pair(dtype, ReduceOp::kProduct, tiny, -4, -4 * tiny);
    }
  });
}

TEST(Numerics, SixteenBitSumsRoundToNearestEven) {
  for_each_target([] {
    expect_pair(DType::kFloat16, ReduceOp::kSum, 2048, 1, 2048);
    expect_pair(DType::kFloat16, ReduceOp::kSum, 2050, 1, 2052);
    expect_pair(DType::kFloat16, ReduceOp::kSum, 65504, 15, 65504);
    expect_pair(DType::kFloat16, ReduceOp::kSum, 65504, 16, kInf);
    expect_pair(DType::kFloat16, ReduceOp::kSum, -65504, -65504, -kInf);
    expect_pair(DType::kFloat16, ReduceOp::kProduct, 0x1p-13, 0x1p-12, 0);
    expect_pair(DType::kFloat16, ReduceOp::kProduct, 0x1p-13, 0x1.8p-12, 0x1p-24);
    expect_pair(DType::kBFloat16, ReduceOp::kSum, 256, 1, 256);
    expect_pair(DType::kBFloat16, ReduceOp::kSum, 258, 1, 260);
    expect_pair(DType::kBFloat16, ReduceOp::kSum, 0x1.fep127, 0x1p119, kInf);
    expect_pair(DType::kBFloat16, ReduceOp::kSum, 0x1.fep127, 0x1p118, 0x1.fep127);
  });
}

TEST(Numerics, SixteenBitSumsAreRoundedOnce) {
  for_each_target([] {
    // If the sum were rounded after each addition, 2048 + 1 + 1 would stay at 2048 (256 in
    // bfloat16).
    for (auto [dtype, big] : {std::pair{DType::kFloat16, 2048.0}, {DType::kBFloat16, 256.0}}) {
      const Buffer out =
          reduced(dtype, ReduceOp::kSum,
                  {Buffer::of(dtype, {big}), Buffer::of(dtype, {1}), Buffer::of(dtype, {1})});
      EXPECT_EQ(out.get(0), big + 2);
    }
  });
}

// x + -0 is x for every x: each of the 65,536 values goes through both conversions.
TEST(Numerics, EverySixteenBitValueSurvivesTheConversions) {
  for_each_target([] {
    for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
      Buffer all(dtype, 65536);
      for (uint32_t bits = 0; bits < 65536; ++bits) {
        const auto value = static_cast<uint16_t>(bits);
        std::memcpy(all.at(bits), &value, 2);
      }
      const Buffer zeros = Buffer::of(dtype, std::vector(65536, -0.0));
      const Buffer out = reduced(dtype, ReduceOp::kSum, {all, zeros});
      for (size_t i = 0; i < 65536; ++i) {
        if (std::isnan(all.get(i))) {
          ASSERT_TRUE(std::isnan(out.get(i))) << to_string(dtype) << " bits " << i;
        } else {
          ASSERT_EQ(std::memcmp(all.at(i), out.at(i), 2), 0) << to_string(dtype) << " bits " << i;
        }
      }
    }
  });
}

// The inputs are any bit patterns: the only roundings are those of float32 addition and the one at
// the end.
TEST(Numerics, SixteenBitSumsOfRandomBitsMatchFloat32) {
  for_each_target([] {
    std::mt19937 random(5);
    for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
      std::vector<Buffer> inputs(3, Buffer(dtype, 20001));
      for (Buffer& input : inputs) {
        for (size_t i = 0; i < input.count(); ++i) {
          const auto bits = static_cast<uint16_t>(random());
          std::memcpy(input.at(i), &bits, 2);
        }
      }
      const Buffer out = reduced(dtype, ReduceOp::kSum, inputs);
      for (size_t i = 0; i < out.count(); ++i) {
        float sum = static_cast<float>(inputs[0].get(i));
        sum += static_cast<float>(inputs[1].get(i));
        sum += static_cast<float>(inputs[2].get(i));
        uint16_t actual;
        std::memcpy(&actual, out.at(i), 2);
        const uint16_t expected = encode_bits(dtype == DType::kFloat16 ? kHalf : kBrain, sum);
        if (std::isnan(sum)) {
          ASSERT_TRUE(std::isnan(out.get(i)));
        } else {
          ASSERT_EQ(actual, expected) << to_string(dtype) << " sum " << sum << " at " << i;
        }
      }
    }
  });
}

// There are n - 1 additions, each off by at most half a unit of the running sum (which the sum of
// magnitudes bounds), and for the 16-bit types one more rounding of the result.
TEST(Numerics, RandomSumsStayWithinTheBound) {
  const auto bound = [](DType dtype, size_t n, long double magnitudes) -> long double {
    const long double additions = static_cast<long double>(n - 1) * magnitudes * 1.0001L;
    switch (dtype) {
      case DType::kFloat32: return additions * 0x1p-24L;
      case DType::kFloat64: return additions * 0x1p-53L;
      case DType::kFloat16: return additions * 0x1p-24L + magnitudes * 0x1p-11L + 0x1p-25L;
      default: return additions * 0x1p-24L + magnitudes * 0x1p-8L;
    }
  };
  for_each_target([&] {
    std::mt19937 random(6);
    std::normal_distribution<double> normal(0, 10);
    for (DType dtype : kFloatDTypes) {
      for (size_t n = 2; n <= 9; ++n) {
        std::vector<Buffer> inputs(n, Buffer(dtype, 1003));
        for (Buffer& input : inputs) {
          for (size_t i = 0; i < input.count(); ++i) input.set(i, normal(random));
        }
        const Buffer out = reduced(dtype, ReduceOp::kSum, inputs);
        for (size_t i = 0; i < out.count(); ++i) {
          long double sum = 0, magnitudes = 0;
          for (const Buffer& input : inputs) {
            sum += input.get(i);
            magnitudes += std::fabs(input.get(i));
          }
          ASSERT_LE(std::fabs(out.get(i) - sum), bound(dtype, n, magnitudes)) << to_string(dtype);
        }
      }
    }
  });
}

TEST(Numerics, SumsGoInTheOrderPartialThenSources) {
  for_each_target([] {
    const Buffer partial = Buffer::of(DType::kFloat32, std::vector(37, 0x1p60));
    const std::vector<Buffer> inputs{Buffer::of(DType::kFloat32, std::vector(37, 1.0)),
                                     Buffer::of(DType::kFloat32, std::vector(37, -0x1p60)),
                                     Buffer::of(DType::kFloat32, std::vector(37, 3.0))};
    const auto sources = pointers_to(inputs);
    Buffer out(DType::kFloat32, 37);
    reduce({.dst = out.data(), .partial = partial.data(), .sources = sources, .count = 37});
    EXPECT_THAT(out.values(), ::testing::Each(3.0));
  });
}

template <class T>
void check_integer_wrap(DType dtype) {
  using U = std::common_type_t<std::make_unsigned_t<T>, unsigned>;  // whose products wrap
  std::mt19937_64 random(7);
  constexpr size_t kInputs = 5, kCount = 1001;
  std::vector<Buffer> inputs(kInputs, Buffer(dtype, kCount));
  for (Buffer& input : inputs) {
    for (size_t i = 0; i < kCount; ++i) {
      T value = static_cast<T>(random());
      if (i % 10 == 0) value = std::numeric_limits<T>::min();
      if (i % 10 == 5) value = std::numeric_limits<T>::max();
      std::memcpy(input.at(i), &value, sizeof(T));
    }
  }
  for (ReduceOp op : kOps) {
    const Buffer out = reduced(dtype, op, inputs);
    for (size_t i = 0; i < kCount; ++i) {
      const auto value_at = [i](const Buffer& buffer) {
        T value;
        std::memcpy(&value, buffer.at(i), sizeof(T));
        return value;
      };
      T expected = value_at(inputs[0]);
      for (size_t k = 1; k < kInputs; ++k) {
        const T next = value_at(inputs[k]);
        switch (op) {
          case ReduceOp::kSum:
          case ReduceOp::kAverage: expected = static_cast<T>(U(expected) + U(next)); break;
          case ReduceOp::kProduct: expected = static_cast<T>(U(expected) * U(next)); break;
          case ReduceOp::kMin: expected = std::min(expected, next); break;
          case ReduceOp::kMax: expected = std::max(expected, next); break;
          case ReduceOp::kAdasum: break;
        }
      }
      ASSERT_EQ(value_at(out), expected) << to_string(op) << " at " << i;
    }
  }
}

TEST(Numerics, IntegersWrapAndCompareWithTheirSigns) {
  for_each_target([] {
    check_integer_wrap<int16_t>(DType::kInt16);
    check_integer_wrap<int32_t>(DType::kInt32);
    check_integer_wrap<int64_t>(DType::kInt64);
    check_integer_wrap<uint16_t>(DType::kUInt16);
    check_integer_wrap<uint32_t>(DType::kUInt32);
    check_integer_wrap<uint64_t>(DType::kUInt64);
  });
}

}  // namespace
}  // namespace rueda::reduce::testing
