// Tests bytes that wrap, and bytes that are true or false, against arithmetic written out here.

#include <random>

#include <gmock/gmock.h>

#include "tests/reduce/reference.h"

namespace rueda::reduce::testing {
namespace {

using ::testing::Each;

uint8_t combine_bytes(DType dtype, ReduceOp op, uint8_t a, uint8_t b) {
  if (dtype == DType::kBool) {
    const bool is_or = op == ReduceOp::kSum || op == ReduceOp::kMax;
    return is_or ? (a != 0) | (b != 0) : (a != 0) & (b != 0);
  }
  const bool is_b_less =
      dtype == DType::kInt8 ? static_cast<int8_t>(b) < static_cast<int8_t>(a) : b < a;
  switch (op) {
    case ReduceOp::kMin: return is_b_less ? b : a;
    case ReduceOp::kMax: return is_b_less ? a : b;
    case ReduceOp::kProduct: return static_cast<uint8_t>(a * b);
    default: return static_cast<uint8_t>(a + b);
  }
}

// The bytes have all values, so that sums and products wrap.
TEST(Bytes, WrapOrAreLogicalOnEveryTarget) {
  for_each_target([] {
    std::mt19937 random(4);
    for (const DType dtype : {DType::kInt8, DType::kUInt8, DType::kBool}) {
      for (const ReduceOp op :
           {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
        for (const size_t count : {1, 15, 64, 131, 1000}) {
          for (const size_t source_count : {1, 2, 3, 4, 7}) {
            std::vector<std::vector<uint8_t>> inputs(source_count, std::vector<uint8_t>(count));
            std::vector<const void*> sources;
            for (std::vector<uint8_t>& input : inputs) {
              // Half of the bools are false.
              for (uint8_t& byte : input) {
                byte = static_cast<uint8_t>(random());
                if (dtype == DType::kBool && random() % 2 == 0) byte = 0;
              }
              sources.push_back(input.data());
            }
            std::vector<uint8_t> out(count);
            reduce(
                {.dtype = dtype, .op = op, .dst = out.data(), .sources = sources, .count = count});
            for (size_t i = 0; i < count; ++i) {
              uint8_t expected = inputs[0][i];
              if (dtype == DType::kBool) expected = expected != 0;
              for (size_t k = 1; k < source_count; ++k) {
                expected = combine_bytes(dtype, op, expected, inputs[k][i]);
              }
              ASSERT_EQ(out[i], expected) << to_string(dtype) << " " << to_string(op) << " of "
                                          << source_count << ", element " << i;
            }
          }
        }
      }
    }
  });
}

Buffer one(DType dtype, ReduceOp op, double value, double prescale, int64_t divisor) {
  const Buffer input = Buffer::of(dtype, std::vector(70, value));
  const std::vector<const void*> sources{input.data()};
  Buffer out(dtype, input.count());
  reduce({.dtype = dtype,
          .op = op,
          .dst = out.data(),
          .sources = sources,
          .count = out.count(),
          .prescale = prescale,
          .divisor = divisor});
  return out;
}

TEST(Bytes, SaturateWhenAScaleLeavesTheirRange) {
  EXPECT_THAT(one(DType::kUInt8, ReduceOp::kSum, 200, 2, 1).values(), Each(255.0));
  EXPECT_THAT(one(DType::kUInt8, ReduceOp::kSum, 200, -1, 1).values(), Each(0.0));
  EXPECT_THAT(one(DType::kUInt8, ReduceOp::kSum, 128, 1.5, 1).values(), Each(192.0));
  EXPECT_THAT(one(DType::kInt8, ReduceOp::kSum, 100, 2, 1).values(), Each(127.0));
  EXPECT_THAT(one(DType::kInt8, ReduceOp::kSum, 100, -2, 1).values(), Each(-128.0));
}

TEST(Bytes, AveragesTruncateTowardsZero) {
  EXPECT_THAT(one(DType::kUInt8, ReduceOp::kAverage, 255, 1, 4).values(), Each(63.0));
  EXPECT_THAT(one(DType::kInt8, ReduceOp::kAverage, -7, 1, 4).values(), Each(-1.0));
}

}  // namespace
}  // namespace rueda::reduce::testing
