// Tests rule L9 of docs/protocol.md: steps of several kinds in one plan, and nodes that choose
// differently.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/modes/locked_cluster.h"

namespace rueda::core {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class AlternativesTest : public LockedTest {
 protected:
  // Makes steps with and without validation until both are in a plan.
  void lock_both() {
    start({1, 1});
    for (int i = 0; i < 12; ++i) {
      step(train_);
      if (i % 3 == 2) step({tensor("v")});
    }
    ASSERT_TRUE(is_locked(0) && is_locked(1));
    ASSERT_TRUE(cluster_->node(0).core->plan()->has_alternatives());
  }
  // Returns the tensors of the node's last launch that is not cancelled.
  Names last_launch(int node) {
    Names names;
    for (const LaunchTensor& item : *cluster_->node(node).launches.back().tensors) {
      names.push_back(item.descriptor->name);
    }
    return names;
  }
  uint64_t last_seq(int node) { return cluster_->node(node).launches.back().seq.value; }
  void diverge(int node, uint64_t seq) {
    const uint32_t generation = cluster_->node(node).launches.back().generation;
    cluster_->step(node, OperationDiverged{Seq{seq}, generation, NodeIndex{1 - node}});
  }

  const std::vector<DescriptorPtr> train_{tensor("a"), tensor("b")};
};

TEST_F(AlternativesTest, AnyOfThemSendsNothing) {
  lock_both();
  for (const bool validates : {true, false, false, true, true, false}) {
    for (const DescriptorPtr& item : train_) cluster_->submit_everywhere(item);
    if (validates) cluster_->submit_everywhere(tensor("v"));
    cluster_->end_turns();
    EXPECT_THAT(cluster_->stream(0, 1), IsEmpty());
    EXPECT_THAT(cluster_->stream(1, 0), IsEmpty());
    complete_launched();
  }
  EXPECT_TRUE(is_locked(0) && is_locked(1));
  EXPECT_EQ(cluster_->node(0).core->submissions_in_flight(), 0u);
}

TEST_F(AlternativesTest, ThePlanGrowsByWhatEndedIt) {
  start({1, 1});
  lock(train_);
  step(train_);
  step({tensor("v")});
  EXPECT_FALSE(is_locked(0));
  for (int i = 0; i < 6; ++i) step(train_);
  ASSERT_TRUE(is_locked(0));
  EXPECT_THAT(cluster_->node(1).notes.back(), HasSubstr("3 tensors a step, in 2 batches, with 2 "));
  step({tensor("v")});
  EXPECT_TRUE(is_locked(0)) << "the second time it is no deviation";
}

// Local ranks are ready in the same order everywhere, whatever comes together in one turn.
TEST_F(AlternativesTest, WhatWasReadyFirstIsChosen) {
  lock_both();
  step(train_);
  cluster_->submit(0, tensor("v"));
  for (const DescriptorPtr& item : train_) cluster_->submit(0, item);
  cluster_->step(0, TurnEnded{});
  cluster_->submit(1, tensor("v"));
  cluster_->step(1, TurnEnded{});
  for (const DescriptorPtr& item : train_) cluster_->submit(1, item);
  complete_launched();
  EXPECT_TRUE(is_locked(0) && is_locked(1));
  EXPECT_EQ(cluster_->node(1).core->submissions_in_flight(), 0u);
}

// --- Nodes that go different ways ----------------------------------------------------------------

class DivergenceTest : public AlternativesTest {
 protected:
  // Makes node 0 take v for the operation, and node 1 take a and b.
  void part() {
    lock_both();
    step(train_);
    first_ = last_seq(0) + 1;
    v_ = cluster_->submit(0, tensor("v"));
    a_ = cluster_->submit(1, train_[0]);
    cluster_->submit(1, train_[1]);
    complete_launched();
    ASSERT_EQ(last_launch(0), Names({"v"}));
    ASSERT_EQ(last_launch(1), Names({"a", "b"}));
    for (int node : {0, 1}) ASSERT_EQ(last_seq(node), first_);
  }
  void finish() {
    cluster_->submit(0, train_[0]);
    cluster_->submit(0, train_[1]);
    cluster_->submit(1, tensor("v"));
    complete_launched();
    EXPECT_TRUE(cluster_->end_of(0, v_).is_ok());
    EXPECT_TRUE(cluster_->end_of(1, a_).is_ok());
    for (int node : {0, 1}) {
      EXPECT_EQ(cluster_->node(node).core->submissions_in_flight(), 0u);
      EXPECT_THAT(cluster_->node(node).failed, IsEmpty());
    }
  }

  uint64_t first_ = 0;
  Ticket v_;
  Ticket a_;
};

TEST_F(DivergenceTest, EitherNodeMayNotice) {
  for (const int notices : {0, 1}) {
    done_.clear();
    part();
    diverge(notices, first_);
    complete_launched();
    EXPECT_FALSE(is_locked(0));
    EXPECT_FALSE(is_locked(1));
    EXPECT_THAT(cluster_->node(0).notes.back(), HasSubstr("is another alternative of the plan on"));
    for (int node : {0, 1}) EXPECT_EQ(cluster_->node(node).cancels.back().first, Seq{first_});
    finish();
  }
}

// The operations after the divergence are the same batch on both nodes, by the same number; they
// are cancelled all the same.
TEST_F(DivergenceTest, NothingAfterwardsIsTheSame) {
  part();
  cluster_->submit(0, train_[0]);
  cluster_->submit(0, train_[1]);
  cluster_->submit(1, tensor("v"));
  complete_launched();
  for (int node : {0, 1}) ASSERT_EQ(last_seq(node), first_ + 1);
  EXPECT_NE(cluster_->node(0).launches.back().plan_hash,
            cluster_->node(1).launches.back().plan_hash);
  diverge(0, first_);
  complete_launched();
  EXPECT_TRUE(cluster_->end_of(0, v_).is_ok());
  EXPECT_TRUE(cluster_->end_of(1, a_).is_ok());
}

TEST_F(DivergenceTest, NewsOfALockThatIsOverChangesNothing) {
  part();
  diverge(0, first_);
  complete_launched();
  finish();
  const size_t notes = cluster_->node(0).notes.size();
  cluster_->step(0, OperationDiverged{Seq{first_}, 1, NodeIndex{1}});
  cluster_->settle();
  EXPECT_EQ(cluster_->node(0).notes.size(), notes);
}

TEST_F(DivergenceTest, WithoutAlternativesItIsAMismatch) {
  start({1, 1});
  lock(train_);
  cluster_->submit_everywhere(train_[0]);
  cluster_->submit_everywhere(train_[1]);
  cluster_->end_turns();
  diverge(0, last_seq(0));
  ASSERT_EQ(cluster_->node(0).failed.size(), 1u);
  EXPECT_EQ(cluster_->node(0).failed[0].code(), Code::kMismatch);
  EXPECT_THAT(cluster_->node(0).failed[0].message(), HasSubstr("node n1 means another batch"));
}

}  // namespace
}  // namespace rueda::core
