#include "daemon/core/model/descriptor.h"

#include <functional>
#include <set>

#include <gtest/gtest.h>

namespace rueda::core {
namespace {

struct FieldChange {
  std::string field, left, right;
  std::function<void(TensorDescriptor&)> change;
};

TensorDescriptor plain() {
  TensorDescriptor descriptor;
  descriptor.name = "grad";
  descriptor.shape = {2, 3};
  return descriptor;
}

// Lists one change for each field that ranks can disagree on.
std::vector<FieldChange> every_field() {
  return {
      {"collective", "allreduce", "broadcast",
       [](auto& t) { t.kind = CollectiveKind::kBroadcast; }},
      {"dtype", "float32", "float16", [](auto& t) { t.dtype = DType::kFloat16; }},
      {"shape", "[2, 3]", "[3, 2]",
       [](auto& t) {
         t.shape = {3, 2};
       }},
      {"the number of counts", "0", "2",
       [](auto& t) {
         t.counts = {1, 1};
       }},
      {"op", "average", "max", [](auto& t) { t.op = ReduceOp::kMax; }},
      {"root rank", "-1", "2", [](auto& t) { t.root = Rank{2}; }},
      {"process set", "0", "7", [](auto& t) { t.process_set = 7; }},
      {"prescale factor", "1", "0.5", [](auto& t) { t.prescale = 0.5; }},
      {"postscale factor", "1", "0.10000000000000001", [](auto& t) { t.postscale = 0.1; }},
      {"wire dtype", "the tensor's own", "bfloat16",
       [](auto& t) { t.wire_dtype = WireDType::kBFloat16; }},
      {"memory", "host memory", "device memory", [](auto& t) { t.memory = MemorySpace::kDevice; }},
      {"memory", "host memory", "device memory, by NCCL",
       [](auto& t) { t.memory = MemorySpace::kDeviceNccl; }},
      {"group", "\"\"", "\"g\"", [](auto& t) { t.group = "g"; }},
      {"group size", "0", "3", [](auto& t) { t.group_size = 3; }},
  };
}

TEST(Descriptor, ElementsAndBytes) {
  TensorDescriptor descriptor = plain();
  EXPECT_EQ(descriptor.elements(), 6);
  EXPECT_EQ(descriptor.bytes(), 24);
  descriptor.dtype = DType::kFloat64;
  EXPECT_EQ(descriptor.bytes(), 48);
  descriptor.shape = {};
  EXPECT_EQ(descriptor.elements(), 1);
  descriptor.shape = {5, 0, 7};
  EXPECT_EQ(descriptor.elements(), 0);
  descriptor.shape = {int64_t{1} << 20, int64_t{1} << 18};
  EXPECT_EQ(descriptor.bytes(), int64_t{1} << 41);
  descriptor.kind = CollectiveKind::kBarrier;
  EXPECT_EQ(descriptor.elements(), 0);
}

TEST(Descriptor, ShapesReadLikeLists) {
  EXPECT_EQ(shape_to_string({}), "[]");
  EXPECT_EQ(shape_to_string({4}), "[4]");
  EXPECT_EQ(shape_to_string({2, 0, 3}), "[2, 0, 3]");
}

TEST(Descriptor, EqualOnesDoNotDiffer) {
  EXPECT_EQ(find_difference(plain(), plain()), std::nullopt);
  EXPECT_EQ(plain().hash(), plain().hash());
  EXPECT_EQ(describe_mismatch(plain(), Rank{0}, plain(), Rank{1}), "");
}

TEST(Descriptor, EveryFieldThatDiffersIsNamedWithBothValues) {
  for (const FieldChange& row : every_field()) {
    TensorDescriptor other = plain();
    row.change(other);
    EXPECT_NE(plain(), other) << row.field;
    const std::optional<Difference> difference = find_difference(plain(), other);
    ASSERT_TRUE(difference) << row.field;
    EXPECT_EQ(difference->field, row.field);
    EXPECT_EQ(difference->left, row.left);
    EXPECT_EQ(difference->right, row.right);
  }
}

// There may be tens of thousands of counts.
TEST(Descriptor, OfTwoListsOfCountsTheFirstThatDiffersIsNamed) {
  TensorDescriptor left = plain();
  TensorDescriptor right = plain();
  left.counts = {3, 4, 5};
  right.counts = {3, 5, 4};
  const std::optional<Difference> difference = find_difference(left, right);
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->field, "count 1");
  EXPECT_EQ(difference->left, "4");
  EXPECT_EQ(difference->right, "5");
}

TEST(Descriptor, TheMismatchSentenceNamesTensorRanksAndValues) {
  TensorDescriptor other = plain();
  other.shape = {2, 4};
  EXPECT_EQ(describe_mismatch(plain(), Rank{1}, other, Rank{5}),
            "ranks disagree on tensor \"grad\": shape is [2, 3] on rank 1 and [2, 4] on rank 5; "
            "submit the same on every rank");
}

TEST(Descriptor, TheHashDependsOnEveryField) {
  std::set<uint64_t> hashes{plain().hash()};
  for (const FieldChange& row : every_field()) {
    TensorDescriptor other = plain();
    row.change(other);
    EXPECT_TRUE(hashes.insert(other.hash()).second) << row.field;
  }
  TensorDescriptor renamed = plain();
  renamed.name = "grad2";
  EXPECT_TRUE(hashes.insert(renamed.hash()).second);
}

// Scale factors that print alike at six digits are still distinguished.
TEST(Descriptor, ScalesAreComparedExactly) {
  TensorDescriptor other = plain();
  other.prescale = 1.0 + 1e-15;
  const std::optional<Difference> difference = find_difference(plain(), other);
  ASSERT_TRUE(difference);
  EXPECT_NE(difference->left, difference->right);
}

}  // namespace
}  // namespace rueda::core
