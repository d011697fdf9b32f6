// Tests policy `fail`: the first death ends the job, and every survivor is told who died.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/job/job_cluster.h"

namespace rueda::core {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const Status kRankDied(Code::kRankLost, "rank 2 died", Origin{"n2", Rank{2}});
const Status kNodeDied(Code::kNodeLost, "node n1 is lost", Origin{"n1", {}});
const Status kChannelBroke(Code::kNodeLost, "the channel to node n1 broke", Origin{"n1", {}});

// Sets up three nodes of one rank. "running" is launched, "waiting" is submitted by rank 0 alone.
class JobEndings : public testing::Test {
 protected:
  void SetUp() override {
    job_.start();
    for (int rank = 0; rank < 3; ++rank) running_.push_back(job_.submit(rank, tensor("running")));
    job_.settle();
    waiting_ = job_.submit(0, tensor("waiting"));
    job_.settle();
    ASSERT_EQ(job_.node(0).launches.size(), 1u);
  }

  void expect_all_failed_with(const Status& status, const std::vector<int>& nodes) {
    for (const int node : nodes) {
      SCOPED_TRACE("node " + std::to_string(node));
      EXPECT_EQ(job_.state(node), JobState::kFailed);
      EXPECT_THAT(job_.node(node).failed, ElementsAre(status)) << "told once";
      EXPECT_EQ(job_.node(node).core->failure(), status);
      EXPECT_EQ(job_.end_of(node, running_[static_cast<size_t>(node)]), status);
      EXPECT_EQ(job_.node(node).core->submissions_in_flight(), 0u);
    }
  }

  Cluster job_{{1, 1, 1}};
  std::vector<Ticket> running_;
  Ticket waiting_;
};

TEST_F(JobEndings, ALostRankEndsTheJobEverywhereWithItsName) {
  job_.step(2, RankLost{LocalRank{0}, kRankDied});
  job_.settle();
  expect_all_failed_with(kRankDied, {0, 1, 2});
  EXPECT_EQ(job_.end_of(0, waiting_), kRankDied);
}

TEST_F(JobEndings, ALostNodeEndsTheJobOfTheSurvivors) {
  job_.step(0, NodeLost{NodeIndex{1}, kNodeDied});
  job_.settle();
  expect_all_failed_with(kNodeDied, {0, 2});
}

TEST_F(JobEndings, AFailedOperationEndsTheJob) {
  const Status broken(Code::kResourceExhausted, "operation 1 failed on node n1");
  job_.step(1, OperationFailed{Seq{1}, broken});
  job_.settle();
  expect_all_failed_with(broken, {0, 1, 2});
}

TEST_F(JobEndings, AClosedJobEndsForTheOthersToo) {
  const Status closed(Code::kShutDown, "the launcher of node n2 went away");
  job_.step(2, JobClosed{closed});
  job_.settle();
  expect_all_failed_with(closed, {0, 1, 2});
}

TEST_F(JobEndings, AnEndThatSomebodyAsksForEndsTheJobEverywhereAndSaysSo) {
  const Status asked(Code::kShutDown, "ended by user 0", Origin{"n1", {}, true});
  job_.step(1, JobEnded{asked});
  job_.settle();
  expect_all_failed_with(asked, {0, 1, 2});
}

TEST_F(JobEndings, TheFirstCauseStays) {
  job_.step(2, RankLost{LocalRank{0}, kRankDied});
  job_.settle();
  job_.step(0, NodeLost{NodeIndex{1}, kNodeDied});
  job_.step(0, DataChannelLost{NodeIndex{1}, kChannelBroke});
  job_.step(0, JobClosed{Status(Code::kShutDown, "closed")});
  job_.pass(1'000'000);
  job_.settle();
  expect_all_failed_with(kRankDied, {0, 1, 2});
}

TEST_F(JobEndings, NothingIsDeliveredOrAcceptedAfterTheEnd) {
  job_.step(2, RankLost{LocalRank{0}, kRankDied});
  job_.settle();
  const size_t deliveries = job_.node(0).deliveries.size();
  job_.step(0, OperationDone{Seq{1}});  // was on its way from the data plane
  EXPECT_EQ(job_.node(0).deliveries.size(), deliveries);
  const Ticket late = job_.submit(0, tensor("late"));
  EXPECT_EQ(job_.end_of(0, late), kRankDied);
}

TEST(JobEndingsWhileForming, AnEndThatSomebodyAsksForIsHeardByWhoComesLater) {
  const Status asked(Code::kShutDown, "ended by user 0", Origin{"n1", {}, true});
  Cluster job{{1, 1, 1}};
  job.step(1, RankAttached{LocalRank{0}});
  job.step(1, JobEnded{asked});
  job.settle();
  EXPECT_THAT(job.node(0).failed, ElementsAre(asked));
  job.step(2, RankAttached{LocalRank{0}});
  job.settle();
  EXPECT_THAT(job.node(2).failed, ElementsAre(asked));
}

// --- Suspicion -----------------------------------------------------------------------------------

TEST_F(JobEndings, ABrokenChannelSealsTheEpochUntilTheCauseIsKnown) {
  job_.step(0, DataChannelLost{NodeIndex{1}, kChannelBroke});
  EXPECT_EQ(job_.state(0), JobState::kSuspecting);
  EXPECT_TRUE(job_.node(0).core->wakes_at().has_value());
  job_.step(0, OperationDone{Seq{1}});
  EXPECT_FALSE(job_.has_ended(0, running_[0])) << "sealed";
}

// The client was once told of the broken channel, and the true cause came a moment later.
TEST_F(JobEndings, WhatIsSubmittedUnderSuspicionEndsWithTheTrueCause) {
  job_.step(0, DataChannelLost{NodeIndex{1}, kChannelBroke});
  const Ticket late = job_.submit(0, tensor("late"));
  job_.settle();
  EXPECT_FALSE(job_.has_ended(0, late));
  job_.step(2, RankLost{LocalRank{0}, kRankDied});
  job_.settle();
  EXPECT_EQ(job_.end_of(0, late), kRankDied);
}

TEST_F(JobEndings, TheTrueCauseThatArrivesInTimeIsTheOneReported) {
  job_.step(0, DataChannelLost{NodeIndex{1}, kChannelBroke});
  job_.pass(999);
  EXPECT_EQ(job_.state(0), JobState::kSuspecting);
  // Rank 2's death made n2 close its channels; n2 tells the coordinator why.
  job_.step(2, RankLost{LocalRank{0}, kRankDied});
  job_.settle();
  expect_all_failed_with(kRankDied, {0, 1, 2});
}

TEST_F(JobEndings, ANodeLostWithinTheGraceIsTheCause) {
  job_.step(0, DataChannelLost{NodeIndex{1}, kChannelBroke});
  job_.step(0, NodeLost{NodeIndex{1}, kNodeDied});
  job_.settle();
  expect_all_failed_with(kNodeDied, {0, 2});
}

TEST_F(JobEndings, WithoutACauseTheBrokenChannelIsIt) {
  job_.step(0, DataChannelLost{NodeIndex{1}, kChannelBroke});
  job_.pass(1'000);
  job_.settle();
  expect_all_failed_with(kChannelBroke, {0, 1, 2});
  job_.step(2, RankLost{LocalRank{0}, kRankDied});
  job_.settle();
  expect_all_failed_with(kChannelBroke, {0, 1, 2});
}

TEST_F(JobEndings, TheFirstSuspicionSetsTheClock) {
  job_.step(0, DataChannelLost{NodeIndex{1}, kChannelBroke});
  job_.pass(600);
  job_.step(0, DataChannelLost{NodeIndex{2}, Status(Code::kNodeLost, "another")});
  job_.pass(400);
  expect_all_failed_with(kChannelBroke, {0});
}

// --- Nodes whose end is no loss
// -------------------------------------------------------------------

TEST(JobLosses, ANodeWhoseRanksHaveAllLeftIsNotMissed) {
  Cluster job({1, 1});
  job.start();
  job.detach(1);
  job.settle();
  job.step(0, DataChannelLost{NodeIndex{1}, kChannelBroke});
  job.step(0, NodeLost{NodeIndex{1}, kNodeDied});
  EXPECT_EQ(job.state(0), JobState::kRunning);
  job.detach(0);
  EXPECT_THAT(job.node(0).finished, ElementsAre(Epoch{1}));
}

// The node has passed on all that it had before its ranks left, unless the data plane knows better;
// in that case its operations would wait for ever.
TEST(JobLosses, ANodeThatHasLeftIsMissedByAnOperationThatCannotEndWithoutIt) {
  Cluster job({1, 1});
  job.start();
  const Ticket ticket = job.submit(0, tensor("a"));
  job.submit(1, tensor("a"));
  job.settle();
  job.step(1, OperationDone{Seq{1}});
  job.detach(1);
  job.settle();
  job.step(0, DataChannelLost{NodeIndex{1}, kChannelBroke, 0, true});
  EXPECT_EQ(job.state(0), JobState::kSuspecting);
  job.pass(1'000);
  EXPECT_EQ(job.state(0), JobState::kFailed);
  EXPECT_EQ(job.end_of(0, ticket), kChannelBroke);
}

TEST(JobLosses, AGoodbyeDoesNotExplainALossThatIsMissed) {
  Cluster job({1, 1});
  job.start();
  const Ticket ticket = job.submit(0, tensor("a"));
  job.submit(1, tensor("a"));
  job.settle();
  job.step(1, OperationDone{Seq{1}});
  job.step(0, DataChannelLost{NodeIndex{1}, kChannelBroke, 0, false});
  job.step(0, DataChannelLost{NodeIndex{1}, kChannelBroke, 0, true});
  job.detach(1);
  job.settle();
  EXPECT_EQ(job.state(0), JobState::kSuspecting);
  job.pass(1'000);
  EXPECT_EQ(job.end_of(0, ticket), kChannelBroke);
}

TEST(JobLosses, ACoordinatorIsMissedByWhoeverWaitsForItsDecree) {
  Cluster job({1, 1, 1});
  job.start();
  const Ticket waiting = job.submit(1, tensor("a"));
  job.step(1, TurnEnded{});  // reports the tensor, which the coordinator never ends
  job.detach(0);
  job.deliver(0, 1);
  job.deliver(0, 2);
  const Status coordinator_died(Code::kNodeLost, "node n0 is lost", Origin{"n0", {}});
  job.step(1, NodeLost{NodeIndex{0}, coordinator_died});
  EXPECT_EQ(job.end_of(1, waiting), coordinator_died);
  job.step(2, NodeLost{NodeIndex{0}, coordinator_died});
  EXPECT_EQ(job.state(2), JobState::kRunning) << "it waits for nothing";
}

TEST(JobLosses, WhatTheCoordinatorDecreedBeforeItWentStillCompletes) {
  Cluster job({1, 1});
  job.start();
  job.submit(0, tensor("a"));
  const Ticket ticket = job.submit(1, tensor("a"));
  job.step(1, TurnEnded{});
  job.deliver(1, 0);
  job.step(0, TurnEnded{});
  job.step(0, OperationDone{Seq{1}});
  job.detach(0);
  while (!job.stream(0, 1).empty()) job.deliver(0, 1);
  job.step(1, NodeLost{NodeIndex{0}, Status(Code::kNodeLost, "node n0 is lost")});
  ASSERT_THAT(job.launched(1), ElementsAre(1));
  job.step(1, OperationDone{Seq{1}});
  EXPECT_TRUE(job.end_of(1, ticket).is_ok());
}

TEST(JobLosses, ANodeWithOneRankStillThereIsMissed) {
  Cluster job({1, 2});
  job.start();
  job.detach(1);
  job.settle();
  job.step(0, NodeLost{NodeIndex{1}, kNodeDied});
  EXPECT_EQ(job.state(0), JobState::kFailed);
}

TEST(JobLosses, WhileFormingOnlyANodeThatHasJoinedIsMissed) {
  Cluster job({1, 1});
  job.attach(0);
  job.step(0, NodeLost{NodeIndex{1}, kNodeDied});
  EXPECT_EQ(job.state(0), JobState::kForming);
  Cluster other({1, 1, 1});
  other.attach(1);
  other.settle();
  other.step(0, NodeLost{NodeIndex{1}, kNodeDied});
  EXPECT_EQ(other.state(0), JobState::kFailed);
}

// The coordinator hears the last goodbye first and closes its channels; another node sees that
// before it has read, on the control link, that everybody has left.
TEST(JobLosses, AChannelThatClosesBecauseTheEpochIsOverIsNoLoss) {
  Cluster job({1, 1});
  job.start();
  job.detach(0);
  job.detach(1);
  while (!job.stream(1, 0).empty()) job.deliver(1, 0);
  ASSERT_THAT(job.node(0).finished, ElementsAre(Epoch{1}));
  job.step(1, DataChannelLost{NodeIndex{0}, Status(Code::kNodeLost, "the channel broke")});
  job.settle();
  EXPECT_THAT(job.node(1).finished, ElementsAre(Epoch{1}));
  EXPECT_THAT(job.node(1).failed, IsEmpty());
  job.pass(10'000);
  EXPECT_EQ(job.state(1), JobState::kForming);
  EXPECT_EQ(job.node(1).core->epoch(), Epoch{2});
}

// The daemon stops as soon as its own ranks have left.
TEST(JobLosses, ASuspicionEndsWhenTheSuspectTurnsOutToHaveLeft) {
  Cluster job({1, 1, 1});
  job.start();
  job.detach(2);
  job.step(1, DataChannelLost{NodeIndex{2}, Status(Code::kNodeLost, "the channel broke")});
  ASSERT_EQ(job.state(1), JobState::kSuspecting);
  job.settle();
  EXPECT_EQ(job.state(1), JobState::kRunning);
  job.pass(10'000);
  for (const int rank : {0, 1}) job.detach(rank);
  job.settle();
  for (int node = 0; node < 3; ++node) {
    EXPECT_THAT(job.node(node).finished, ElementsAre(Epoch{1}));
    EXPECT_THAT(job.node(node).failed, IsEmpty());
  }
}

TEST(JobLosses, ARankMayLeaveDuringASuspicion) {
  Cluster job({1, 1, 1});
  job.start();
  job.detach(2);
  job.step(1, DataChannelLost{NodeIndex{2}, Status(Code::kNodeLost, "the channel broke")});
  for (const int rank : {0, 1}) job.detach(rank);
  job.settle();
  for (int node = 0; node < 3; ++node) {
    EXPECT_THAT(job.node(node).finished, ElementsAre(Epoch{1}));
  }
}

// The suspect has passed on all it had before its ranks left, so the operation ends here as well.
TEST(JobLosses, WhatEndsDuringASuspicionThatWasNoneIsDelivered) {
  Cluster job({1, 1});
  job.start();
  job.submit_everywhere(tensor("a"));
  job.settle();
  job.step(1, OperationDone{Seq{1}});
  job.step(0, DataChannelLost{NodeIndex{1}, kChannelBroke});
  job.step(0, OperationDone{Seq{1}});
  EXPECT_THAT(job.node(0).deliveries, IsEmpty()) << "R3: sealed";
  job.detach(1);
  job.settle();
  EXPECT_EQ(job.state(0), JobState::kRunning);
  ASSERT_EQ(job.node(0).deliveries.size(), 1u);
  EXPECT_TRUE(job.node(0).deliveries.front().status.is_ok());
  job.pass(10'000);
  EXPECT_THAT(job.node(0).failed, IsEmpty());
}

TEST(JobLosses, AClosedJobWithoutRanksHereHurtsNobody) {
  Cluster job({1, 1});
  job.step(1, JobClosed{Status(Code::kShutDown, "closed")});
  EXPECT_EQ(job.state(1), JobState::kForming);
  EXPECT_THAT(job.stream(1, 0), IsEmpty());
}

TEST(JobLosses, StatesHaveNames) {
  EXPECT_STREQ(to_string(JobState::kForming), "forming");
  EXPECT_STREQ(to_string(JobState::kRunning), "running");
  EXPECT_STREQ(to_string(JobState::kSuspecting), "suspecting");
  EXPECT_STREQ(to_string(JobState::kFailed), "failed");
}

}  // namespace
}  // namespace rueda::core
