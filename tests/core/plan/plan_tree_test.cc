// Tests plans of several kinds of steps: which tensors share a batch, where ways part, and which
// steps make no plan.

#include "daemon/core/plan/plan_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/builders.h"

namespace rueda::core {
namespace {

using testing::ElementsAre;

// Records a step whose tensors were all ready together, in this order.
StepRecord step(const Names& names) {
  StepRecord record;
  for (const std::string& name : names) record.push_back({tensor(name)});
  return record;
}

// Writes a tree as text: "a+b>v" is the batch v after the batch of a and b; "." ends a round.
std::vector<std::string> tree_of(const std::vector<StepRecord>& steps, int64_t threshold = 1024) {
  std::vector<const StepRecord*> pointers;
  for (const StepRecord& item : steps) pointers.push_back(&item);
  const auto tree = make_plan_tree(pointers, {threshold}, 5);
  if (!tree) return {"none"};
  const auto text_of = [](const PlanBatch& batch) {
    std::string text;
    for (const std::string& name : names_of(batch.tensors))
      text += (text.empty() ? "" : "+") + name;
    return text;
  };
  std::vector<std::string> lines;
  for (const PlanBatch& batch : tree->plan.batches) {
    std::string line;
    if (batch.after != kPlanStart) {
      line = text_of(tree->plan.batches[static_cast<size_t>(batch.after)]) + ">";
    }
    lines.push_back(line + text_of(batch) + (batch.ends ? "." : ""));
  }
  return lines;
}

TEST(PlanTree, OneKindIsAChain) {
  EXPECT_THAT(tree_of({step({"a", "b"})}), ElementsAre("a+b."));
  EXPECT_THAT(tree_of({step({"a", "b"})}, 0), ElementsAre("a", "a>b."));
}

TEST(PlanTree, WhatOnlySomeHaveIsABatchOfItsOwn) {
  EXPECT_THAT(tree_of({step({"a", "b"}), step({"a", "v", "b"})}), ElementsAre("a+b.", "a+b>v."));
}

TEST(PlanTree, TwoLossesShareWhatTheyHaveInCommon) {
  EXPECT_THAT(tree_of({step({"x", "a", "b"}), step({"y", "a", "b"})}),
              ElementsAre("a+b", "a+b>x.", "a+b>y."));
}

TEST(PlanTree, BranchesOfBranches) {
  EXPECT_THAT(tree_of({step({"a"}), step({"a", "x"}), step({"a", "x", "y"})}),
              ElementsAre("a.", "a>x.", "x>y."));
}

// Validation and accumulation come at intervals of their own, so a step has either, both, or
// neither.
TEST(PlanTree, WhatIsIndependentIsTakenInTheOrderInWhichItComes) {
  EXPECT_THAT(tree_of({step({"a"}), step({"a", "u", "v"}), step({"a", "u"}), step({"a", "v"})}),
              ElementsAre("a.", "a>u.", "u>v.", "a>v."));
}

TEST(PlanTree, KindsThatHaveNothingInCommonPartAtTheStart) {
  EXPECT_THAT(tree_of({step({"a"}), step({"b"})}), ElementsAre("a.", "b."));
}

// After a the round may be over, and b begin the next one; or b may end it. No node could tell
// which.
TEST(PlanTree, WhatCannotBeToldApartIsNoPlan) {
  EXPECT_THAT(tree_of({step({"a"}), step({"b"}), step({"a", "b"})}), ElementsAre("none"));
}

// In one kind of step b is computed from a.
TEST(PlanTree, TensorsShareABatchIfTheyMayInEveryStep) {
  StepRecord free = step({"a", "b"});
  StepRecord bound = step({"a", "b", "v"});
  bound[0].ended = 1;
  bound[1].first_reported = 2;
  EXPECT_THAT(tree_of({free, bound}), ElementsAre("a", "a>b.", "b>v."));
}

TEST(PlanTree, SaysWhereEachStepEnds) {
  const StepRecord one = step({"a", "v"});
  const StepRecord other = step({"a"});
  const auto tree = make_plan_tree({&one, &other}, {}, 5);
  ASSERT_TRUE(tree);
  EXPECT_THAT(tree->ends, ElementsAre(1, 0));
}

TEST(Plan, FlawsAreFound) {
  const auto flaw = [](std::vector<PlanBatch> batches) {
    return find_flaw(Plan{std::move(batches)});
  };
  EXPECT_EQ(flaw({{{tensor("a")}, -1, true}}), "");
  EXPECT_EQ(flaw({}), "an empty plan");
  EXPECT_EQ(flaw({{{}, -1, true}}), "a plan with an empty batch");
  EXPECT_EQ(flaw({{{tensor("a")}, 0, true}}), "a plan whose batch 0 comes after batch 0");
  EXPECT_EQ(flaw({{{tensor("a")}, -2, true}}), "a plan whose batch 0 comes after batch -2");
  EXPECT_EQ(flaw({{{tensor("a")}, -1, false}}), "a plan whose batch 0 leads nowhere");
  EXPECT_EQ(flaw({{{tensor("a")}, -1, false}, {{tensor("a")}, 0, true}}),
            "a plan with tensor \"a\" twice");
  EXPECT_EQ(flaw({{{tensor("a")}, -1, true}, {{tensor("a")}, -1, true}}),
            "a plan with tensor \"a\" in two batches that may be next");
  EXPECT_EQ(flaw({{{tensor("a")}, -1, true}, {{tensor("b")}, 0, false}, {{tensor("a")}, 1, true}}),
            "a plan with tensor \"a\" twice");
  // After b the round may be over, and a begin the next one.
  EXPECT_EQ(flaw({{{tensor("a")}, -1, false},
                  {{tensor("b")}, -1, true},
                  {{tensor("c")}, 0, true},
                  {{tensor("a")}, 1, true}}),
            "a plan with tensor \"a\" in two batches that may be next");
  // The tensor is in two branches, but only once on each way.
  EXPECT_EQ(flaw({{{tensor("a")}, -1, false},
                  {{tensor("b")}, 0, true},
                  {{tensor("c")}, 0, false},
                  {{tensor("b")}, 2, true}}),
            "");
}

// A message of 540 KB once asked for 14 GiB of successors, of which there are as many as ends times
// beginnings.
TEST(Plan, SoManyMayBeginARoundAndSoManyEndOne) {
  Plan plan;
  for (int i = 0; i < 60'000; ++i) plan.batches.push_back({{tensor(std::to_string(i))}, -1, true});
  EXPECT_EQ(find_flaw(plan),
            "a plan in which 60000 batches begin a round and 60000 end one; the limit is 64");
  plan.batches.resize(kMaxBranchesOfAPlan);
  EXPECT_EQ(find_flaw(plan), "");
  EXPECT_EQ(plan.successors().size(), kMaxBranchesOfAPlan + 1);
}

// Every name of the chain was once put into a set for each leaf: 44 s for 339 KB.
TEST(Plan, AChainWithManyLeavesIsWalkedOnce) {
  constexpr int kChain = 30'000;
  Plan plan;
  for (int i = 0; i < kChain; ++i)
    plan.batches.push_back({{tensor(std::to_string(i))}, i - 1, false});
  for (size_t leaf = 0; leaf < kMaxBranchesOfAPlan; ++leaf) {
    plan.batches.push_back({{tensor("leaf" + std::to_string(leaf))}, kChain - 1, true});
  }
  EXPECT_EQ(find_flaw(plan), "");
  plan.batches.back().tensors = {tensor("7")};
  EXPECT_EQ(find_flaw(plan), "a plan with tensor \"7\" twice");
}

TEST(Plan, ItsTensorsAreTheProcessSetsAndMayBeLocked) {
  const Layout layout = layout_of({1, 1});
  const auto flaw = [&](const std::function<void(TensorDescriptor&)>& change, uint32_t set = 0) {
    return find_flaw(Plan{{{{tensor("a", 4, change)}, -1, true}}}, set, layout);
  };
  EXPECT_EQ(flaw([](TensorDescriptor&) {}), "");
  EXPECT_EQ(flaw([](TensorDescriptor&) {}, 2),
            "a plan with tensor \"a\" of process set 0 in the order of process set 2");
  EXPECT_EQ(flaw([](TensorDescriptor& t) { t.memory = MemorySpace::kDeviceNccl; }),
            "a plan with tensor \"a\" among what may be in a plan");
  EXPECT_EQ(flaw([](TensorDescriptor& t) {
              t.kind = CollectiveKind::kReduce;
              t.root = Rank{1};
            }),
            "a plan with tensor \"a\" among what may be in a plan");
}

}  // namespace
}  // namespace rueda::core
