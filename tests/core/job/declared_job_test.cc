// Tests plans declared ahead: they are in force before the first step, and abandoned when they are
// wrong.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/core/plan/declared_plan.h"
#include "daemon/core/plan/plan_tree.h"
#include "tests/core/modes/locked_cluster.h"

namespace rueda::core {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class DeclaredPlans : public LockedTest {
 protected:
  // Makes all ranks declare the plan, and returns how the declaration ended for the last rank.
  Status declare(const DescriptorPtr& declaration) {
    Ticket last{};
    for (int rank = 0; rank < ranks_; ++rank) last = cluster_->submit(rank, declaration);
    cluster_->settle();
    return cluster_->end_of(ranks_ - 1, last);
  }
  std::vector<std::string> abandoned(int node) { return cluster_->node(node).abandoned_plans; }

  const DescriptorPtr plan_ =
      declaration_of(planned({{tensor("a"), {}}, {tensor("b"), {}}, {tensor("c"), {"b"}}}));
};

TEST_F(DeclaredPlans, TheFirstStepSaysNothing) {
  start({2, 1, 1});
  ASSERT_TRUE(declare(plan_).is_ok());
  for (int node = 0; node < 3; ++node) ASSERT_TRUE(is_locked(node));
  for (int i = 0; i < 3; ++i) {
    for (const char* name : {"a", "b", "c"}) cluster_->submit_everywhere(tensor(name));
    cluster_->end_turns();
    for (int from = 0; from < 3; ++from) {
      for (int to = 0; to < 3; ++to) EXPECT_THAT(cluster_->stream(from, to), IsEmpty());
    }
    complete_launched();
  }
  ASSERT_EQ(cluster_->node(1).launches.size(), 6u);
  EXPECT_EQ(cluster_->node(1).launches[0].tensors->size(), 2u) << "a and b";
  EXPECT_THAT(abandoned(1), IsEmpty());
}

// A fast rank submits as soon as its declaration has ended, and none of its submissions may be sent
// as a message.
TEST_F(DeclaredPlans, WhoIsToldFollowsThePlanAlready) {
  start({1, 1});
  cluster_->submit(0, plan_);
  const Ticket declared = cluster_->submit(1, plan_);
  cluster_->end_turns();
  cluster_->deliver(1, 0);
  cluster_->end_turns();
  while (!cluster_->has_ended(1, declared)) {
    cluster_->deliver(0, 1);
    cluster_->step(1, TurnEnded{});
  }
  EXPECT_TRUE(is_locked(1));
}

TEST_F(DeclaredPlans, WhatRanksDeclareDifferentlyFailsOnAll) {
  start({1, 1});
  const Ticket one = cluster_->submit(0, plan_);
  const Ticket other = cluster_->submit(1, declaration_of(planned({{tensor("a"), {}}})));
  cluster_->settle();
  for (const Status& status : {cluster_->end_of(0, one), cluster_->end_of(1, other)}) {
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_THAT(status.message(), HasSubstr("is 3 on rank 0 and 1 on rank 1"));
  }
  EXPECT_FALSE(is_locked(0));
  step({tensor("a")});  // the job goes on
}

TEST_F(DeclaredPlans, RanksThatHaveNoneSayThatAndNothingChanges) {
  start({2, 1});
  ASSERT_TRUE(declare(declaration_of({})).is_ok());
  EXPECT_FALSE(is_locked(0));
  ASSERT_TRUE(declare(plan_).is_ok());
  ASSERT_TRUE(declare(declaration_of({})).is_ok());
  for (const int node : {0, 1}) EXPECT_TRUE(is_locked(node)) << "by the plan of before";
}

// A framework that declares by itself may see no plan on one rank. The others do not wait for it.
TEST_F(DeclaredPlans, ARankThatHasNoneDisagreesWithOneThatHas) {
  start({1, 1});
  const Ticket one = cluster_->submit(0, plan_);
  const Ticket other = cluster_->submit(1, declaration_of({}));
  cluster_->settle();
  for (const Status& status : {cluster_->end_of(0, one), cluster_->end_of(1, other)}) {
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_THAT(status.message(), HasSubstr("is 3 on rank 0 and 0 on rank 1"));
  }
  EXPECT_FALSE(is_locked(0));
}

TEST_F(DeclaredPlans, OneThatHasHeldForAStepEndsAsAnyOtherDoes) {
  start({1, 1});
  ASSERT_TRUE(declare(plan_).is_ok());
  step({tensor("a"), tensor("b"), tensor("c")});
  step({tensor("loss")});
  for (const int node : {0, 1}) {
    EXPECT_FALSE(is_locked(node));
    EXPECT_THAT(abandoned(node), IsEmpty()) << "it was right";
  }
}

// A batch that is declared is ready when the backward pass has come that far, which may take long.
TEST_F(DeclaredPlans, ABatchMayTakeLongAsLongAsItGrows) {
  start({1, 1});
  const auto plan = planned({{tensor("a"), {}}, {tensor("b"), {}}, {tensor("c"), {}}});
  ASSERT_TRUE(declare(declaration_of(plan)).is_ok());
  for (const char* name : {"a", "b"}) {
    cluster_->submit_everywhere(tensor(name));
    cluster_->settle();
    cluster_->pass(4'000);
    cluster_->settle();
    for (const int node : {0, 1}) EXPECT_TRUE(is_locked(node)) << name;
  }
  cluster_->pass(1'100);
  cluster_->settle();
  for (const int node : {0, 1}) {
    EXPECT_THAT(abandoned(node), ElementsAre(HasSubstr("is not ready after 5000 ms")));
  }
}

TEST_F(DeclaredPlans, OneThatCannotBeFailsOnAll) {
  start({1, 1});
  const Ticket one = cluster_->submit(0, plan_);
  const Ticket other = cluster_->submit(1, declaration_of({{tensor("a"), {}}, {tensor("a"), {}}}));
  cluster_->settle();
  for (const Status& status : {cluster_->end_of(0, one), cluster_->end_of(1, other)}) {
    EXPECT_THAT(status.message(),
                HasSubstr("the plan that rank 1 declares cannot be: tensor \"a\" is listed twice"));
  }
}

// A plan that is wrong must not lead to a deadlock: rank 1 waits for b before it submits c, which
// is declared to share a batch with b.
TEST_F(DeclaredPlans, OneThatIsWrongIsAbandonedAndTheScheduleLearned) {
  start({1, 1});
  ASSERT_TRUE(declare(declaration_of(planned({{tensor("b"), {}}, {tensor("c"), {}}}))).is_ok());
  for (int i = 0; i < 5; ++i) {
    for (const int rank : {0, 1}) {
      const Ticket b = cluster_->submit(rank, tensor("b"));
      cluster_->step(rank, RankWaits{LocalRank{0}, b});
    }
    complete_launched();
    for (const int rank : {0, 1}) cluster_->step(rank, RankWaits{LocalRank{0}, std::nullopt});
    cluster_->submit_everywhere(tensor("c"));
    complete_launched();
  }
  for (const int node : {0, 1}) {
    EXPECT_THAT(abandoned(node),
                ElementsAre(AllOf(HasSubstr("abandoned after 0 steps"),
                                  HasSubstr("waits for tensor \"b\" and has not submitted \"c\""),
                                  HasSubstr("each after those that it is computed from"))));
    EXPECT_TRUE(is_locked(node)) << "by what was seen";
    EXPECT_EQ(cluster_->node(node).core->plan()->batches.size(), 2u);
  }
}

TEST_F(DeclaredPlans, ALaterOneTakesTheOthersPlace) {
  start({1, 1});
  ASSERT_TRUE(declare(plan_).is_ok());
  step({tensor("a"), tensor("b"), tensor("c")});
  ASSERT_TRUE(declare(declaration_of(planned({{tensor("z"), {}}}))).is_ok());
  for (const int node : {0, 1}) {
    ASSERT_TRUE(is_locked(node));
    EXPECT_THAT(names_of(cluster_->node(node).core->plan()->batches.front().tensors),
                ElementsAre("z"));
    EXPECT_THAT(abandoned(node), IsEmpty()) << "it was not wrong";
  }
}

// A framework declares its plan without being asked, and the operator has asked for the file's.
TEST_F(DeclaredPlans, ARecordedOneStaysInForce) {
  JobOptions options;
  const StepRecord step = step_of(planned({{tensor("a"), {}}, {tensor("b"), {}}}));
  options.agreement.replayed =
      std::make_shared<const Plan>(make_plan_tree({&step}, {1 << 20}, 0)->plan);
  cluster_.emplace(std::vector<int>{1, 1}, options);
  cluster_->start();
  ranks_ = 2;
  ASSERT_TRUE(declare(plan_).is_ok());
  for (const int node : {0, 1}) {
    ASSERT_TRUE(is_locked(node));
    EXPECT_EQ(cluster_->node(node).core->plan()->batches.size(), 1u);
    EXPECT_THAT(abandoned(node), IsEmpty());
  }
}

TEST_F(DeclaredPlans, ARankThatLeavesDoesNotMakeItWrong) {
  start({1, 1});
  ASSERT_TRUE(declare(plan_).is_ok());
  cluster_->detach(1);
  cluster_->settle();
  for (const int node : {0, 1}) {
    EXPECT_FALSE(is_locked(node));
    EXPECT_THAT(abandoned(node), IsEmpty());
  }
}

TEST_F(DeclaredPlans, OtherModesTakeNoNotice) {
  JobOptions options;
  options.agreement.mode = Coordination::kNegotiate;
  cluster_.emplace(std::vector<int>{1, 1}, options);
  cluster_->start();
  ranks_ = 2;
  EXPECT_TRUE(declare(plan_).is_ok());
  EXPECT_FALSE(is_locked(0));
  EXPECT_THAT(cluster_->node(1).notes.back(), HasSubstr("mode negotiate has no use for it"));
}

}  // namespace
}  // namespace rueda::core
