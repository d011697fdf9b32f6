// Tests how an epoch forms, how its ranks leave, and how the next epoch forms.

#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/core/job/shared_settings.h"
#include "tests/core/job/job_cluster.h"

namespace rueda::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// --- Forming -------------------------------------------------------------------------------------

TEST(JobForming, StartsWhenEveryRankIsThere) {
  Cluster job({2, 1});
  job.attach(0);
  job.attach(2);
  job.settle();
  EXPECT_EQ(job.state(0), JobState::kForming);
  EXPECT_THAT(job.node(0).core->missing_ranks(), ElementsAre(Rank{1}));
  EXPECT_THAT(job.node(1).core->missing_ranks(), IsEmpty());
  job.attach(1);
  job.settle();
  for (int node = 0; node < 2; ++node) {
    EXPECT_EQ(job.state(node), JobState::kRunning);
    ASSERT_EQ(job.node(node).started.size(), 1u);
    EXPECT_EQ(job.node(node).started[0].epoch, Epoch{1});
    EXPECT_THAT(job.node(node).started[0].data_addresses, ElementsAre("data0", "data1"));
  }
  EXPECT_TRUE(job.node(0).core->is_coordinator());
  EXPECT_FALSE(job.node(1).core->is_coordinator());
}

TEST(JobForming, OneNodeNeedsNobody) {
  Cluster job({1});
  job.attach(0);
  EXPECT_EQ(job.state(0), JobState::kRunning);
  EXPECT_FALSE(job.node(0).core->wakes_at().has_value());
}

std::vector<int32_t> ring_of(Cluster& job, int node) {
  std::vector<int32_t> ring;
  for (const NodeIndex index : job.node(node).core->layout().ring()) ring.push_back(index.value);
  return ring;
}

void attach_all(Cluster& job) {
  for (int rank = 0; rank < job.layout().world_size(); ++rank) job.attach(rank);
  job.settle();
}

TEST(JobForming, NodesOfARackStandTogetherInTheRing) {
  JobOptions tree;
  tree.tree = {2, 2};  // node 3 is below node 1
  for (const JobOptions& options : {JobOptions{}, tree}) {
    Cluster job({1, 1, 1, 1}, options, {"a", "b", "a", "b"});
    attach_all(job);
    for (int node = 0; node < 4; ++node) {
      EXPECT_EQ(job.state(node), JobState::kRunning);
      EXPECT_THAT(ring_of(job, node), ElementsAre(0, 2, 1, 3));
    }
  }
}

TEST(JobForming, TheCoordinatorsBandwidthsDecideWhereRacksDoNot) {
  JobOptions options;
  options.bandwidths.assign(4, std::vector<double>(4, 10));
  options.bandwidths[0][1] = 1;
  Cluster job({1, 1, 1, 1}, options);
  attach_all(job);
  for (int node = 0; node < 4; ++node) EXPECT_THAT(ring_of(job, node), ElementsAre(0, 2, 1, 3));
}

TEST(JobForming, ARingThatCannotBeEndsTheJob) {
  Cluster job({1, 1});
  job.attach(0);
  job.attach(1);
  job.deliver(1, 0);
  ASSERT_EQ(job.stream(0, 1).size(), 1u);
  std::get<Start>(job.stream(0, 1).front().body).ring = {NodeIndex{1}, NodeIndex{1}};
  job.settle();
  ASSERT_EQ(job.node(1).failed.size(), 1u);
  EXPECT_THAT(job.node(1).failed[0].message(), HasSubstr("does not have each member once"));
  EXPECT_EQ(job.state(0), JobState::kFailed);
}

TEST(JobForming, JoinIsSentAgainUntilStart) {
  Cluster job({1, 1});
  job.attach(1);
  ASSERT_EQ(job.stream(1, 0).size(), 1u);
  job.stream(1, 0).clear();  // the coordinator's daemon was not up yet
  job.pass(299);
  EXPECT_THAT(job.stream(1, 0), IsEmpty());
  job.pass(1);
  ASSERT_EQ(job.stream(1, 0).size(), 1u);
  job.attach(0);
  job.settle();
  EXPECT_EQ(job.state(1), JobState::kRunning);
  job.pass(300);
  EXPECT_THAT(job.stream(1, 0), IsEmpty());
  EXPECT_FALSE(job.node(1).core->wakes_at().has_value());
}

TEST(JobForming, ARepeatedJoinOrStartChangesNothing) {
  Cluster job({1, 1});
  job.attach(1);
  const Message join = job.stream(1, 0).front();
  job.attach(0);
  job.deliver(1, 0);
  const Message start = job.stream(0, 1).front();
  job.settle();
  job.step(0, MessageArrived{join});
  job.step(1, MessageArrived{start});
  EXPECT_EQ(job.node(0).started.size(), 1u);
  EXPECT_EQ(job.node(1).started.size(), 1u);
  EXPECT_EQ(job.state(0), JobState::kRunning);
}

TEST(JobForming, AJoinCountsWithItsLatestWord) {
  Cluster job({1, 2});
  job.attach(1);
  job.detach(1);
  job.attach(2);
  job.settle();
  job.attach(0);
  job.settle();
  EXPECT_EQ(job.state(0), JobState::kForming) << "rank 1 has gone again";
  job.attach(1);
  job.settle();
  EXPECT_EQ(job.state(0), JobState::kRunning);
}

TEST(JobForming, AnotherLayoutIsRefusedWithBothNodes) {
  Cluster job({1, 1});
  job.step(0, MessageArrived{{NodeIndex{1}, Epoch{1}, 0, Join{99, "data1", {Rank{1}}, {}}}});
  EXPECT_EQ(job.node(0).failed.at(0),
            Status(Code::kMismatch,
                   "node n1 was told another layout of job train than node n0; start the launchers "
                   "of all nodes with the same options"));
}

// Returns the Join that node 1 of a job of two sends.
Join join_of(const Cluster& job, const JobOptions& options = {}) {
  JobOptions theirs = options;
  theirs.job = "train";
  return {job.layout().hash(), "data1", {Rank{1}}, shared_settings(theirs)};
}

// What differs between two nodes, and the sentence about it.
struct Difference {
  const char* what;
  std::function<void(JobOptions&)> makes;
  std::string sentence;
};

// Nodes with different settings would wait for each other in vain, or have different orders.
TEST(JobForming, AnotherSettingIsRefusedWithBothNodesValues) {
  const std::vector<Difference> differences{
      {"coordination", [](JobOptions& o) { o.agreement.mode = Coordination::kNegotiate; },
       "--coordination locked on node n0 and negotiate on node n1"},
      {"cache", [](JobOptions& o) { o.agreement.cache_capacity = 7; },
       "--cache-capacity 1024 on node n0 and 7 on node n1"},
      {"algorithm", [](JobOptions& o) { o.algorithm = AlgorithmChoice::kRing; },
       "--algorithm auto on node n0 and ring on node n1"},
      {"servers", [](JobOptions& o) { o.servers = 2; }, "--servers 1 on node n0 and 2 on node n1"},
      {"reducer", [](JobOptions& o) { o.reducer = Reducer::kDevice; },
       "--reducer node on node n0 and device on node n1"},
      {"carrier", [](JobOptions& o) { o.inter_node = InterNode::kNccl; },
       "--inter-node rueda on node n0 and nccl on node n1"},
      {"tuning", [](JobOptions& o) { o.is_tuned = true; },
       "--autotune or --plan no on node n0 and yes on node n1"},
      {"transport", [](JobOptions& o) { o.is_over_grpc = true; },
       "ruedad --transport another than grpc on node n0 and grpc on node n1"},
      {"tree", [](JobOptions& o) { o.tree.fan_in = 3; },
       "ruedad --tree-fan-in 32 on node n0 and 3 on node n1"},
      {"failure timeout", [](JobOptions& o) { o.failure_timeout_ms = 1'000; },
       "ruedad --failure-timeout 5000 ms on node n0 and 1000 ms on node n1"},
      {"what only the engine knows",
       [](JobOptions& o) {
         o.also_shared = {{"--min-np", "2"}};
       },
       "--min-np no value on node n0 and 2 on node n1"},
  };
  for (const Difference& difference : differences) {
    JobOptions ours;
    ours.agreement.mode = Coordination::kLocked;
    Cluster job({1, 1}, ours);
    JobOptions theirs = ours;
    difference.makes(theirs);
    job.step(0, MessageArrived{{NodeIndex{1}, Epoch{1}, 0, join_of(job, theirs)}});
    EXPECT_EQ(job.node(0).failed.at(0),
              Status(Code::kMismatch, "job train has for " + difference.sentence +
                                          "; give it the same value on all nodes"))
        << difference.what;
  }
}

// Each node would sleep by a clock of its own, or wait for a sleep that nobody agrees on.
TEST(JobForming, AnotherCycleIsRefusedWhereThereIsOne) {
  JobOptions ours;
  ours.agreement.mode = Coordination::kGlobalSleep;
  ours.agreement.cycle_time_us = 2'500;
  for (const bool differs_in_time : {true, false}) {
    Cluster job({1, 1}, ours);
    JobOptions theirs = ours;
    if (differs_in_time) {
      theirs.agreement.cycle_time_us = 50;
    } else {
      theirs.agreement.sleep_agreed_every = 50;
    }
    job.step(0, MessageArrived{{NodeIndex{1}, Epoch{1}, 0, join_of(job, theirs)}});
    EXPECT_EQ(job.node(0).failed.at(0),
              Status(Code::kMismatch,
                     std::string("job train has for ") +
                         (differs_in_time ? "--cycle-time-ms 2500 us on node n0 and 50 us"
                                          : "--sleep-agreed-every 1 on node n0 and 50") +
                         " on node n1; give it the same value on all nodes"));
  }
}

// The number of ranks alone was once compared, so that wrong ranks could stand in for missing ones.
TEST(JobForming, AJoinWithRanksOfAnotherNodeIsRefused) {
  for (Rank stray : {Rank{0}, Rank{3}, Rank{-1}}) {
    Cluster job({1, 2});
    job.attach(0);
    const uint64_t layout_hash = job.node(0).core->layout().hash();
    job.step(0, MessageArrived{
                    {NodeIndex{1}, Epoch{1}, 0,
                     Join{layout_hash, "data1", {Rank{1}, stray}, shared_settings(JobOptions{})}}});
    EXPECT_THAT(job.node(0).started, IsEmpty());
    EXPECT_EQ(job.node(0).failed.at(0),
              Status(Code::kInternal, "node n1 says that rank " + std::to_string(stray.value) +
                                          " of job train is attached there, where the layout does "
                                          "not have it"));
  }
}

TEST(JobForming, TheTimeoutNamesRanksAndNodes) {
  Cluster job({2, 2, 1});
  job.attach(1);
  job.attach(2);
  job.settle();
  EXPECT_TRUE(job.node(0).core->wakes_at().has_value());
  job.pass(59'999);
  EXPECT_EQ(job.state(0), JobState::kForming);
  job.pass(1);
  ASSERT_EQ(job.node(0).failed.size(), 1u);
  EXPECT_EQ(job.node(0).failed[0],
            Status(Code::kTimeout,
                   "job train did not start within 60 s: waiting for rank 0 on node n0; rank 3 on "
                   "node n1; rank 4 on node n2, of which nothing was heard"));
  EXPECT_EQ(job.state(1), JobState::kForming) << "members leave it to the coordinator to say why";
  job.settle();
  EXPECT_EQ(job.node(1).failed.at(0), job.node(0).failed[0]);
}

TEST(JobForming, AMemberThatHearsNothingSaysSo) {
  Cluster job({1, 1});
  job.attach(1);
  job.stream(1, 0).clear();
  job.pass(61'999);
  EXPECT_EQ(job.state(1), JobState::kForming);
  job.pass(1);
  EXPECT_EQ(job.node(1).failed.at(0).message(),
            "job train did not start within 60 s: waiting for word from the coordinator on node "
            "n0");
}

TEST(JobForming, NobodyWaitsNobodyTimesOut) {
  Cluster job({1, 1});
  job.attach(1);
  job.settle();
  job.detach(1);
  job.settle();
  job.pass(1);
  EXPECT_FALSE(job.node(0).core->wakes_at().has_value());
  EXPECT_FALSE(job.node(1).core->wakes_at().has_value());
  job.pass(1'000'000);
  EXPECT_EQ(job.state(0), JobState::kForming);
  EXPECT_EQ(job.state(1), JobState::kForming);
}

TEST(JobForming, AJoinAfterTheFailureIsAnswered) {
  Cluster job({1, 1});
  job.attach(0);
  job.step(0, RankLost{LocalRank{0}, Status(Code::kRankLost, "rank 0 died")});
  job.stream(0, 1).clear();  // n1 had not joined, so n0 could not tell it
  job.attach(1);
  job.settle();
  EXPECT_EQ(job.node(1).failed.at(0), Status(Code::kRankLost, "rank 0 died"));
}

TEST(JobForming, WhoMayAttach) {
  Cluster job({2, 1});
  const JobCore& core = *job.node(0).core;
  EXPECT_TRUE(core.may_attach(LocalRank{1}).is_ok());
  EXPECT_THAT(core.may_attach(LocalRank{2}).message(),
              HasSubstr("local ranks 0 to 1 on this node, not 2"));
  EXPECT_FALSE(core.may_attach(LocalRank{-1}).is_ok());
  job.attach(1);
  EXPECT_EQ(core.may_attach(LocalRank{1}).message(),
            "rank 1 of job train is attached already; start each rank once");
  job.step(0, RankLost{LocalRank{1}, Status(Code::kRankLost, "rank 1 died")});
  EXPECT_EQ(core.may_attach(LocalRank{0}),
            Status(Code::kRankLost, "job train is over: rank 1 died"));
}

// --- Leaving -------------------------------------------------------------------------------------

TEST(JobLeaving, TheEpochFinishesWhenEveryRankHasLeft) {
  Cluster job({1, 2});
  job.start();
  for (const int rank : {1, 0}) {
    job.detach(rank);
    job.settle();
    EXPECT_EQ(job.state(0), JobState::kRunning);
  }
  job.detach(2);
  job.settle();
  for (int node = 0; node < 2; ++node) {
    EXPECT_THAT(job.node(node).finished, ElementsAre(Epoch{1}));
    EXPECT_EQ(job.state(node), JobState::kForming);
    EXPECT_EQ(job.node(node).core->epoch(), Epoch{2});
    EXPECT_EQ(job.node(node).core->attached(), 0u);
  }
}

TEST(JobLeaving, WhatTheOthersHaveInFlightEndsWithAReason) {
  Cluster job({1, 2});
  job.start();
  const Ticket reported = job.submit(0, tensor("a"));
  const Ticket half = job.submit(1, tensor("b"));  // rank 2 has not, so n1 cannot report it
  job.settle();
  job.detach(2);
  job.settle();
  EXPECT_EQ(job.end_of(0, reported).code(), Code::kShutDown);
  EXPECT_EQ(job.end_of(0, reported).message(), describe_left("a", Rank{2}));
  EXPECT_EQ(job.end_of(1, half).message(), describe_left("b", Rank{2}));
  const Ticket late = job.submit(0, tensor("c"));
  EXPECT_EQ(job.end_of(0, late),
            Status(Code::kShutDown, describe_left("c", Rank{2}), Origin{{}, Rank{2}}));
  EXPECT_EQ(job.state(0), JobState::kRunning) << "leaving is no failure";
}

TEST(JobLeaving, OperationsDecreedBeforeStillComplete) {
  Cluster job({1, 1});
  job.start();
  job.submit_everywhere(tensor("a"));
  job.settle();
  job.step(1, OperationDone{Seq{1}});
  job.detach(1);
  job.settle();
  ASSERT_EQ(job.state(0), JobState::kRunning);
  EXPECT_THAT(job.node(0).deliveries, IsEmpty());
  job.step(0, OperationDone{Seq{1}});
  ASSERT_EQ(job.node(0).deliveries.size(), 1u);
  EXPECT_TRUE(job.node(0).deliveries[0].status.is_ok());
}

TEST(JobLeaving, APartOfAGroupIsNotLeftWaiting) {
  Cluster job({1, 1});
  job.start();
  const Ticket ticket = job.submit(0, member_of("g", 2, "g1"));
  job.settle();
  job.detach(1);
  job.settle();
  EXPECT_EQ(job.end_of(0, ticket).code(), Code::kShutDown);
}

TEST(JobLeaving, AMemberReportsWhileTheDecreeOfTheErrorIsOnItsWay) {
  Cluster job({1, 1, 1});
  job.start();
  const Ticket first = job.submit(1, tensor("a"));
  job.settle();
  const Ticket crossing = job.submit(2, tensor("a"));
  job.step(2, TurnEnded{});  // sends its report
  job.detach(0);
  job.settle();
  EXPECT_EQ(job.end_of(1, first).code(), Code::kShutDown);
  EXPECT_EQ(job.end_of(2, crossing).code(), Code::kShutDown);
  for (int node = 0; node < 3; ++node) EXPECT_EQ(job.state(node), JobState::kRunning);
}

TEST(JobLeaving, WithOperationsInFlightItIsALoss) {
  Cluster job({1, 1});
  job.start();
  const Ticket own = job.submit(1, tensor("a"));
  job.detach(1);
  EXPECT_EQ(job.node(1).failed.at(0),
            Status(Code::kRankLost, "rank 1 on node n1 left the job with operations in flight",
                   Origin{"n1", Rank{1}}));
  EXPECT_EQ(job.end_of(1, own).code(), Code::kRankLost);
  job.settle();
  EXPECT_EQ(job.node(0).failed.at(0), job.node(1).failed[0]);
}

TEST(JobLeaving, ALeaveForAnotherNodesRankIsIgnored) {
  Cluster job({1, 1});
  job.start();
  job.step(0, MessageArrived{{NodeIndex{1}, Epoch{1}, 1, Leave{Rank{0}}}});
  job.step(0, MessageArrived{{NodeIndex{1}, Epoch{1}, 2, Leave{Rank{17}}}});
  EXPECT_THAT(job.stream(0, 1), IsEmpty());
}

// --- The next epoch ------------------------------------------------------------------------------

TEST(JobSecondEpoch, TheSameJobRunsAgainFromOperationOne) {
  Cluster job({1, 1});
  job.start();
  job.submit_everywhere(tensor("a"));
  job.settle();
  job.done_everywhere(1);
  for (const int rank : {0, 1}) job.detach(rank);
  job.settle();

  job.start();
  EXPECT_EQ(job.node(1).started.at(1).epoch, Epoch{2});
  const Ticket again = job.submit(0, tensor("a"));
  job.submit(1, tensor("a"));
  job.settle();
  EXPECT_EQ(job.node(1).launches.at(1).epoch, Epoch{2});
  EXPECT_EQ(job.node(1).launches.at(1).seq, Seq{1});
  job.done_everywhere(1);
  EXPECT_TRUE(job.end_of(0, again).is_ok());
}

TEST(JobSecondEpoch, ARankMayReattachBeforeTheOthersHaveLeft) {
  Cluster job({1, 1});
  job.start();
  job.detach(1);
  job.settle();
  EXPECT_TRUE(job.node(1).core->may_attach(LocalRank{0}).is_ok());
  job.attach(1);
  EXPECT_FALSE(job.node(1).core->may_attach(LocalRank{0}).is_ok());
  EXPECT_EQ(job.state(1), JobState::kRunning) << "the old epoch is not over";
  job.detach(0);
  job.settle();
  EXPECT_EQ(job.state(1), JobState::kForming);
  EXPECT_EQ(job.node(1).core->attached(), 1u);
  job.attach(0);
  job.settle();
  EXPECT_EQ(job.state(0), JobState::kRunning);
  EXPECT_EQ(job.node(0).started.at(1).epoch, Epoch{2});
}

TEST(JobSecondEpoch, AnEarlyRankMayThinkBetterOfIt) {
  Cluster job({1, 1});
  job.start();
  job.detach(1);
  job.attach(1);
  job.detach(1);
  job.detach(0);
  job.settle();
  EXPECT_EQ(job.node(1).core->attached(), 0u);
  EXPECT_EQ(job.node(1).core->epoch(), Epoch{2});
  EXPECT_EQ(job.state(1), JobState::kForming);
}

TEST(JobSecondEpoch, MessagesOfTheFirstAreIgnored) {
  Cluster job({1, 1});
  job.start();
  for (const int rank : {0, 1}) job.detach(rank);
  job.settle();
  job.start();
  job.step(0, MessageArrived{{NodeIndex{1}, Epoch{1}, 1, Leave{Rank{1}}}});
  job.step(0, MessageArrived{{NodeIndex{1}, Epoch{1}, 0, Fail{Status(Code::kInternal, "old")}}});
  job.step(0, MessageArrived{{NodeIndex{1}, Epoch{1}, 0, Join{}}});
  EXPECT_EQ(job.state(0), JobState::kRunning);
  EXPECT_THAT(job.stream(0, 1), IsEmpty());
}

}  // namespace
}  // namespace rueda::core
