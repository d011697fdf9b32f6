// Tests plans declared ahead: which tensors may share a batch, and which declarations make no plan.

#include "daemon/core/plan/declared_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/builders.h"

namespace rueda::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<Names> batches_of(const std::vector<PlannedTensor>& declared,
                              int64_t threshold = 1 << 20) {
  EXPECT_EQ(find_flaw(declared), "");
  const StepRecord step = step_of(declared);
  const Plan plan = make_plan_tree({&step}, {threshold}, 0)->plan;
  EXPECT_EQ(find_flaw(plan), "");
  EXPECT_FALSE(plan.has_alternatives());
  std::vector<Names> batches;
  for (const PlanBatch& batch : plan.batches) batches.push_back(names_of(batch.tensors));
  return batches;
}

DescriptorPtr integers(const std::string& name) {
  return tensor(name, 1, [](TensorDescriptor& t) { t.dtype = DType::kInt64; });
}

TEST(DeclaredPlan, ConcurrentTensorsShareABatch) {
  EXPECT_THAT(batches_of(planned({{tensor("a"), {}}, {tensor("b"), {}}, {integers("c"), {}}})),
              ElementsAre(ElementsAre("a", "b"), ElementsAre("c")));
  EXPECT_THAT(batches_of(planned({{tensor("a"), {}}, {tensor("b"), {}}}), 4),
              ElementsAre(ElementsAre("a"), ElementsAre("b")));
}

TEST(DeclaredPlan, DependentTensorsNeverDo) {
  EXPECT_THAT(
      batches_of(planned({{tensor("a"), {}}, {tensor("b"), {}}, {tensor("norm"), {"a", "b"}}})),
      ElementsAre(ElementsAre("a", "b"), ElementsAre("norm")));
  // The path between a and c goes through a tensor of another type.
  EXPECT_THAT(
      batches_of(planned({{tensor("a"), {}}, {integers("b"), {"a"}}, {tensor("c"), {"b"}}})),
      ElementsAre(ElementsAre("a"), ElementsAre("b"), ElementsAre("c")));
}

// a and d, and b and c, would each wait for the other batch.
TEST(DeclaredPlan, NoTwoBatchesWaitForEachOther) {
  EXPECT_THAT(
      batches_of(planned(
          {{tensor("a"), {}}, {integers("b"), {}}, {integers("c"), {"a"}}, {tensor("d"), {"b"}}})),
      ElementsAre(ElementsAre("a"), ElementsAre("b", "c"), ElementsAre("d")));
}

TEST(DeclaredPlan, AGroupIsOneUnit) {
  EXPECT_THAT(
      batches_of(planned(
          {{member_of("g", 2, "a"), {}}, {member_of("g", 2, "b"), {}}, {tensor("c"), {"a"}}})),
      ElementsAre(ElementsAre("a", "b"), ElementsAre("c")));
}

TEST(DeclaredPlan, AFlawNamesTheTensorAndTheRemedy) {
  const DescriptorPtr a = tensor("a");
  const DescriptorPtr one = member_of("g", 2, "one");
  const DescriptorPtr two = member_of("g", 2, "two");
  const DescriptorPtr broadcast = tensor("w", 1, [](TensorDescriptor& t) {
    t.kind = CollectiveKind::kBroadcast;
    t.root = Rank{0};
  });
  const DescriptorPtr in_set = tensor("s", 1, [](TensorDescriptor& t) { t.process_set = 3; });
  const DescriptorPtr by_nccl =
      tensor("n", 1, [](TensorDescriptor& t) { t.memory = MemorySpace::kDeviceNccl; });
  const DescriptorPtr on_gpu =
      tensor("d", 1, [](TensorDescriptor& t) { t.memory = MemorySpace::kDevice; });
  EXPECT_EQ(find_flaw({{on_gpu, {}}}), "");
  EXPECT_THAT(find_flaw({{by_nccl, {}}}),
              HasSubstr("tensor \"n\" goes by NCCL, whose operations no plan has"));
  EXPECT_EQ(find_flaw(std::vector<PlannedTensor>{}), "");
  EXPECT_THAT(find_flaw({{a, {}}, {a, {}}}), HasSubstr("tensor \"a\" is listed twice"));
  EXPECT_THAT(find_flaw({{a, {0}}}), HasSubstr("tensor \"a\" comes after tensor 0 of the list"));
  EXPECT_THAT(find_flaw({{broadcast, {}}}),
              HasSubstr("tensor \"w\" is a broadcast, which no plan has: leave it out"));
  EXPECT_THAT(find_flaw({{in_set, {}}}), HasSubstr("tensor \"s\" is of process set 3"));
  EXPECT_THAT(find_flaw({{one, {}}, {a, {}}, {two, {}}}),
              HasSubstr("tensor \"two\" is apart from the others of group \"g\""));
  EXPECT_THAT(find_flaw({{one, {}}, {two, {0}}}),
              HasSubstr("tensor \"two\" comes after \"one\", and both are of group \"g\""));
  EXPECT_THAT(find_flaw({{one, {}}}), HasSubstr("group \"g\" has 2 tensors, and 1 are listed"));
}

TEST(DeclaredPlan, ADifferenceSaysWhereAndWhat) {
  const auto difference = [](const std::vector<PlannedTensor>& left,
                             const std::vector<PlannedTensor>& right) {
    return describe_mismatch(*declaration_of(left), Rank{0}, *declaration_of(right), Rank{2});
  };
  const auto two = planned({{tensor("a"), {}}, {tensor("b"), {}}});
  EXPECT_EQ(difference(two, two), "");
  EXPECT_EQ(*declaration_of(two), *declaration_of(two));
  EXPECT_EQ(declaration_of(two)->hash(), declaration_of(two)->hash());
  EXPECT_THAT(difference(two, planned({{tensor("a"), {}}})),
              HasSubstr("the number of the plan's tensors is 2 on rank 0 and 1 on rank 2"));
  EXPECT_THAT(difference(two, planned({{tensor("a"), {}}, {tensor("c"), {}}})),
              HasSubstr("tensor 2 of the plan is \"b\" on rank 0 and \"c\" on rank 2"));
  EXPECT_THAT(difference(two, planned({{tensor("a", 7), {}}, {tensor("b"), {}}})),
              HasSubstr("shape of \"a\" is [1] on rank 0 and [7] on rank 2"));
  EXPECT_THAT(difference(two, planned({{tensor("a"), {}}, {tensor("b"), {"a"}}})),
              HasSubstr("what \"b\" comes after is nothing on rank 0 and \"a\" on rank 2"));
}

}  // namespace
}  // namespace rueda::core
