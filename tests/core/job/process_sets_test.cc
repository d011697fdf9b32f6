#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/job/job_cluster.h"

namespace rueda::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

DescriptorPtr add(std::vector<int64_t> ranks) {
  return tensor(kProcessSetsName, 1, [&](TensorDescriptor& t) {
    t.kind = CollectiveKind::kAddProcessSet;
    t.shape = ranks;
  });
}

DescriptorPtr remove(uint32_t id) {
  return tensor(kProcessSetsName, 1, [&](TensorDescriptor& t) {
    t.kind = CollectiveKind::kRemoveProcessSet;
    t.shape = {};
    t.process_set = id;
  });
}

DescriptorPtr in_set(uint32_t id, const std::string& name) {
  return tensor(name, 1, [&](TensorDescriptor& t) { t.process_set = id; });
}

JobOptions set_job_in(Coordination mode) {
  JobOptions options;
  options.agreement.mode = mode;
  return options;
}

class ProcessSets : public testing::Test {
 protected:
  // Makes all ranks ask for the change, and returns how it ended for rank 0.
  Status change(const DescriptorPtr& descriptor) {
    Ticket last{};
    for (int rank = 0; rank < job_.layout().world_size(); ++rank) {
      last = job_.submit(rank, descriptor);
    }
    settle();
    return job_.end_of(job_.layout().world_size() - 1, last);
  }
  // Settles, with the time that rounds take.
  void settle() {
    for (int i = 0; i < 4; ++i) {
      job_.settle();
      job_.pass(1);
    }
    job_.settle();
  }
  // Returns the set's launches on the node that are not marked as done.
  std::vector<Launch> of_set(int node, uint32_t id) {
    std::vector<Launch> found;
    for (const Launch& launch : job_.node(node).launches) {
      if (launch.process_set == id) found.push_back(launch);
    }
    return found;
  }
  std::vector<uint32_t> ids(int node) {
    std::vector<uint32_t> ids;
    for (const Collectives* set : job_.node(node).core->process_sets()) ids.push_back(set->id());
    return ids;
  }

  Cluster job_{{2, 2, 1}};  // ranks 0 and 1; 2 and 3; 4
};

TEST_F(ProcessSets, ASetHasTheSameIdOnAllNodes) {
  job_.start();
  ASSERT_TRUE(change(add({0, 2})).is_ok());
  ASSERT_TRUE(change(add({1, 2, 3})).is_ok());
  for (int node = 0; node < 3; ++node) {
    EXPECT_EQ(ids(node), (std::vector<uint32_t>{0, 1, 2}));
    EXPECT_EQ(job_.node(node).deliveries.back().value, 2u);
  }
}

TEST_F(ProcessSets, ATensorNeedsTheRanksOfItsSetAlone) {
  job_.start();
  ASSERT_TRUE(change(add({1, 2})).is_ok());
  const Ticket one = job_.submit(1, in_set(1, "x"));
  job_.submit(2, in_set(1, "x"));
  settle();
  ASSERT_EQ(of_set(0, 1).size(), 1u);
  ASSERT_EQ(of_set(1, 1).size(), 1u);
  EXPECT_TRUE(of_set(2, 1).empty());
  EXPECT_THAT(of_set(0, 1)[0].tickets, testing::ElementsAre(one));
  for (const int node : {0, 1}) job_.step(node, OperationDone{of_set(node, 1)[0].seq, 1});
  EXPECT_TRUE(job_.end_of(1, one).is_ok());
  const Delivery& end = job_.node(0).deliveries.back();
  EXPECT_EQ(end.rank, LocalRank{1});
  EXPECT_EQ(end.contributors, 2u);
}

TEST_F(ProcessSets, TheSameNameIsAnotherTensorInAnotherSet) {
  job_.start();
  ASSERT_TRUE(change(add({0, 1})).is_ok());
  ASSERT_TRUE(change(add({2, 3, 4})).is_ok());
  job_.submit(0, in_set(1, "x"));
  job_.submit(2, in_set(2, "x"));
  job_.submit_everywhere(tensor("x"));
  settle();
  for (int node = 0; node < 3; ++node) {
    EXPECT_EQ(of_set(node, 0).size(), 1u);
    EXPECT_TRUE(of_set(node, 1).empty() && of_set(node, 2).empty());
  }
}

// Rule L10: the sets have ranks in common, and one of the sets waits.
TEST_F(ProcessSets, NoSetWaitsForAnother) {
  job_.start();
  ASSERT_TRUE(change(add({0, 2})).is_ok());
  ASSERT_TRUE(change(add({0, 3})).is_ok());
  for (int i = 0; i < 10; ++i) {
    job_.submit(0, in_set(1, "a" + std::to_string(i)));
    job_.submit(2, in_set(1, "a" + std::to_string(i)));
  }
  settle();
  job_.submit(0, in_set(2, "b"));
  job_.submit(3, in_set(2, "b"));
  settle();
  EXPECT_FALSE(of_set(0, 1).empty());
  ASSERT_EQ(of_set(1, 2).size(), 1u);
  EXPECT_EQ(of_set(1, 2)[0].tensors->front().descriptor->name, "b");
}

TEST_F(ProcessSets, TheCoordinatorCallsTheOrderOfSetsInWhichItHasNoRank) {
  job_.start();
  ASSERT_TRUE(change(add({3, 4})).is_ok());
  // These are more than may be open at a time, so the coordinator must hear that they ended.
  for (int i = 0; i < 30; ++i) {
    job_.submit(3, in_set(1, "x" + std::to_string(i)));
    const Ticket last = job_.submit(4, in_set(1, "x" + std::to_string(i)));
    settle();
    ASSERT_EQ(of_set(1, 1).size(), static_cast<size_t>(i + 1));
    for (const int node : {1, 2}) job_.step(node, OperationDone{of_set(node, 1).back().seq, 1});
    settle();
    EXPECT_TRUE(job_.end_of(4, last).is_ok());
  }
  EXPECT_TRUE(of_set(0, 1).empty());
}

TEST_F(ProcessSets, RanksThatDisagreeAreBothNamed) {
  job_.start();
  Ticket last{};
  for (int rank = 0; rank < 5; ++rank) last = job_.submit(rank, add({0, rank == 3 ? 2 : 1}));
  settle();
  const Status end = job_.end_of(4, last);
  EXPECT_EQ(end.code(), Code::kMismatch);
  EXPECT_THAT(end.message(),
              HasSubstr("the list of ranks is [0, 1] on rank 2 and [0, 2] on rank 3"));
  EXPECT_EQ(ids(0), std::vector<uint32_t>{0});
  EXPECT_TRUE(change(add({0, 1})).is_ok());  // shows that the job goes on
}

TEST_F(ProcessSets, WhatCannotBeAddedOrRemovedIsSaidOnEveryRank) {
  job_.start();
  ASSERT_TRUE(change(add({0, 1})).is_ok());
  const std::vector<std::pair<DescriptorPtr, std::string>> cases = {
      {add({1, 5}), "process set {1, 5} has rank 5, and the job has ranks 0 to 4"},
      {add({-1}), "process set {-1} has rank -1"},
      {add({2, 2}), "lists rank 2 twice"},
      {add({1, 0}), "process set {0-1} exists already: it is process set 1"},
      {add({0, 1, 2, 3, 4}), "exists already: it is process set 0"},
      {remove(0), "process set 0, of all ranks, cannot be removed"},
      {remove(2), "process set 2 does not exist: add it on every rank first"},
  };
  for (const auto& [descriptor, text] : cases) {
    const Status end = change(descriptor);
    EXPECT_FALSE(end.is_ok());
    EXPECT_THAT(end.message(), HasSubstr(text));
  }
}

TEST_F(ProcessSets, ASetMayHaveNoRank) {
  job_.start();
  EXPECT_TRUE(change(add({})).is_ok());
  for (int node = 0; node < 2; ++node) EXPECT_THAT(ids(node), ElementsAre(0u, 1u));
  EXPECT_THAT(change(add({})).message(), HasSubstr("exists already: it is process set 1"));
  const Ticket stranger = job_.submit(0, in_set(1, "a"));
  EXPECT_THAT(job_.end_of(0, stranger).message(), HasSubstr("rank 0 is not in process set 1"));
  ASSERT_TRUE(change(add({0, 1})).is_ok());  // shows that the job goes on
  EXPECT_TRUE(change(remove(1)).is_ok());
  for (int node = 0; node < 2; ++node) EXPECT_THAT(ids(node), ElementsAre(0u, 2u));
}

// Recovery handles one order only; survivors could have different ends of the other orders.
TEST(ProcessSetLimits, AJobThatShrinksHasTheSetOfAllRanks) {
  JobOptions options;
  options.recovery.policy = DeathPolicy::kShrink;
  Cluster job({2, 2}, options);
  job.start();
  Ticket last{};
  for (int rank = 0; rank < 4; ++rank) last = job.submit(rank, add({0, 2}));
  job.settle();
  EXPECT_EQ(job.end_of(3, last).code(), Code::kInvalidArgument);
  EXPECT_THAT(job.end_of(3, last).message(), HasSubstr("start it with policy fail"));
  for (int rank = 0; rank < 4; ++rank) last = job.submit(rank, remove(1));
  job.settle();
  EXPECT_EQ(job.end_of(3, last).code(), Code::kNotFound);
}

TEST(ProcessSetLimits, AJobHasSoManyAtATime) {
  Cluster job({1, 6});
  job.start();
  const auto change = [&](const DescriptorPtr& descriptor) {
    Ticket last{};
    for (int rank = 0; rank < 7; ++rank) last = job.submit(rank, descriptor);
    job.settle();
    return job.end_of(6, last);
  };
  const auto choose = [](int bits) {
    std::vector<int64_t> ranks;
    for (int rank = 0; rank < 7; ++rank) {
      if ((bits >> rank & 1) != 0) ranks.push_back(rank);
    }
    return add(ranks);
  };
  for (int bits = 1; bits <= 64; ++bits) ASSERT_TRUE(change(choose(bits)).is_ok());
  EXPECT_THAT(change(choose(65)).message(), HasSubstr("at most 64 process sets; remove one first"));
  ASSERT_TRUE(change(remove(7)).is_ok());
  EXPECT_TRUE(change(choose(65)).is_ok());
  EXPECT_EQ(job.node(0).deliveries.back().value, 65u);  // an id is never used again
}

TEST_F(ProcessSets, SubmissionsThatAreNotTheirsAreRefused) {
  job_.start();
  ASSERT_TRUE(change(add({0, 1})).is_ok());
  EXPECT_THAT(job_.end_of(2, job_.submit(2, in_set(1, "x"))).message(),
              HasSubstr("tensor \"x\": rank 2 is not in process set 1, which has ranks 0-1"));
  EXPECT_THAT(job_.end_of(0, job_.submit(0, in_set(7, "x"))).message(),
              HasSubstr("process set 7 does not exist"));
  ASSERT_TRUE(change(remove(1)).is_ok());
  EXPECT_THAT(job_.end_of(0, job_.submit(0, in_set(1, "x"))).message(),
              HasSubstr("process set 1 has been removed"));
}

TEST_F(ProcessSets, ASetWithOperationsInFlightStays) {
  job_.start();
  ASSERT_TRUE(change(add({0, 2})).is_ok());
  const Ticket waits = job_.submit(2, in_set(1, "x"));
  const Status end = change(remove(1));
  EXPECT_THAT(
      end.message(),
      HasSubstr("process set 1 cannot be removed: rank 2 has 1 operations in flight in it"));
  EXPECT_FALSE(job_.has_ended(2, waits));
  EXPECT_EQ(ids(1).size(), 2u);
}

TEST_F(ProcessSets, WhoHasAskedToRemoveASetSubmitsNothingToIt) {
  job_.start();
  ASSERT_TRUE(change(add({0, 2})).is_ok());
  job_.submit(0, remove(1));
  EXPECT_THAT(job_.end_of(0, job_.submit(0, in_set(1, "x"))).message(),
              HasSubstr("rank 0 has asked to remove process set 1"));
  for (int rank = 1; rank < 5; ++rank) job_.submit(rank, remove(1));
  settle();
  EXPECT_EQ(ids(1), std::vector<uint32_t>{0});
}

TEST_F(ProcessSets, AChannelOfASetThatIsBeingRemovedMayClose) {
  job_.start();
  ASSERT_TRUE(change(add({0, 2})).is_ok());
  for (int rank = 0; rank < 4; ++rank) job_.submit(rank, remove(1));
  job_.step(0, DataChannelLost{NodeIndex{1}, Status(Code::kNodeLost, "closed"), 1});
  EXPECT_EQ(job_.state(0), JobState::kRunning);
  job_.step(0, DataChannelLost{NodeIndex{1}, Status(Code::kNodeLost, "closed"), 0});
  EXPECT_EQ(job_.state(0), JobState::kSuspecting);
}

// Rule L10: each set has a lock of its own, and a deviation in one leaves the others alone.
TEST_F(ProcessSets, LocksAreEachSetsOwn) {
  job_.start();
  ASSERT_TRUE(change(add({0, 3})).is_ok());
  ASSERT_TRUE(change(add({2, 4})).is_ok());
  const auto step = [&](uint32_t set, int one, int other, const std::string& name) {
    job_.submit(one, in_set(set, name));
    job_.submit(other, in_set(set, name));
    settle();
    for (const int node : {job_.home(one), job_.home(other)}) {
      job_.step(node, OperationDone{of_set(node, set).back().seq, set});
    }
    settle();
  };
  for (int i = 0; i < 5; ++i) {
    step(1, 0, 3, "x");
    step(2, 2, 4, "x");
  }
  const auto is_locked = [&](int node, size_t set) {
    return job_.node(node).core->process_sets()[set]->is_locked();
  };
  EXPECT_TRUE(is_locked(0, 1) && is_locked(1, 1) && is_locked(0, 2) && is_locked(2, 2));
  EXPECT_TRUE(of_set(2, 2).back().locked);
  EXPECT_FALSE(is_locked(0, 0));
  step(2, 2, 4, "y");
  EXPECT_TRUE(is_locked(1, 1));
  EXPECT_FALSE(is_locked(1, 2));
  // A goodbye undoes only the locks of the rank's own sets.
  job_.detach(2);
  settle();
  EXPECT_TRUE(is_locked(0, 1));
  job_.detach(3);
  settle();
  EXPECT_FALSE(is_locked(0, 1));
  const Ticket late = job_.submit(0, in_set(1, "x"));
  EXPECT_THAT(job_.end_of(0, late).message(), HasSubstr("rank 3 has left the job"));
}

TEST_F(ProcessSets, ANodeThatIsGoneIsMissedByItsSetsAlone) {
  job_.start();
  ASSERT_TRUE(change(add({0, 3})).is_ok());
  for (int i = 0; i < 5; ++i) {
    job_.submit(0, in_set(1, "x"));
    job_.submit(3, in_set(1, "x"));
    settle();
    for (const int node : {0, 1}) job_.step(node, OperationDone{of_set(node, 1).back().seq, 1});
  }
  settle();
  ASSERT_TRUE(job_.node(1).core->process_sets()[1]->is_locked());
  job_.detach(4);
  settle();
  EXPECT_TRUE(job_.node(1).core->process_sets()[1]->is_locked());
  EXPECT_EQ(job_.state(1), JobState::kRunning);
}

TEST_F(ProcessSets, AStallNamesItsSet) {
  JobOptions options;
  options.stall.check_ms = 10'000;
  Cluster job({1, 1, 1}, options);
  job.start();
  for (int rank = 0; rank < 3; ++rank) job.submit(rank, add({1, 2}));
  job.settle();
  job.submit(1, in_set(1, "x"));
  for (int i = 0; i < 12; ++i) {
    job.pass(1'000);
    job.settle();
  }
  ASSERT_EQ(job.node(2).stall_lines.size(), 1u);
  EXPECT_THAT(job.node(2).stall_lines[0].text,
              HasSubstr("tensor \"x\" of process set 1 was submitted"));
  EXPECT_THAT(job.node(2).stall_lines[0].text, HasSubstr("and not by rank 2"));
  EXPECT_TRUE(job.node(0).core->process_sets()[0]->stalls().stalls(0).stalls.empty());
}

// This is the classical mistake: the right name in the wrong set. The reports of both sets say
// where to look.
TEST_F(ProcessSets, ATensorThatIsInAnotherSetIsPointedOut) {
  JobOptions options;
  options.stall.check_ms = 10'000;
  Cluster job({1, 1, 1}, options);
  job.start();
  for (int rank = 0; rank < 3; ++rank) job.submit(rank, add({1, 2}));
  job.settle();
  job.submit_everywhere(tensor("before"));
  job.settle();
  job.done_everywhere(1);
  job.pass(3'000);
  for (int rank = 0; rank < 2; ++rank) job.submit(rank, tensor("x"));
  job.submit(2, in_set(1, "x"));
  for (int i = 0; i < 12; ++i) {
    job.pass(1'000);
    job.settle();
  }
  const auto stall_in = [&](int node, size_t set) {
    return job.node(node).core->process_sets()[set]->stalls().stalls(job.now()).stalls.at(0);
  };
  EXPECT_THAT(stall_in(0, 0).near_misses, ElementsAre(NearMiss{Rank{2}, "x", 1}));
  EXPECT_THAT(stall_in(2, 1).near_misses, ElementsAre(NearMiss{Rank{1}, "x", 0}));
  std::string said;
  for (const StallLine& line : job.node(2).stall_lines) said += line.text + "\n";
  EXPECT_EQ(
      said,
      "tensor \"x\" was submitted 10 s ago by ranks 0-1, and not by rank 2 on node n2 (last "
      "submitted \"x\" in process set 1 10 s ago, last completed \"before\" 13 s ago; has "
      "this name in flight in process set 1)\n"
      "tensor \"x\" of process set 1 was submitted 10 s ago by rank 2, and not by rank 1 on "
      "node n1 (last submitted \"x\" in the set of all ranks 10 s ago, last completed "
      "\"before\" in the set of all ranks 13 s ago; has this name in flight in the set of all "
      "ranks)\n");
}

TEST_F(ProcessSets, ASimilarNameIsPointedOutWithinItsSetAlone) {
  JobOptions options;
  options.stall.check_ms = 10'000;
  Cluster job({1, 1, 1}, options);
  job.start();
  for (int rank = 0; rank < 3; ++rank) job.submit(rank, add({1, 2}));
  job.settle();
  job.submit(1, in_set(1, "layer1.weight"));
  job.submit(2, in_set(1, "layer1.weights"));
  job.submit(2, tensor("layer2.weight"));  // is similar, too, but in another set
  for (int i = 0; i < 12; ++i) {
    job.pass(1'000);
    job.settle();
  }
  const StallNotice notice = job.node(1).core->process_sets()[1]->stalls().stalls(job.now());
  ASSERT_EQ(notice.stalls.size(), 2u);
  EXPECT_THAT(notice.stalls[0].near_misses, ElementsAre(NearMiss{Rank{2}, "layer1.weights", 1}));
  EXPECT_THAT(notice.stalls[1].near_misses, ElementsAre(NearMiss{Rank{1}, "layer1.weight", 1}));
  EXPECT_THAT(job.node(1).stall_lines.back().text,
              HasSubstr("has the similar name \"layer1.weight\" in flight"));
}

// The activity of a rank is that of all its sets.
TEST_F(ProcessSets, WhatARankDidLastIsOfAllItsSets) {
  JobOptions options;
  options.stall.check_ms = 10'000;
  Cluster job({1, 1}, options);
  job.start();
  for (int rank = 0; rank < 2; ++rank) job.submit(rank, add({1}));
  job.settle();
  job.submit(0, tensor("x"));
  for (int i = 0; i < 12; ++i) {
    job.pass(1'000);
    job.submit(1, in_set(1, "own"));
    job.settle();
    job.step(1, OperationDone{job.node(1).launches.back().seq, 1});
    job.settle();
  }
  ASSERT_EQ(job.node(0).stall_lines.size(), 1u);
  EXPECT_THAT(job.node(0).stall_lines[0].text,
              HasSubstr("last submitted \"own\" in process set 1 "));
  EXPECT_THAT(job.node(0).stall_lines[0].text,
              HasSubstr("last completed \"own\" in process set 1 "));
}

class ProcessSetModes : public testing::TestWithParam<Coordination> {};

TEST_P(ProcessSetModes, SetsWork) {
  Cluster job({1, 1, 2}, set_job_in(GetParam()));
  job.start();
  const auto settle = [&] {
    for (int i = 0; i < 40; ++i) {
      job.settle();
      job.pass(1);
    }
  };
  Ticket added{};
  for (int rank = 0; rank < 4; ++rank) added = job.submit(rank, add({1, 3}));
  settle();
  ASSERT_TRUE(job.end_of(3, added).is_ok());
  for (int i = 0; i < 6; ++i) {
    job.submit(1, in_set(1, "x"));
    const Ticket end = job.submit(3, in_set(1, "x"));
    settle();
    for (const int node : {1, 2}) {
      job.step(node, OperationDone{job.node(node).launches.back().seq, 1});
    }
    settle();
    ASSERT_TRUE(job.end_of(3, end).is_ok());
  }
  // A new life of the job has none of the sets.
  for (int rank = 0; rank < 4; ++rank) job.detach(rank);
  settle();
  job.start();
  EXPECT_EQ(job.node(0).core->process_sets().size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Modes, ProcessSetModes, all_modes(), name_of_mode);

}  // namespace
}  // namespace rueda::core
