#include "daemon/base/dtype.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace rueda {
namespace {

TEST(DType, SizesOfElements) {
  static_assert(element_bytes(DType::kFloat32) == 4);
  static_assert(element_bytes(DType::kFloat64) == 8);
  static_assert(element_bytes(DType::kFloat16) == 2);
  static_assert(element_bytes(DType::kBFloat16) == 2);
  static_assert(element_bytes(DType::kInt32) == 4);
  static_assert(element_bytes(DType::kInt64) == 8);
  static_assert(element_bytes(DType::kInt8) == 1);
  static_assert(element_bytes(DType::kUInt8) == 1);
  static_assert(element_bytes(DType::kBool) == 1);
  static_assert(element_bytes(DType::kInt16) == 2);
  static_assert(element_bytes(DType::kUInt16) == 2);
  static_assert(element_bytes(DType::kUInt32) == 4);
  static_assert(element_bytes(DType::kUInt64) == 8);
  static_assert(element_bytes(DType::kComplex64) == 8);
  static_assert(element_bytes(DType::kComplex128) == 16);
  // A number that came from outside may mean no type.
  EXPECT_EQ(element_bytes(static_cast<DType>(kDTypeCount)), 0u);
}

TEST(DType, NamesAreNumPys) {
  EXPECT_STREQ(to_string(DType::kFloat32), "float32");
  EXPECT_STREQ(to_string(DType::kFloat64), "float64");
  EXPECT_STREQ(to_string(DType::kFloat16), "float16");
  EXPECT_STREQ(to_string(DType::kBFloat16), "bfloat16");
  EXPECT_STREQ(to_string(DType::kInt32), "int32");
  EXPECT_STREQ(to_string(DType::kInt64), "int64");
  EXPECT_STREQ(to_string(DType::kInt8), "int8");
  EXPECT_STREQ(to_string(DType::kUInt8), "uint8");
  EXPECT_STREQ(to_string(DType::kBool), "bool");
  EXPECT_STREQ(to_string(DType::kInt16), "int16");
  EXPECT_STREQ(to_string(DType::kUInt16), "uint16");
  EXPECT_STREQ(to_string(DType::kUInt32), "uint32");
  EXPECT_STREQ(to_string(DType::kUInt64), "uint64");
  EXPECT_STREQ(to_string(DType::kComplex64), "complex64");
  EXPECT_STREQ(to_string(DType::kComplex128), "complex128");
}

TEST(DType, EveryTypeIsOfOneKind) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    const int kinds = is_floating(dtype) + is_integer(dtype) + is_complex(dtype);
    EXPECT_EQ(kinds, dtype == DType::kBool ? 0 : 1) << to_string(dtype);
    EXPECT_EQ(components_of(dtype) * element_bytes(component_dtype(dtype)), element_bytes(dtype));
    EXPECT_FALSE(is_complex(component_dtype(dtype)));
  }
}

TEST(DType, OnlyComplexNumbersHaveNoOrder) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    for (int op = 0; op < kReduceOpCount; ++op) {
      const auto reduce_op = static_cast<ReduceOp>(op);
      const bool orders = reduce_op == ReduceOp::kMin || reduce_op == ReduceOp::kMax;
      EXPECT_EQ(has_operator(dtype, reduce_op), !(orders && is_complex(dtype)));
    }
  }
}

TEST(DType, WhatNcclHasNoReductionFor) {
  constexpr auto kAllreduce = CollectiveKind::kAllreduce;
  EXPECT_TRUE(can_be_by_nccl(kAllreduce, DType::kUInt64, ReduceOp::kMax));
  EXPECT_TRUE(can_be_by_nccl(kAllreduce, DType::kBool, ReduceOp::kProduct));
  EXPECT_TRUE(can_be_by_nccl(kAllreduce, DType::kComplex64, ReduceOp::kAverage));
  EXPECT_FALSE(can_be_by_nccl(kAllreduce, DType::kComplex128, ReduceOp::kProduct));
  EXPECT_FALSE(can_be_by_nccl(kAllreduce, DType::kInt16, ReduceOp::kSum));
  EXPECT_FALSE(can_be_by_nccl(kAllreduce, DType::kUInt16, ReduceOp::kMin));
  EXPECT_FALSE(can_be_by_nccl(kAllreduce, DType::kFloat32, ReduceOp::kAdasum));
  EXPECT_FALSE(can_be_by_nccl(CollectiveKind::kReduce, DType::kComplex64, ReduceOp::kSum));
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_TRUE(can_be_by_nccl(CollectiveKind::kBroadcast, dtype, ReduceOp::kSum));
  }
}

template <class Enum>
void expect_distinct_names(int count) {
  std::set<std::string> names;
  for (int i = 0; i < count; ++i) names.insert(to_string(static_cast<Enum>(i)));
  EXPECT_EQ(names.size(), static_cast<size_t>(count));
  EXPECT_FALSE(names.contains("unknown"));
  EXPECT_STREQ(to_string(static_cast<Enum>(count)), "unknown") << "the count is out of date";
}

TEST(DType, EveryValueHasAName) { expect_distinct_names<DType>(kDTypeCount); }
TEST(ReduceOp, EveryValueHasAName) { expect_distinct_names<ReduceOp>(kReduceOpCount); }
TEST(CollectiveKind, EveryValueHasAName) {
  expect_distinct_names<CollectiveKind>(kCollectiveKindCount);
}

}  // namespace
}  // namespace rueda
