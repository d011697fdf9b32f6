// Tests that repetition is detected, and becomes a plan.

#include "daemon/core/plan/step_detector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/builders.h"

namespace rueda::core {
namespace {

using testing::ElementsAre;

class StepDetectorTest : public testing::Test {
 protected:
  void start(int64_t threshold_bytes, TicksMs window_ms = 5) {
    AgreementOptions options;
    options.fusion.threshold_bytes = threshold_bytes;
    options.fusion_window_ms = window_ms;
    step_detector_.emplace(options);
  }
  void SetUp() override { start(1 << 20); }

  // Makes the batch reported, decreed and, unless told otherwise, complete.
  void decree(const std::vector<DescriptorPtr>& batch, TicksMs at = 0, bool ends = true) {
    for (const DescriptorPtr& item : batch) step_detector_->on_reported(item->name, at);
    step_detector_->on_decreed(Seq{++seq_}, batch, is_within_group_);
    if (ends) step_detector_->on_ended(Seq{seq_});
  }
  std::vector<Names> plan() {
    std::vector<Names> batches;
    for (const auto& batch : step_detector_->make_plan(1).plan.batches)
      batches.push_back(names_of(batch.tensors));
    return batches;
  }

  std::optional<StepDetector> step_detector_;
  uint64_t seq_ = 0;
  bool is_within_group_ = false;  // after the batch that is decreed next
};

TEST_F(StepDetectorTest, RepeatsAfterSoManyIdenticalSteps) {
  for (int step = 1; step <= 3; ++step) {
    EXPECT_FALSE(step_detector_->has_repeated(3)) << step;
    decree({tensor("a")});
    EXPECT_FALSE(step_detector_->has_repeated(3)) << step;
    decree({tensor("b")});
  }
  EXPECT_TRUE(step_detector_->has_repeated(3));
  decree({tensor("a")});
  EXPECT_FALSE(step_detector_->has_repeated(3)) << "in the middle of a step";
}

TEST_F(StepDetectorTest, TheOrderWithinAStepMayVary) {
  decree({tensor("a"), tensor("b")});
  decree({tensor("b")});
  decree({tensor("a")});
  decree({tensor("a"), tensor("b")});
  EXPECT_TRUE(step_detector_->has_repeated(3));
}

TEST_F(StepDetectorTest, AnotherShapeIsAnotherStep) {
  for (int i = 0; i < 3; ++i) decree({tensor("a", 4)});
  EXPECT_TRUE(step_detector_->has_repeated(3));
  decree({tensor("a", 5)});
  EXPECT_FALSE(step_detector_->has_repeated(3));
  decree({tensor("a", 5)});
  EXPECT_FALSE(step_detector_->has_repeated(3));
  decree({tensor("a", 5)});
  EXPECT_TRUE(step_detector_->has_repeated(3));
}

// Rule L9: every third step is a different one.
TEST_F(StepDetectorTest, StepsOfSeveralKindsRepeat) {
  for (int i = 0; i < 2; ++i) {
    decree({tensor("a")});
    decree({tensor("a")});
    decree({tensor("a"), tensor("v")});
  }
  decree({tensor("a")});
  EXPECT_TRUE(step_detector_->has_repeated(3));
  const StepDetector::Proposal proposal = step_detector_->make_plan(3);
  ASSERT_EQ(proposal.plan.batches.size(), 2u);
  EXPECT_EQ(names_of(proposal.plan.batches[1].tensors), Names({"v"}));
  EXPECT_EQ(proposal.at, 0) << "after the a that was decreed last";
}

TEST_F(StepDetectorTest, ANewKindBeginsTheCountAnew) {
  for (int i = 0; i < 4; ++i) decree({tensor("a")});
  decree({tensor("v")});
  EXPECT_FALSE(step_detector_->has_repeated(3));
  decree({tensor("a")});
  EXPECT_FALSE(step_detector_->has_repeated(3));
  decree({tensor("a")});
  EXPECT_TRUE(step_detector_->has_repeated(3));
}

TEST_F(StepDetectorTest, WhatEndedALockIsInTheNextPlan) {
  for (int i = 0; i < 3; ++i) decree({tensor("a")});
  (void)step_detector_->make_plan(3);
  step_detector_->on_locked();
  step_detector_->on_unlocked({{{tensor("a")}}, false, {{0, 5}}}, 0);
  decree({tensor("v")});  // ends the step that the plan had begun
  for (int i = 0; i < 4; ++i) decree({tensor("a")});
  EXPECT_THAT(plan(), ElementsAre(ElementsAre("a"), ElementsAre("v")));
}

// Otherwise steps that came once, and in a way that no plan can follow, would spoil every later
// lock.
TEST_F(StepDetectorTest, APlanThatDidNotHoldIsNotMadeAgain) {
  for (int i = 0; i < 3; ++i) decree({tensor("a"), tensor("v")});
  for (int i = 0; i < 3; ++i) decree({tensor("a")});
  EXPECT_THAT(plan(), ElementsAre(ElementsAre("a"), ElementsAre("v")));
  step_detector_->on_locked();
  step_detector_->on_unlocked({{{tensor("a")}}, false, {}}, 0);
  for (int i = 0; i < 6; ++i) decree({tensor("a")});
  EXPECT_THAT(plan(), ElementsAre(ElementsAre("a")));
}

TEST_F(StepDetectorTest, AnAlternativeThatALongLockHadNoUseForIsForgotten) {
  for (int i = 0; i < 3; ++i) decree({tensor("a"), tensor("v")});
  for (int i = 0; i < 3; ++i) decree({tensor("a")});
  EXPECT_THAT(plan(), ElementsAre(ElementsAre("a"), ElementsAre("v")));
  step_detector_->on_locked();
  step_detector_->on_unlocked({{{tensor("a")}}, false, {{0, 1'000}}}, 0);
  for (int i = 0; i < 3; ++i) decree({tensor("a")});
  EXPECT_THAT(plan(), ElementsAre(ElementsAre("a")));
}

TEST_F(StepDetectorTest, AStepWithAnErrorIsNone) {
  for (int i = 0; i < 3; ++i) decree({tensor("a"), tensor("b")});
  decree({tensor("a")});
  step_detector_->spoil();
  EXPECT_FALSE(step_detector_->has_repeated(1));
  for (int i = 0; i < 2; ++i) decree({tensor("a"), tensor("b")});
  EXPECT_FALSE(step_detector_->has_repeated(3));
  decree({tensor("a"), tensor("b")});
  EXPECT_TRUE(step_detector_->has_repeated(3));
}

// A step that begins between a and b must not always end there.
TEST_F(StepDetectorTest, AStepThatEndsWithinABatchMovesOn) {
  decree({tensor("b"), tensor("c")});
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(step_detector_->has_repeated(3)) << i;
    decree({tensor("a"), tensor("b"), tensor("c")});
  }
  EXPECT_TRUE(step_detector_->has_repeated(3));
}

// After a lock a stretch may begin within a step. If its order kept changing, no stretch would
// equal another; so it begins where the plan did.
TEST_F(StepDetectorTest, AfterALockStepsBeginWhereThePlanDid) {
  for (int i = 0; i < 3; ++i) decree({tensor("a"), tensor("b"), tensor("c")});
  (void)step_detector_->make_plan(3);
  step_detector_->on_locked();
  step_detector_->on_unlocked({{{tensor("a"), tensor("b"), tensor("c")}}, false, {{0, 5}}}, 0);
  decree({tensor("c")});  // comes once more in this step
  for (const Names& order : {Names{"a", "b", "c"}, Names{"a", "c", "b"}}) {
    EXPECT_FALSE(step_detector_->has_repeated(3));
    for (const std::string& name : order) decree({tensor(name)});
  }
  EXPECT_TRUE(step_detector_->has_repeated(3));
  EXPECT_THAT(plan(), ElementsAre(ElementsAre("a"), ElementsAre("c"), ElementsAre("b")));
}

// A step without the tensors that the plan began with is a step all the same.
TEST_F(StepDetectorTest, APartThatComesAgainIsAStep) {
  for (int i = 0; i < 3; ++i) decree({tensor("a"), tensor("b")});
  (void)step_detector_->make_plan(3);
  step_detector_->on_locked();
  step_detector_->on_unlocked({{{tensor("a")}, {tensor("b")}}, false, {{0, 5}}}, 0);
  for (int i = 0; i < 6; ++i) {
    decree({tensor("b")});
    decree({tensor("a")});
    decree({tensor("b")});
  }
  EXPECT_TRUE(step_detector_->has_repeated(3));
  EXPECT_THAT(plan(), ElementsAre(ElementsAre("b"), ElementsAre("a")));
}

// Otherwise a plan would lead from a part of a group to something else, and when it is given up
// there, the rest of the group would wait for ever for tensors that have gone before.
TEST_F(StepDetectorTest, AStepHasAGroupWholeOrNotAtAll) {
  const DescriptorPtr b = member_of("g", 2, "b");
  const DescriptorPtr c = member_of("g", 2, "c", DType::kInt64);
  decree({tensor("a")});
  for (int i = 0; i < 2; ++i) {
    is_within_group_ = true;
    decree({b, tensor("a")});  // belong to the next step
    is_within_group_ = false;
    decree({c});
  }
  const Plan plan = step_detector_->make_plan(3).plan;
  EXPECT_EQ(plan.tensors(), 3u);
  EXPECT_FALSE(plan.has_alternatives());
}

// There are two stretches of a, b and c, but a lock could begin after neither of them.
TEST_F(StepDetectorTest, AStepThatBeganWithinAGroupIsDropped) {
  const DescriptorPtr b = member_of("g", 2, "b");
  const DescriptorPtr c = member_of("g", 2, "c", DType::kInt64);
  step_detector_->on_unlocked({{{b}}, true, {}}, 0);
  is_within_group_ = true;
  decree({tensor("a")});
  decree({tensor("a")});  // comes again, and c is still missing
  is_within_group_ = false;
  decree({c});
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(step_detector_->has_repeated(3));
    is_within_group_ = true;
    decree({b});
    is_within_group_ = false;
    decree({c});
    decree({tensor("a")});
  }
  EXPECT_TRUE(step_detector_->has_repeated(3));
  EXPECT_THAT(plan(), ElementsAre(ElementsAre("b"), ElementsAre("c"), ElementsAre("a")));
}

TEST_F(StepDetectorTest, OnlySoManyKindsAreRemembered) {
  for (int kind = 0; kind < 20; ++kind) {
    for (int i = 0; i < 2; ++i) decree({tensor("a"), tensor("v" + std::to_string(kind))});
  }
  EXPECT_LE(plan().size(), 9u);
}

TEST_F(StepDetectorTest, OneOffTensorsAtTheStartDoNotPreventIt) {
  decree({tensor("init")});
  for (int i = 0; i < 4; ++i) decree({tensor("a"), tensor("b")});
  EXPECT_TRUE(step_detector_->has_repeated(3));
}

TEST_F(StepDetectorTest, ABatchOverAStepsEndIsNoEnd) {
  for (int i = 0; i < 3; ++i) decree({tensor("a")}, 0, false);
  EXPECT_TRUE(step_detector_->has_repeated(3));
  step_detector_->on_locked();
  EXPECT_FALSE(step_detector_->has_repeated(1));
}

// Names never come again if an application numbers them.
TEST_F(StepDetectorTest, AStretchTooLongForAMessageIsNoStep) {
  for (int i = 0; i < 200'000; ++i) decree({tensor("allreduce.noname." + std::to_string(i))});
  int64_t tensors = 0;
  for (const auto& batch : step_detector_->make_plan(1).plan.batches) {
    tensors += static_cast<int64_t>(batch.tensors.size());
  }
  EXPECT_LT(tensors, 40'000);
}

TEST_F(StepDetectorTest, TensorsReadyTogetherShareABatch) {
  decree({tensor("a")}, 0, false);
  decree({tensor("b"), tensor("c")}, 4, false);
  decree({tensor("d")}, 6, false);
  EXPECT_THAT(plan(), ElementsAre(ElementsAre("a", "b", "c"), ElementsAre("d")));
}

TEST_F(StepDetectorTest, TheThresholdHolds) {
  start(8);
  decree({tensor("a")}, 0, false);
  decree({tensor("b")}, 0, false);
  decree({tensor("c")}, 0, false);
  EXPECT_THAT(plan(), ElementsAre(ElementsAre("a", "b"), ElementsAre("c")));
}

// The application waits for a before it submits b; in one batch they would wait for each other.
TEST_F(StepDetectorTest, WhatFollowsFromAnotherDoesNotShareItsBatch) {
  decree({tensor("a")}, 0, true);
  decree({tensor("b")}, 0, true);
  EXPECT_THAT(plan(), ElementsAre(ElementsAre("a"), ElementsAre("b")));
}

TEST_F(StepDetectorTest, UnlikeTensorsFormBatchesBesideEachOther) {
  const auto whole = [](const std::string& name) {
    return tensor(name, 1, [](TensorDescriptor& t) { t.dtype = DType::kInt64; });
  };
  for (const DescriptorPtr& item : {tensor("a"), whole("i"), tensor("b"), whole("j")}) {
    decree({item}, 0, false);
  }
  EXPECT_THAT(plan(), ElementsAre(ElementsAre("a", "b"), ElementsAre("i", "j")));
}

TEST_F(StepDetectorTest, GroupsStayTogether) {
  start(8);
  decree({tensor("a")}, 0, false);
  decree({member_of("g", 2, "g1"), member_of("g", 2, "g2")}, 0, false);
  EXPECT_THAT(plan(), ElementsAre(ElementsAre("a"), ElementsAre("g1", "g2")));
}

}  // namespace
}  // namespace rueda::core
