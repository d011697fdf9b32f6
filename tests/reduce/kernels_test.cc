// Tests every dtype, operator, number of inputs, length and alignment against the scalar model.
#include "daemon/reduce/kernels.h"

#include <random>
#include <string>
#include <tuple>
#include <utility>

#include "tests/reduce/reference.h"

namespace rueda::reduce::testing {
namespace {

constexpr size_t kCounts[] = {0, 1, 2, 3, 7, 15, 16, 17, 31, 33, 63, 64, 65, 1000, 4097};

// Returns a value so small that nine of them and a partial stay exact even in bfloat16's eight
// bits.
double exact_value(DType dtype, ReduceOp op, std::mt19937& random) {
  if (op == ReduceOp::kProduct) {
    return std::vector{1.0, 2.0, -1.0, -2.0}[random() % (is_unsigned(dtype) ? 2 : 4)];
  }
  return static_cast<double>(random() % 7) - (is_unsigned(dtype) ? 0.0 : 3.0);
}

// Holds the inputs of one call, and what the model makes of them.
struct Inputs {
  std::vector<Buffer> sources;
  std::vector<Buffer> partial;  // is empty or has one

  Inputs(DType dtype, ReduceOp op, size_t source_count, bool has_partial, size_t count,
         size_t offset_bytes, std::mt19937& random) {
    for (size_t k = 0; k < source_count + (has_partial ? 1 : 0); ++k) {
      Buffer buffer(dtype, count, offset_bytes == 0 ? 0 : offset_bytes + k);
      for (size_t i = 0; i < count; ++i) buffer.set(i, exact_value(dtype, op, random));
      (k < source_count ? sources : partial).push_back(std::move(buffer));
    }
  }

  double expected(ReduceOp op, size_t i) const {
    double value = partial.empty() ? sources[0].get(i) : partial[0].get(i);
    for (size_t k = partial.empty() ? 1 : 0; k < sources.size(); ++k) {
      value = combine(op, value, sources[k].get(i));
    }
    return value;
  }
};

void check_once(DType dtype, ReduceOp op, size_t source_count, bool has_partial, size_t count,
                size_t offset_bytes, std::mt19937& random) {
  const Inputs inputs(dtype, op, source_count, has_partial, count, offset_bytes, random);
  const auto sources = pointers_to(inputs.sources);
  std::vector<uint8_t> out(offset_bytes + count * element_bytes(dtype) + 64, kGuard);
  reduce({.dtype = dtype,
          .op = op,
          .dst = out.data() + offset_bytes,
          .partial = has_partial ? inputs.partial[0].data() : nullptr,
          .sources = sources,
          .count = count});
  for (size_t i = 0; i < count; ++i) {
    ASSERT_EQ(decode(dtype, out.data() + offset_bytes + i * element_bytes(dtype)),
              inputs.expected(op, i))
        << to_string(dtype) << " " << to_string(op) << " sources " << source_count << " partial "
        << has_partial << " count " << count << " offset " << offset_bytes << " element " << i;
  }
  for (size_t i = 0; i < offset_bytes; ++i) ASSERT_EQ(out[i], kGuard) << "before dst";
  for (size_t i = out.size() - 64; i < out.size(); ++i) ASSERT_EQ(out[i], kGuard) << "behind dst";
}

class Kernels : public ::testing::TestWithParam<std::tuple<DType, ReduceOp>> {};

TEST_P(Kernels, MatchTheModelExactlyOnSmallIntegers) {
  const auto [dtype, op] = GetParam();
  std::mt19937 random(1);
  for (size_t count : kCounts) {
    for (size_t source_count = 1; source_count <= 9; ++source_count) {
      for (bool has_partial : {false, true}) {
        for (size_t offset_bytes : {0, 1, 6}) {
          check_once(dtype, op, source_count, has_partial, count, offset_bytes, random);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(Kernels, MatchTheModelOnEveryTarget) {
  const auto [dtype, op] = GetParam();
  for_each_target([dtype = dtype, op = op] {
    std::mt19937 random(2);
    for (size_t count : {1, 5, 17, 65, 257}) {
      for (size_t source_count : {1, 2, 3, 4, 6}) {
        for (bool has_partial : {false, true}) {
          check_once(dtype, op, source_count, has_partial, count, 3, random);
        }
      }
    }
  });
}

TEST_P(Kernels, WriteOverAnyInputInPlace) {
  const auto [dtype, op] = GetParam();
  std::mt19937 random(3);
  for (size_t count : {1, 17, 64, 1000}) {
    for (size_t source_count : {1, 2, 3, 4, 5}) {
      for (size_t target = 0; target <= source_count; ++target) {
        Inputs inputs(dtype, op, source_count, true, count, 1, random);
        const Inputs before = inputs;
        Buffer& dst = target == source_count ? inputs.partial[0] : inputs.sources[target];
        const auto sources = pointers_to(inputs.sources);
        reduce({.dtype = dtype,
                .op = op,
                .dst = dst.data(),
                .partial = inputs.partial[0].data(),
                .sources = sources,
                .count = count});
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(dst.get(i), before.expected(op, i));
      }
    }
  }
}

TEST_P(Kernels, KeepTheirOnlyInput) {
  const auto [dtype, op] = GetParam();
  const double sign = is_unsigned(dtype) ? 1 : -1;
  Buffer only = Buffer::of(dtype, {1, sign * 2, 3, 0, sign});
  const std::vector<double> before = only.values();
  reduce({.dtype = dtype, .op = op, .dst = only.data(), .partial = only.data(), .count = 5});
  EXPECT_EQ(only.values(), before);
  const std::vector<const void*> sources{only.data()};
  reduce({.dtype = dtype, .op = op, .dst = only.data(), .sources = sources, .count = 5});
  EXPECT_EQ(only.values(), before);
}

INSTANTIATE_TEST_SUITE_P(All, Kernels,
                         ::testing::Combine(::testing::ValuesIn(kDTypes),
                                            ::testing::ValuesIn(kOps)),
                         [](const auto& test) {
                           return std::string(to_string(std::get<0>(test.param))) + "_" +
                                  to_string(std::get<1>(test.param));
                         });

TEST(Reduce, TouchesNothingWhenThereIsNothingToDo) {
  reduce({.dtype = DType::kFloat32, .op = ReduceOp::kSum, .dst = nullptr, .count = 0});
}

TEST(ReduceDeathTest, NeedsAnInputAndAPositiveDivisor) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  Buffer out = Buffer::of(DType::kFloat32, {1});
  const std::vector<const void*> sources{out.data()};
  EXPECT_DEATH(reduce({.dst = out.data(), .count = 1}), "sources");
  EXPECT_DEATH(reduce({.dst = out.data(), .sources = sources, .count = 1, .divisor = 0}),
               "divisor");
}

}  // namespace
}  // namespace rueda::reduce::testing
