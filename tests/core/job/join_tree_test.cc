// Tests rule L11 in a tree of nodes: what goes up while some nodes have joined.

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/core/modes/combiner.h"
#include "tests/core/job/job_cluster.h"

namespace rueda::core {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr NodeIndex n(int32_t index) { return NodeIndex{index}; }

ReadyTensor ready(const DescriptorPtr& descriptor, int32_t rank) {
  return {descriptor, Rank{rank}, {}};
}

std::vector<std::string> names(const std::vector<TensorReport>& reports) {
  std::vector<std::string> found;
  for (const auto& [of, tensor] : reports) found.push_back(tensor.descriptor->name);
  return found;
}

// --- What goes up ----------------------------------------------------------------------------

TEST(CombinedJoins, WhoHasJoinedIsNotWaitedFor) {
  Combiner combiner(3);
  EXPECT_TRUE(combiner.add({n(3)}, ready(join(), 5)));
  EXPECT_THAT(combiner.take_reports(), IsEmpty());
  EXPECT_TRUE(combiner.add({n(1)}, ready(tensor("a"), 1)));
  EXPECT_TRUE(combiner.add({n(4)}, ready(tensor("a"), 4)));
  const std::vector<TensorReport> all = combiner.take_reports();
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0].first, std::nullopt);
  EXPECT_EQ(all[0].second.absent, Rank{5});
}

TEST(CombinedJoins, WhoHasReportedAndJoinedCountsOnce) {
  Combiner combiner(3);
  EXPECT_TRUE(combiner.add({n(3)}, ready(tensor("a"), 3)));
  EXPECT_TRUE(combiner.add({n(3)}, ready(join(), 3)));
  EXPECT_TRUE(combiner.add({n(1)}, ready(tensor("a"), 1)));
  EXPECT_THAT(combiner.take_reports(), IsEmpty()) << "n4 has neither reported it nor joined";
  EXPECT_TRUE(combiner.add({n(4)}, ready(tensor("a"), 4)));
  const std::vector<TensorReport> all = combiner.take_reports();
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0].second.absent, Rank{-1}) << "its values are in it";
}

TEST(CombinedJoins, ARankThatIsAbsentOnANodeIsAbsentAbove) {
  Combiner combiner(2);
  ReadyTensor part = ready(tensor("a"), 2);
  part.absent = Rank{3};
  EXPECT_TRUE(combiner.add({n(1)}, ready(tensor("a"), 1)));
  EXPECT_TRUE(combiner.add({n(3)}, std::move(part)));
  const std::vector<TensorReport> all = combiner.take_reports();
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0].second.absent, Rank{3});
}

TEST(CombinedJoins, AJoinGoesUpAfterAllElseAndSaysWhoWasTheLast) {
  Combiner combiner(3);
  EXPECT_TRUE(combiner.add({n(4)}, ready(tensor("z"), 4)));
  EXPECT_TRUE(combiner.add({n(4)}, ready(join(), 4)));
  EXPECT_TRUE(combiner.add({n(1)}, ready(join(), 1)));
  EXPECT_THAT(combiner.take_reports(), IsEmpty());
  EXPECT_TRUE(combiner.add({n(3)}, ready(tensor("a"), 3)));
  EXPECT_THAT(combiner.take_reports(), SizeIs(1)) << "the others have joined";
  EXPECT_TRUE(combiner.add({n(3)}, ready(join(), 3)));
  const std::vector<TensorReport> all = combiner.take_reports();
  EXPECT_THAT(names(all), testing::ElementsAre("z", kJoinName));
  EXPECT_EQ(all[1].second.rank, Rank{3});
}

TEST(CombinedJoins, OnceItHasEndedAllAreWaitedForAgain) {
  Combiner combiner(2);
  EXPECT_TRUE(combiner.add({n(1)}, ready(join(), 1)));
  EXPECT_TRUE(combiner.add({n(3)}, ready(join(), 3)));
  EXPECT_THAT(combiner.take_reports(), SizeIs(1));
  combiner.forget(kJoinName);
  EXPECT_TRUE(combiner.add({n(1)}, ready(tensor("a"), 1)));
  EXPECT_THAT(combiner.take_reports(), IsEmpty());
}

TEST(CombinedJoins, ALockMakesThemVoid) {
  Combiner combiner(2);
  EXPECT_TRUE(combiner.add({n(3)}, ready(join(), 3)));
  combiner.forget_lockable();
  EXPECT_TRUE(combiner.add({n(1)}, ready(tensor("a"), 1)));
  EXPECT_THAT(combiner.take_reports(), IsEmpty());
  EXPECT_TRUE(combiner.add({n(3)}, ready(join(), 3))) << "it comes again";
  EXPECT_THAT(combiner.take_reports(), SizeIs(1));
}

TEST(CombinedJoins, OnceItHasStoppedTheyStillComeLast) {
  Combiner combiner(3);
  EXPECT_TRUE(combiner.add({n(3)}, ready(tensor("z"), 3)));
  EXPECT_TRUE(combiner.add({n(3)}, ready(join(), 3)));
  combiner.stop();
  EXPECT_THAT(names(combiner.take_reports()), testing::ElementsAre("z", kJoinName));
}

// --- Whole jobs ------------------------------------------------------------------------------

JobOptions in_a_tree(Coordination mode) {
  JobOptions options;
  options.agreement.mode = mode;
  options.agreement.fusion.threshold_bytes = 0;
  options.agreement.lock_after_steps = 2;
  options.tree = {4, 2};
  options.handover_grace_ms = 100;
  return options;
}

// The tree has one rank a node: 0 at the root, 1 and 2 below it, 3 to 6 below these.
class JoinInATree : public testing::TestWithParam<Coordination> {
 protected:
  void SetUp() override { job_.start(); }

  // Settles, with the time that rounds take.
  void settle() {
    for (int turns = 0; turns < 4; ++turns) {
      job_.settle();
      job_.pass(20);
    }
    job_.settle();
  }
  // Completes everything that has been launched.
  void complete() {
    settle();
    for (bool moved = true; moved;) {
      moved = false;
      for (int node = 0; node < 7; ++node) {
        std::vector<Launch>& launches = job_.node(node).launches;
        size_t& completed = completed_[node];
        for (; completed < launches.size(); ++completed, moved = true) {
          const Launch launch = launches[completed];
          job_.step(node, OperationDone{launch.seq, launch.process_set});
        }
      }
      settle();
    }
  }
  void submit(const std::vector<int>& ranks, const DescriptorPtr& what) {
    for (const int rank : ranks) last_ticket_ = job_.submit(rank, what);
  }
  // Returns the ranks that take part in the last operation, if all nodes agree on them.
  std::vector<int> contributors(const std::string& name) {
    std::vector<int> ranks;
    for (int node = 0; node < 7; ++node) {
      const std::vector<Launch>& launches = job_.node(node).launches;
      if (launches.empty() || launches.back().seq != job_.node(0).launches.back().seq) return {};
      if (launches.back().tensors->front().descriptor->name != name) return {};
      if (launches.back().tickets.front()) ranks.push_back(node);
    }
    return ranks;
  }
  std::set<uint32_t> last_to_join(const std::map<int, Ticket>& joins) {
    std::set<uint32_t> said;
    for (const auto& [rank, ticket] : joins) {
      EXPECT_TRUE(job_.end_of(rank, ticket).is_ok());
      for (const Delivery& delivery : job_.node(rank).deliveries) {
        if (delivery.ticket == ticket) said.insert(delivery.value);
      }
    }
    return said;
  }

  Cluster job_{std::vector<int>(7, 1), in_a_tree(GetParam())};
  std::map<int, size_t> completed_;
  Ticket last_ticket_{};
};

INSTANTIATE_TEST_SUITE_P(AllModes, JoinInATree, all_modes(), name_of_mode);

TEST_P(JoinInATree, AllComeBackAndKnowTheLastWhereverItIs) {
  for (const int last : {0, 1, 2, 3, 6}) {
    std::map<int, Ticket> joins;
    for (const int rank : {5, 3, 0, 2, 6, 1, 4}) {
      if (rank != last) joins[rank] = job_.submit(rank, join());
      settle();
    }
    for (const auto& [rank, ticket] : joins) EXPECT_FALSE(job_.has_ended(rank, ticket));
    joins[last] = job_.submit(last, join());
    settle();
    EXPECT_EQ(last_to_join(joins), std::set<uint32_t>{static_cast<uint32_t>(last)});
  }
}

TEST_P(JoinInATree, NodesThatHaveJoinedContributeZerosWhereverTheyAre) {
  std::map<int, Ticket> joins;
  std::vector<int> others{0, 1, 2, 3, 4, 5, 6};
  // The ranks are on a leaf, on a node between others, on the last leaves of a branch, and on the
  // coordinator.
  for (const int rank : {4, 2, 5, 6, 0}) {
    joins[rank] = job_.submit(rank, join());
    std::erase(others, rank);
    for (const char* name : {"never seen there", "another", "never seen there"}) {
      submit(others, tensor(name));
      complete();
      EXPECT_EQ(contributors(name), others);
      EXPECT_TRUE(job_.end_of(others.back(), last_ticket_).is_ok());
    }
  }
  for (const int rank : others) {
    joins[rank] = job_.submit(rank, join());
    complete();
  }
  EXPECT_EQ(last_to_join(joins), std::set<uint32_t>{3});
  job_.submit_everywhere(tensor("another"));
  complete();
  EXPECT_EQ(contributors("another"), (std::vector<int>{0, 1, 2, 3, 4, 5, 6}));
}

TEST_P(JoinInATree, AfterItAllAreWaitedForAgain) {
  for (int turn = 0; turn < 3; ++turn) {
    submit({3, 4}, join());
    submit({0, 1, 2, 5, 6}, tensor("a"));
    complete();
    submit({0, 1, 2, 5, 6}, join());
    complete();
    const size_t launched = job_.node(0).launches.size();
    submit({0, 1, 2, 4, 5, 6}, tensor("a"));
    complete();
    EXPECT_EQ(job_.node(0).launches.size(), launched);
    submit({3}, tensor("a"));
    complete();
    EXPECT_EQ(contributors("a"), (std::vector<int>{0, 1, 2, 3, 4, 5, 6}));
  }
}

TEST_P(JoinInATree, WhatZerosWouldSpoilNamesTheRank) {
  submit({4}, join());
  const auto largest = tensor("largest", 1, [](TensorDescriptor& t) { t.op = ReduceOp::kMax; });
  const auto from_0 = tensor("from 0", 1, [](TensorDescriptor& t) {
    t.kind = CollectiveKind::kBroadcast;
    t.root = Rank{0};
  });
  for (const DescriptorPtr& refused : {largest, from_0}) {
    submit({0, 1, 2, 3, 5, 6}, refused);
    settle();
    EXPECT_THAT(job_.end_of(6, last_ticket_).message(), HasSubstr("rank 4 has joined"));
  }
  EXPECT_EQ(job_.state(0), JobState::kRunning);
}

TEST_P(JoinInATree, AGoodbyeEndsTheJoinsOfTheOthers) {
  std::map<int, Ticket> joins;
  for (const int rank : {0, 1, 3, 5}) joins[rank] = job_.submit(rank, join());
  settle();
  const Ticket waiting = job_.submit(4, tensor("a"));
  settle();
  job_.detach(6);
  settle();
  for (const auto& [rank, ticket] : joins) {
    EXPECT_EQ(job_.end_of(rank, ticket).code(), Code::kShutDown) << rank;
  }
  EXPECT_THAT(job_.end_of(4, waiting).message(), HasSubstr("rank 6"));
  for (const int rank : {0, 1, 2, 3, 4, 5}) job_.detach(rank);
  settle();
  for (int node = 0; node < 7; ++node) EXPECT_EQ(job_.state(node), JobState::kForming) << node;
}

// A rank that has joined stays joined in its process sets, though the tree above it has changed.
TEST_P(JoinInATree, ASetHasItsZerosAlsoAfterAHandover) {
  job_.submit_everywhere(tensor(kProcessSetsName, 1, [](TensorDescriptor& t) {
    t.kind = CollectiveKind::kAddProcessSet;
    t.shape = {0, 3, 4};
  }));
  settle();
  submit({3}, join());
  settle();
  job_.detach(1);
  settle();
  job_.step(1, JobClosed{Status(Code::kShutDown, "closed")});
  settle();
  job_.pass(100);
  settle();
  ASSERT_EQ(job_.node(3).core->links().parent(), n(0));
  submit({0, 4}, tensor("x", 1, [](TensorDescriptor& t) { t.process_set = 1; }));
  settle();
  for (const int node : {0, 3, 4}) {
    ASSERT_THAT(job_.node(node).launches, SizeIs(1)) << node;
    EXPECT_EQ(job_.node(node).launches[0].tickets[0].has_value(), node != 3);
  }
}

class CombinedJoinInATree : public JoinInATree {
 protected:
  // Returns the number of messages from the child to the coordinator when these ranks submit a
  // tensor one by one.
  size_t messages_of(int child, const std::vector<int>& ranks, const DescriptorPtr& what) {
    size_t messages = 0;
    for (const int rank : ranks) {
      job_.submit(rank, what);
      for (int turns = 0; turns < 3; ++turns) {
        job_.end_turns();
        for (const auto& [from, to] :
             {std::pair(3, 1), std::pair(4, 1), std::pair(5, 2), std::pair(6, 2)}) {
          while (!job_.stream(from, to).empty()) job_.deliver(from, to);
        }
      }
      messages += job_.stream(child, 0).size();
      settle();
    }
    complete();
    return messages;
  }
};

INSTANTIATE_TEST_SUITE_P(ModesThatCombine, CombinedJoinInATree,
                         testing::Values(Coordination::kNegotiate, Coordination::kEventDriven,
                                         Coordination::kLocked),
                         name_of_mode);

TEST_P(CombinedJoinInATree, TheCoordinatorHearsOfATensorOncePerChildBeforeMeanwhileAndAfter) {
  EXPECT_EQ(messages_of(1, {3, 4, 5, 6, 1, 2, 0}, tensor("a")), 1u);
  EXPECT_EQ(messages_of(1, {3}, join()), 0u);
  for (const char* name : {"a", "b", "a"}) {
    EXPECT_EQ(messages_of(1, {4, 5, 6, 1, 2, 0}, tensor(name)), 1u);
  }
  EXPECT_EQ(messages_of(1, {1, 4}, join()), 1u);
  EXPECT_EQ(messages_of(1, {5, 6, 2, 0}, tensor("a")), 0u) << "all below have joined";
  EXPECT_EQ(messages_of(1, {5, 6, 2, 0}, join()), 0u);
  EXPECT_EQ(messages_of(1, {3, 4, 5, 6, 1, 2, 0}, tensor("c")), 1u);
}

TEST(LockedJoinInATree, ALockIsGivenUpAndComesAgain) {
  Cluster job(std::vector<int>(7, 1), in_a_tree(Coordination::kLocked));
  job.start();
  std::map<int, size_t> completed;
  const auto step = [&](const std::vector<int>& ranks, const DescriptorPtr& what) {
    for (const int rank : ranks) job.submit(rank, what);
    job.settle();
    for (int node = 0; node < 7; ++node) {
      const std::vector<Launch>& launches = job.node(node).launches;
      for (; completed[node] < launches.size(); ++completed[node]) {
        job.step(node, OperationDone{launches[completed[node]].seq});
      }
    }
    job.settle();
  };
  const std::vector<int> all{0, 1, 2, 3, 4, 5, 6};
  for (int i = 0; i < 5; ++i) step(all, tensor("a"));
  for (int node = 0; node < 7; ++node) ASSERT_TRUE(job.node(node).core->is_locked()) << node;
  step({3}, join());
  for (int i = 0; i < 20; ++i) step({0, 1, 2, 4, 5, 6}, tensor("a"));
  EXPECT_FALSE(job.node(0).core->is_locked());
  EXPECT_THAT(job.node(0).notes, Contains(HasSubstr("rank 3 has joined")));
  step({0, 1, 2, 4, 5, 6}, join());
  for (int i = 0; i < 20; ++i) step(all, tensor("a"));
  for (int node = 0; node < 7; ++node) EXPECT_TRUE(job.node(node).core->is_locked()) << node;
}

}  // namespace
}  // namespace rueda::core
