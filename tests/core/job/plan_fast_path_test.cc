// Tests the fast path of a plan that repeats as it was, by itself and in a job.

#include "daemon/core/job/plan_fast_path.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/modes/locked_cluster.h"

namespace rueda::core {
namespace {

using testing::HasSubstr;

constexpr LocalRank kFirst{0};
constexpr LocalRank kSecond{1};
constexpr std::array<uint32_t, 2> kBoth{0, 1};

// Makes a plan of two batches: a and b, then c.
Plan plan_of_two() {
  Plan plan;
  plan.batches.push_back({{tensor("a"), tensor("b")}, kPlanStart, false});
  plan.batches.push_back({{tensor("c")}, 0, true});
  return plan;
}

LocalSubmission submission(LocalRank rank, uint64_t ticket, const DescriptorPtr& descriptor,
                           TicksMs at = 0) {
  return {rank, Ticket{ticket}, descriptor, at, {}};
}

bool take(PlanFastPath& fast_path, const LocalSubmission& submission) {
  return fast_path.take(submission.submitted_ms, submission.rank, submission.ticket,
                        submission.descriptor);
}

TEST(PlanFastPath, ABatchIsReadyWhenEveryRankHasSubmittedAllOfItInAnyOrder) {
  PlanFastPath fast_path(plan_of_two(), 2);
  EXPECT_TRUE(take(fast_path, submission(kFirst, 1, tensor("b"))));
  EXPECT_TRUE(take(fast_path, submission(kFirst, 2, tensor("c"))));
  EXPECT_TRUE(take(fast_path, submission(kFirst, 3, tensor("a"))));
  EXPECT_TRUE(take(fast_path, submission(kSecond, 1, tensor("a"))));
  EXPECT_TRUE(fast_path.has_all(kFirst, 0));
  EXPECT_FALSE(fast_path.has_all(kSecond, 0));
  EXPECT_EQ(fast_path.first_ready(kBoth), std::nullopt);
  EXPECT_TRUE(take(fast_path, submission(kSecond, 2, tensor("b"))));
  EXPECT_EQ(fast_path.first_ready(kBoth), 0u);
  EXPECT_TRUE(take(fast_path, submission(kSecond, 3, tensor("c"))));
  EXPECT_EQ(fast_path.first_ready(kBoth), 0u) << "it was ready first";
  EXPECT_EQ(fast_path.ticket(0, 0, kFirst), Ticket{3});
  EXPECT_EQ(fast_path.ticket(0, 1, kFirst), Ticket{1});
  EXPECT_EQ(fast_path.submissions(), 6u);
  EXPECT_EQ(fast_path.submissions_of(kFirst), 3u);
}

TEST(PlanFastPath, WhatThePlanDoesNotHaveSoIsNotTaken) {
  PlanFastPath fast_path(plan_of_two(), 1);
  EXPECT_FALSE(take(fast_path, submission(kFirst, 1, tensor("d"))));
  EXPECT_FALSE(take(fast_path, submission(kFirst, 1, tensor("a", 2))));
  EXPECT_EQ(fast_path.submissions(), 0u);
}

TEST(PlanFastPath, ATensorOfSeveralBatchesIsNotTaken) {
  Plan plan;
  plan.batches.push_back({{tensor("a")}, kPlanStart, true});
  plan.batches.push_back({{tensor("v")}, 0, true});
  plan.batches.push_back({{tensor("w")}, 0, false});
  plan.batches.push_back({{tensor("v")}, 2, true});
  PlanFastPath fast_path(plan, 1);
  EXPECT_TRUE(take(fast_path, submission(kFirst, 1, tensor("w"))));
  EXPECT_FALSE(take(fast_path, submission(kFirst, 2, tensor("v"))));
}

TEST(PlanFastPath, ATensorUnderWayIsNotTakenAgainBeforeItHasEnded) {
  PlanFastPath fast_path(plan_of_two(), 1);
  const DescriptorPtr a = tensor("a"), b = tensor("b");
  EXPECT_TRUE(take(fast_path, submission(kFirst, 1, a)));
  EXPECT_FALSE(take(fast_path, submission(kFirst, 2, a))) << "submitted already";
  EXPECT_TRUE(take(fast_path, submission(kFirst, 2, b)));
  fast_path.begin(0);
  EXPECT_EQ(fast_path.first_ready(kBoth), std::nullopt) << "it is launched once";
  EXPECT_FALSE(take(fast_path, submission(kFirst, 3, a)));
  EXPECT_FALSE(fast_path.gathers(kFirst, Ticket{1}));
  fast_path.end(0);
  EXPECT_FALSE(fast_path.repeats(0));
  EXPECT_TRUE(take(fast_path, submission(kFirst, 3, a)));
  EXPECT_TRUE(fast_path.gathers(kFirst, Ticket{3}));
  EXPECT_TRUE(fast_path.repeats(0)) << "c is to come before";
  EXPECT_FALSE(fast_path.repeats(1)) << "the round is over";
  EXPECT_EQ(fast_path.submissions(), 1u);
}

TEST(PlanFastPath, WhatIsGatheredIsGivenBackInTheOrderOfTickets) {
  PlanFastPath fast_path(plan_of_two(), 2);
  take(fast_path, submission(kSecond, 7, tensor("b"), 30));
  take(fast_path, submission(kFirst, 5, tensor("c"), 10));
  take(fast_path, submission(kFirst, 6, tensor("a"), 20));
  EXPECT_EQ(fast_path.since(), 10);
  Names names;
  for (const LocalSubmission& item : fast_path.take_gathered()) {
    names.push_back(item.descriptor->name);
  }
  EXPECT_EQ(names, (Names{"c", "a", "b"}));
  EXPECT_EQ(fast_path.submissions(), 0u);
  EXPECT_EQ(fast_path.since(), std::nullopt);
}

// --- In a job ------------------------------------------------------------------------------------

class RehearsedTest : public LockedTest {
 protected:
  void start_locked(const std::vector<int>& ranks_by_node) {
    start(ranks_by_node);
    lock({tensor("a"), tensor("b")});
  }
  const Collectives& all(int node) { return *cluster_->node(node).core->process_sets().front(); }
  size_t in_tables(int node) { return all(node).submissions().submissions(); }
  size_t in_fast_path(int node) { return all(node).in_flight() - in_tables(node); }
};

TEST_F(RehearsedTest, AStepLikeTheLastTouchesNoTable) {
  start_locked({2, 1});
  for (int i = 0; i < 3; ++i) {
    const Ticket last = cluster_->submit(2, tensor("b"));
    cluster_->submit(2, tensor("a"));
    for (const int rank : {0, 1}) {
      for (const char* name : {"a", "b"}) cluster_->submit(rank, tensor(name));
    }
    cluster_->end_turns();
    EXPECT_EQ(in_fast_path(0), 4u);
    EXPECT_EQ(in_fast_path(1), 2u);
    EXPECT_EQ(in_tables(0) + in_tables(1), 0u);
    complete_launched();
    EXPECT_TRUE(cluster_->end_of(2, last).is_ok());
    EXPECT_EQ(cluster_->node(0).core->submissions_in_flight(), 0u);
  }
  EXPECT_TRUE(is_locked(0));
}

TEST_F(RehearsedTest, ATensorThatComesTwiceIsRefusedAndTheFirstGoesOn) {
  start_locked({1, 1});
  const Ticket first = cluster_->submit(0, tensor("a"));
  cluster_->submit(0, tensor("b"));
  cluster_->end_turns();  // launches the batch here
  const Ticket again = cluster_->submit(0, tensor("a"));
  EXPECT_EQ(cluster_->end_of(0, again).code(), Code::kDuplicateName);
  for (const char* name : {"a", "b"}) cluster_->submit(1, tensor(name));
  complete_launched();
  EXPECT_TRUE(cluster_->end_of(0, first).is_ok());
  EXPECT_TRUE(is_locked(0));
}

// Node 0 has launched the batch and must take it back, but the agreement has never heard of its
// tensors.
TEST_F(RehearsedTest, WhatIsCancelledIsOrderedAnew) {
  start_locked({2, 1});
  std::vector<Ticket> tickets;
  for (const int rank : {0, 1}) {
    for (const char* name : {"a", "b"}) tickets.push_back(cluster_->submit(rank, tensor(name)));
  }
  cluster_->end_turns();
  EXPECT_EQ(in_fast_path(0), 4u);
  cluster_->submit(2, tensor("b"));
  cluster_->submit_everywhere(tensor("new"));
  complete_launched();
  EXPECT_FALSE(is_locked(0));
  ASSERT_EQ(cluster_->node(0).cancels.size(), 1u);
  for (size_t i = 0; i < tickets.size(); ++i) {
    EXPECT_EQ(cluster_->has_ended(static_cast<int>(i / 2), tickets[i]), i % 2 == 1) << i;
  }
  cluster_->submit(2, tensor("a"));
  complete_launched();
  for (size_t i = 0; i < tickets.size(); ++i) {
    EXPECT_TRUE(cluster_->end_of(static_cast<int>(i / 2), tickets[i]).is_ok()) << i;
  }
  EXPECT_EQ(cluster_->node(0).core->submissions_in_flight(), 0u);
}

TEST_F(RehearsedTest, ARankThatWaitsForWhatItHoldsUpUnlocks) {
  start_locked({1, 1});
  const Ticket b = cluster_->submit(0, tensor("b"));
  cluster_->step(0, RankWaits{cluster_->local(0), b});
  cluster_->submit(1, tensor("b"));
  complete_launched();
  EXPECT_FALSE(is_locked(0));
  EXPECT_THAT(cluster_->node(0).notes.back(), HasSubstr("rank 0 waits for tensor \"b\""));
  EXPECT_TRUE(cluster_->end_of(0, b).is_ok());
}

TEST_F(RehearsedTest, WhatTakesLongGoesToTheTables) {
  start_locked({2, 1});
  cluster_->submit(0, tensor("a"));
  cluster_->submit(2, tensor("a"));
  cluster_->submit(2, tensor("b"));  // is launched on node 1, and waits for node 0
  cluster_->end_turns();
  ASSERT_TRUE(cluster_->node(0).core->wakes_at());
  cluster_->pass(*cluster_->node(0).core->wakes_at() - cluster_->now());
  cluster_->end_turns();
  EXPECT_EQ(in_tables(0), 1u);
  EXPECT_EQ(in_tables(1), 2u);
  cluster_->submit(0, tensor("b"));
  for (const char* name : {"a", "b"}) cluster_->submit(1, tensor(name));
  complete_launched();
  EXPECT_TRUE(is_locked(0));
  EXPECT_EQ(cluster_->node(0).core->submissions_in_flight(), 0u);
}

// The fast path is active, with nothing in it, when the rank leaves.
TEST_F(RehearsedTest, WhatIsSubmittedAfterARankHasLeftIsRefused) {
  start({2});
  lock({tensor("a")});
  step({tensor("a")});
  cluster_->detach(0);
  const Ticket a = cluster_->submit(1, tensor("a"));
  cluster_->settle();
  EXPECT_EQ(cluster_->end_of(1, a).code(), Code::kShutDown);
}

TEST_F(RehearsedTest, TheEndOfTheJobEndsAllOfIt) {
  start_locked({2, 1});
  const Ticket launched = cluster_->submit(2, tensor("a"));
  cluster_->submit(2, tensor("b"));
  const Ticket gathered = cluster_->submit(1, tensor("b"));
  cluster_->end_turns();
  cluster_->step(0, RankLost{cluster_->local(0), Status(Code::kRankLost, "rank 0 died")});
  cluster_->settle();
  EXPECT_EQ(cluster_->end_of(2, launched).code(), Code::kRankLost);
  EXPECT_EQ(cluster_->end_of(1, gathered).code(), Code::kRankLost);
}

}  // namespace
}  // namespace rueda::core
