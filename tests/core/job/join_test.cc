// Tests rule L11, with a cluster whose streams move when the test says so.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/modes/locked_cluster.h"

namespace rueda::core {
namespace {

using testing::HasSubstr;

DescriptorPtr with_op(const std::string& name, ReduceOp op) {
  return tensor(name, 1, [&](TensorDescriptor& t) { t.op = op; });
}

DescriptorPtr broadcast(const std::string& name, int root) {
  return tensor(name, 1, [&](TensorDescriptor& t) {
    t.kind = CollectiveKind::kBroadcast;
    t.root = Rank{root};
  });
}

DescriptorPtr change(CollectiveKind kind, std::vector<int64_t> ranks) {
  return tensor(kProcessSetsName, 1, [&](TensorDescriptor& t) {
    t.kind = kind;
    t.shape = ranks;
  });
}

JobOptions in_mode(Coordination mode) {
  JobOptions options;
  options.agreement.mode = mode;
  options.agreement.fusion.threshold_bytes = 0;
  options.agreement.lock_after_steps = 2;
  return options;
}

// Runs every test in every mode.
class Join : public testing::TestWithParam<Coordination> {
 protected:
  void SetUp() override { job_.start(); }

  // Settles, with the time that rounds take.
  void settle() {
    for (int i = 0; i < 4; ++i) {
      job_.settle();
      job_.pass(1);
    }
    job_.settle();
  }
  // Completes every operation that all of its nodes have launched.
  void complete() {
    settle();
    for (int node = 0; node < 3; ++node) {
      std::vector<Launch>& launches = job_.node(node).launches;
      for (; completed_[node] < launches.size(); ++completed_[node]) {
        const Launch& launch = launches[completed_[node]];
        job_.step(node, OperationDone{launch.seq, launch.process_set});
      }
    }
    settle();
  }
  // Returns which of the node's ranks take part in the last operation.
  std::vector<bool> contributors(int node) {
    std::vector<bool> ranks;
    for (const auto& ticket : job_.node(node).launches.back().tickets_of(0)) {
      ranks.push_back(ticket.has_value());
    }
    return ranks;
  }
  std::string last_name(int node) {
    const std::vector<Launch>& launches = job_.node(node).launches;
    return launches.empty() ? "" : launches.back().tensors->front().descriptor->name;
  }
  uint32_t value_of(int rank, Ticket ticket) {
    for (const Delivery& delivery : job_.node(job_.home(rank)).deliveries) {
      if (delivery.rank == job_.local(rank) && delivery.ticket == ticket) return delivery.value;
    }
    return UINT32_MAX;
  }

  Cluster job_{{2, 2, 1}, in_mode(GetParam())};  // ranks 0 and 1; 2 and 3; 4
  std::map<int, size_t> completed_;
};

INSTANTIATE_TEST_SUITE_P(AllModes, Join, all_modes(), name_of_mode);

TEST_P(Join, AllComeBackWhenAllHaveJoinedAndKnowTheLast) {
  std::vector<Ticket> joins;
  for (const int rank : {0, 3, 4, 1}) {
    joins.push_back(job_.submit(rank, join()));
    settle();
    EXPECT_FALSE(job_.has_ended(rank, joins.back()));
  }
  joins.push_back(job_.submit(2, join()));
  settle();
  const int ranks[] = {0, 3, 4, 1, 2};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(job_.end_of(ranks[i], joins[i]).is_ok());
    EXPECT_EQ(value_of(ranks[i], joins[i]), 2u);
  }
}

TEST_P(Join, TheOthersGoOnWithoutARankThatHasJoined) {
  job_.submit(1, join());
  std::vector<Ticket> ends;
  for (const int rank : {0, 2, 3, 4}) ends.push_back(job_.submit(rank, tensor("a")));
  complete();
  EXPECT_EQ(contributors(0), (std::vector<bool>{true, false}));
  EXPECT_EQ(contributors(1), (std::vector<bool>{true, true}));
  EXPECT_TRUE(job_.end_of(0, ends[0]).is_ok());
  EXPECT_EQ(job_.node(0).deliveries.back().contributors, 5u) << "the divisor is that of all ranks";
}

// A node that has nothing has no GPU worker, and NCCL waits for all nodes.
TEST_P(Join, WhatNcclCarriesIsAnErrorWhileSomebodyHasJoined) {
  job_.submit(1, join());
  settle();
  std::vector<Ticket> ends;
  for (const int rank : {0, 2, 3, 4}) {
    ends.push_back(job_.submit(
        rank, tensor("a", 1, [](TensorDescriptor& t) { t.memory = MemorySpace::kDeviceNccl; })));
  }
  complete();
  EXPECT_TRUE(job_.node(0).launches.empty());
  const Status error = job_.end_of(4, ends.back());
  EXPECT_EQ(error.code(), Code::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("rank 1 has joined, and NCCL needs something of every"));
  for (const int rank : {0, 2, 3, 4}) ends.push_back(job_.submit(rank, tensor("b")));
  complete();
  EXPECT_TRUE(job_.end_of(0, ends[4]).is_ok());
}

TEST_P(Join, ANodeWhoseRanksHaveAllJoinedContributesZeros) {
  job_.submit(2, join());
  job_.submit(3, join());
  job_.submit(4, join());
  settle();
  for (const char* name : {"never seen there", "another", "never seen there"}) {
    const Ticket end = job_.submit(0, tensor(name));
    job_.submit(1, tensor(name));
    complete();
    EXPECT_TRUE(job_.end_of(0, end).is_ok());
    for (int node = 0; node < 3; ++node) EXPECT_EQ(last_name(node), name);
    EXPECT_EQ(contributors(1), (std::vector<bool>{false, false}));
    EXPECT_EQ(contributors(2), (std::vector<bool>{false}));
  }
}

TEST_P(Join, TheCoordinatorsRanksMayHaveJoined) {
  job_.submit(0, join());
  job_.submit(1, join());
  settle();
  for (int rank = 2; rank < 5; ++rank) job_.submit(rank, tensor("a"));
  complete();
  EXPECT_EQ(contributors(0), (std::vector<bool>{false, false}));
  EXPECT_EQ(contributors(1), (std::vector<bool>{true, true}));
}

// Each of two ranks waits for a tensor of the other, and both have joined.
TEST_P(Join, WhatARankSubmittedBeforeGoesWithItsValues) {
  const Ticket a = job_.submit(0, tensor("a"));
  job_.submit(0, join());
  const Ticket b = job_.submit(2, tensor("b"));
  job_.submit(2, join());
  settle();
  EXPECT_EQ(last_name(0), "");
  for (const int rank : {1, 3, 4}) job_.submit(rank, join());
  complete();
  EXPECT_TRUE(job_.end_of(0, a).is_ok());
  EXPECT_TRUE(job_.end_of(2, b).is_ok());
  ASSERT_EQ(job_.node(0).launches.size(), 2u);
  for (const Launch& launch : job_.node(0).launches) {
    const LaunchTensor& only = launch.tensors->front();
    EXPECT_EQ(launch.tickets[0].has_value(), only.descriptor->name == "a");
  }
}

TEST_P(Join, ARankCountsOnceThoughItHasSubmittedAndJoined) {
  job_.submit(0, tensor("a"));
  job_.submit(0, join());
  for (const int rank : {2, 3, 4}) job_.submit(rank, tensor("a"));
  settle();
  EXPECT_EQ(last_name(0), "") << "rank 1 has neither submitted it nor joined";
  job_.submit(1, tensor("a"));
  settle();
  EXPECT_EQ(contributors(0), (std::vector<bool>{true, true}));
}

TEST_P(Join, EndsAfterWhatItsNodeGivesZerosTo) {
  const Ticket first = job_.submit(4, join());
  std::vector<Ticket> others;
  for (int rank = 0; rank < 4; ++rank) job_.submit(rank, tensor("a"));
  settle();
  ASSERT_EQ(last_name(2), "a");
  const Seq seq = job_.node(2).launches.back().seq;
  job_.step(0, OperationDone{seq});
  job_.step(1, OperationDone{seq});
  for (int rank = 0; rank < 4; ++rank) others.push_back(job_.submit(rank, join()));
  settle();
  EXPECT_TRUE(job_.end_of(0, others[0]).is_ok());
  EXPECT_FALSE(job_.has_ended(4, first));
  job_.step(2, OperationDone{seq});
  settle();
  EXPECT_TRUE(job_.end_of(4, first).is_ok());
}

// The rank's node may be behind the others, which go on to the tensor's next turn.
TEST_P(Join, WhatIsUnderWayIsNotGivenASecondTime) {
  const Ticket own = job_.submit(4, tensor("a"));
  job_.submit(4, join());
  for (int rank = 0; rank < 4; ++rank) job_.submit(rank, tensor("a"));
  settle();
  const Seq first = job_.node(2).launches.back().seq;
  job_.step(0, OperationDone{first});
  job_.step(1, OperationDone{first});
  for (int rank = 0; rank < 4; ++rank) job_.submit(rank, tensor("a", 9));
  settle();
  const Launch& second = job_.node(2).launches.back();
  ASSERT_NE(second.seq, first);
  EXPECT_EQ(contributors(2), (std::vector<bool>{false}));
  EXPECT_EQ(second.tensors->front().descriptor->elements(), 9);
  for (int node = 0; node < 3; ++node) job_.step(node, OperationDone{second.seq});
  EXPECT_FALSE(job_.has_ended(4, own));
  job_.step(2, OperationDone{first});
  EXPECT_TRUE(job_.end_of(4, own).is_ok());
}

TEST_P(Join, AfterItTheSameNamesNeedAllRanksAgain) {
  for (int turn = 0; turn < 3; ++turn) {
    job_.submit(4, join());
    settle();
    for (int rank = 0; rank < 4; ++rank) job_.submit(rank, tensor("a"));
    complete();
    for (int rank = 0; rank < 4; ++rank) job_.submit(rank, join());
    complete();
    const size_t launched = job_.node(0).launches.size();
    for (int rank = 0; rank < 4; ++rank) job_.submit(rank, tensor("a"));
    complete();
    EXPECT_EQ(job_.node(0).launches.size(), launched);
    const Ticket last = job_.submit(4, tensor("a"));
    complete();
    EXPECT_TRUE(job_.end_of(4, last).is_ok());
    EXPECT_EQ(contributors(2), (std::vector<bool>{true}));
  }
}

TEST_P(Join, WhatZerosWouldSpoilIsRefusedAndTheJobGoesOn) {
  job_.submit(3, join());
  settle();
  const auto refused = [&](const DescriptorPtr& what) {
    Ticket end{};
    for (const int rank : {0, 1, 2, 4}) end = job_.submit(rank, what);
    settle();
    const Status status = job_.end_of(4, end);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("\"" + what->name + "\""));
    EXPECT_THAT(status.message(), HasSubstr("rank 3 has joined"));
  };
  refused(with_op("smallest", ReduceOp::kMin));
  refused(with_op("largest", ReduceOp::kMax));
  refused(with_op("product", ReduceOp::kProduct));
  refused(broadcast("from who has joined", 3));
  refused(broadcast("from another", 0));
  refused(change(CollectiveKind::kAddProcessSet, {0, 1}));
  refused(declaration_of(planned({{tensor("a"), {}}})));
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAdasum}) {
    for (const int rank : {0, 1, 2, 4}) job_.submit(rank, with_op(to_string(op), op));
    complete();
    EXPECT_EQ(last_name(2), to_string(op));
  }
}

TEST_P(Join, WhatWasCompleteWithoutZerosIsNot) {
  const Ticket end = job_.submit(3, with_op("largest", ReduceOp::kMax));
  job_.submit(3, join());
  for (const int rank : {0, 1, 2, 4}) job_.submit(rank, with_op("largest", ReduceOp::kMax));
  complete();
  EXPECT_TRUE(job_.end_of(3, end).is_ok());
}

TEST_P(Join, WhoHasJoinedSubmitsNothing) {
  job_.submit(0, join());
  EXPECT_THAT(job_.end_of(0, job_.submit(0, tensor("a"))).message(),
              HasSubstr("tensor \"a\": rank 0 has joined"));
  EXPECT_THAT(job_.end_of(0, job_.submit(0, join())).message(), HasSubstr("a second join"));
  EXPECT_THAT(job_.end_of(1, job_.submit(1, tensor(kJoinName))).message(),
              HasSubstr("use another"));
  EXPECT_EQ(job_.state(0), JobState::kRunning);
}

TEST_P(Join, AChangeOfProcessSetsComesFirst) {
  job_.submit(0, change(CollectiveKind::kAddProcessSet, {0, 1}));
  EXPECT_THAT(job_.end_of(0, job_.submit(0, join())).message(),
              HasSubstr("while its change of process sets is in flight"));
}

TEST_P(Join, ASetGoesOnWithoutItsRanksThatHaveJoined) {
  job_.submit_everywhere(change(CollectiveKind::kAddProcessSet, {1, 2, 4}));
  settle();
  const auto in_set = tensor("x", 1, [](TensorDescriptor& t) { t.process_set = 1; });
  const Ticket join_of_4 = job_.submit(4, join());
  const Ticket join_of_2 = job_.submit(2, join());
  const Ticket end = job_.submit(1, in_set);
  settle();
  for (int node = 0; node < 3; ++node) {
    EXPECT_EQ(job_.node(node).launches.back().process_set, 1u);
  }
  EXPECT_EQ(contributors(0), (std::vector<bool>{true}));
  EXPECT_EQ(contributors(1), (std::vector<bool>{false}));
  EXPECT_EQ(contributors(2), (std::vector<bool>{false}));
  const Seq seq = job_.node(0).launches.back().seq;
  job_.step(0, OperationDone{seq, 1});
  job_.step(1, OperationDone{seq, 1});
  EXPECT_TRUE(job_.end_of(1, end).is_ok());
  for (const int rank : {0, 1, 3}) job_.submit(rank, join());
  settle();
  EXPECT_TRUE(job_.end_of(2, join_of_2).is_ok());
  EXPECT_FALSE(job_.has_ended(4, join_of_4)) << "it gives zeros in the set";
  job_.step(2, OperationDone{seq, 1});
  settle();
  EXPECT_TRUE(job_.end_of(4, join_of_4).is_ok());
  for (const int rank : {1, 2, 4}) job_.submit(rank, in_set);
  settle();
  EXPECT_EQ(contributors(2), (std::vector<bool>{true}));
}

TEST_P(Join, AGoodbyeEndsTheJoinsOfTheOthers) {
  const Ticket partly = job_.submit(0, join());
  const Ticket wholly = job_.submit(4, join());
  settle();
  job_.detach(3);
  settle();
  for (const auto& [rank, ticket] : {std::pair(0, partly), std::pair(4, wholly)}) {
    EXPECT_EQ(job_.end_of(rank, ticket).code(), Code::kShutDown);
  }
  for (const int rank : {0, 1, 2, 4}) job_.detach(rank);
  settle();
  for (int node = 0; node < 3; ++node) {
    EXPECT_EQ(job_.state(node), JobState::kForming);
    EXPECT_TRUE(job_.node(node).failed.empty());
  }
}

TEST_P(Join, WhoSaysGoodbyeBeforeItsJoinHasEndedIsLost) {
  job_.submit(0, join());
  job_.detach(0);
  settle();
  EXPECT_EQ(job_.state(2), JobState::kFailed);
}

TEST_P(Join, AGroupThatIsNotWholeFails) {
  const Ticket end = job_.submit(0, member_of("g", 2, "one"));
  job_.submit(0, join());
  for (int rank = 1; rank < 5; ++rank) job_.submit(rank, join());
  settle();
  EXPECT_THAT(job_.end_of(0, end).message(), HasSubstr("1 tensors of 2"));
}

class LockedJoin : public LockedTest {
 protected:
  void step_of(const std::vector<int>& ranks) {
    for (const int rank : ranks) {
      cluster_->submit(rank, tensor("a"));
      cluster_->submit(rank, tensor("b"));
    }
    complete_launched();
  }
};

TEST_F(LockedJoin, NoPlanIsMadeWhileAnybodyHasJoined) {
  start({1, 2});
  lock({tensor("a"), tensor("b")});
  const Ticket end = cluster_->submit(2, join());
  for (int i = 0; i < 20; ++i) {
    step_of({0, 1});
    EXPECT_FALSE(is_locked(0));
  }
  EXPECT_THAT(cluster_->node(0).notes, testing::Contains(HasSubstr("rank 2 has joined")));
  cluster_->submit(0, join());
  cluster_->submit(1, join());
  complete_launched();
  EXPECT_TRUE(cluster_->end_of(2, end).is_ok());
  for (int i = 0; i < 20; ++i) step_of({0, 1, 2});
  EXPECT_TRUE(is_locked(0));
}

// The join is on its way when the lock is: it counts in the next generation, once.
TEST_F(LockedJoin, AJoinThatALockOvertakesIsReportedAgain) {
  start({1, 2});
  step({tensor("a")});
  step({tensor("a")});
  cluster_->submit_everywhere(tensor("a"));
  cluster_->end_turns();
  cluster_->submit(1, join());
  cluster_->submit(2, join());
  cluster_->end_turns();
  ASSERT_EQ(cluster_->stream(1, 0).size(), 2u);
  cluster_->deliver(1, 0);  // delivers the tensor
  cluster_->end_turns();
  ASSERT_TRUE(is_locked(0));
  complete_launched();
  EXPECT_FALSE(is_locked(0));
  const Ticket end = cluster_->submit(0, tensor("c"));
  complete_launched();
  EXPECT_TRUE(cluster_->end_of(0, end).is_ok());
  const Ticket last = cluster_->submit(0, join());
  complete_launched();
  EXPECT_TRUE(cluster_->end_of(0, last).is_ok());
}

TEST_F(LockedJoin, APlanThatIsDeclaredIsGivenUpToo) {
  start({1, 2});
  cluster_->submit_everywhere(declaration_of(planned({{tensor("a"), {}}, {tensor("b"), {}}})));
  cluster_->settle();
  ASSERT_TRUE(is_locked(0));
  cluster_->submit(0, join());
  step_of({1, 2});
  EXPECT_FALSE(is_locked(0));
  EXPECT_EQ(cluster_->node(0).launches.back().tickets.front(), std::nullopt);
  EXPECT_EQ(cluster_->node(0).abandoned_plans.size(), 1u);
}

TEST(JoinAndStalls, AJoinIsNoStallAndWhoHasJoinedIsNotMissing) {
  JobOptions options;
  options.stall.check_ms = 1'000;
  Cluster job({1, 1, 1}, options);
  job.start();
  job.submit(2, join());
  for (int i = 0; i < 5; ++i) {
    job.pass(1'000);
    job.settle();
  }
  EXPECT_TRUE(job.node(0).stall_lines.empty());
  job.submit(0, tensor("a"));
  for (int i = 0; i < 5; ++i) {
    job.pass(1'000);
    job.settle();
  }
  ASSERT_FALSE(job.node(0).stall_lines.empty());
  EXPECT_THAT(job.node(0).stall_lines.front().text, HasSubstr("not by rank 1 on node n1"));
}

TEST(JoinAndRecovery, AJobThatShrinksHasNone) {
  JobOptions options;
  options.recovery.policy = DeathPolicy::kShrink;
  Cluster job({1, 1, 1}, options);
  job.start();
  EXPECT_THAT(job.end_of(0, job.submit(0, join())).message(), HasSubstr("policy shrink"));
}

}  // namespace
}  // namespace rueda::core
