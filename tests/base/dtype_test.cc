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
