// Tests trees of nodes: the parent of each node, reports that are combined on their way up, and
// whole jobs whose messages go along a tree.

#include "daemon/core/model/tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/core/modes/combiner.h"
#include "tests/core/job/job_cluster.h"

namespace rueda::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr NodeIndex n(int32_t index) { return NodeIndex{index}; }

// --- The tree --------------------------------------------------------------------------------

//      0
//    1   2
//   3 4 5 6
Layout seven_nodes() { return layout_of(std::vector<int>(7, 1)); }

TEST(Tree, ParentsAndChildren) {
  const Tree tree(seven_nodes(), 2);
  EXPECT_EQ(tree.root(), n(0));
  EXPECT_EQ(tree.parent(n(2)), n(0));
  EXPECT_EQ(tree.parent(n(3)), n(1));
  EXPECT_EQ(tree.parent(n(6)), n(2));
  EXPECT_THAT(tree.children(n(0)), ElementsAre(n(1), n(2)));
  EXPECT_THAT(tree.children(n(2)), ElementsAre(n(5), n(6)));
  EXPECT_THAT(tree.children(n(5)), IsEmpty());
  EXPECT_THAT(tree.subtree(n(0)), ElementsAre(n(0), n(1), n(2), n(3), n(4), n(5), n(6)));
  EXPECT_THAT(tree.subtree(n(2)), ElementsAre(n(2), n(5), n(6)));
}

TEST(Tree, OfTheMembers) {
  Layout layout = seven_nodes();
  layout.shrink_to({n(1), n(3), n(4), n(6)});
  const Tree tree(layout, 2);
  EXPECT_EQ(tree.root(), n(1));
  EXPECT_THAT(tree.children(n(1)), ElementsAre(n(3), n(4)));
  EXPECT_EQ(tree.parent(n(6)), n(3));
}

TEST(Tree, WhichLinkLeadsWhere) {
  const Tree tree(seven_nodes(), 2);
  const TreeLinks root(tree, n(0));
  EXPECT_EQ(root.next_hop(n(6)), n(2));
  EXPECT_EQ(root.next_hop(n(1)), n(1));
  const TreeLinks inner(tree, n(2));
  EXPECT_EQ(inner.next_hop(n(5)), n(5));
  EXPECT_EQ(inner.next_hop(n(0)), n(0));
  EXPECT_EQ(inner.next_hop(n(3)), n(0));
  EXPECT_THAT(inner.neighbours(), ElementsAre(n(5), n(6), n(0)));
  EXPECT_THAT(root.reached_by(n(2)), ElementsAre(n(2), n(5), n(6)));
}

TEST(Tree, WhoHasGoneIsReachedByNobody) {
  TreeLinks root(Tree(seven_nodes(), 2), n(0));
  root.add_child(n(5));
  EXPECT_EQ(root.next_hop(n(5)), n(5));
  EXPECT_EQ(root.next_hop(n(6)), n(2));
  root.add_child(n(6));
  root.remove_child(n(2));
  EXPECT_EQ(root.next_hop(n(2)), std::nullopt);
  EXPECT_EQ(root.next_hop(n(6)), n(6));
}

// --- Reports ---------------------------------------------------------------------------------

ReadyTensor ready(const DescriptorPtr& descriptor, int32_t rank) {
  return {descriptor, Rank{rank}, {}};
}

TEST(Combiner, ATensorGoesUpWhenAllHaveReportedIt) {
  Combiner combiner(4);
  EXPECT_TRUE(combiner.add({n(2)}, ready(tensor("a"), 2)));
  EXPECT_TRUE(combiner.add({n(5)}, ready(tensor("a"), 5)));
  EXPECT_THAT(combiner.take_reports(), IsEmpty());
  EXPECT_TRUE(combiner.add({n(1), n(3)}, ready(tensor("a"), 1)));
  const std::vector<TensorReport> all = combiner.take_reports();
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0].second.rank, Rank{1});
  EXPECT_EQ(all[0].second.mismatch, "");
  EXPECT_THAT(combiner.take_reports(), IsEmpty());
}

TEST(Combiner, ANodeReportsATensorOnce) {
  Combiner combiner(3);
  EXPECT_TRUE(combiner.add({n(1), n(3)}, ready(tensor("a"), 1)));
  EXPECT_FALSE(combiner.add({n(3)}, ready(tensor("a"), 3)));
}

TEST(Combiner, ReportsThatDifferGoUpWithAnObjection) {
  Combiner combiner(3);
  EXPECT_TRUE(combiner.add({n(1)}, ready(tensor("a", 4), 1)));
  EXPECT_TRUE(combiner.add({n(3)}, ready(tensor("a", 8), 3)));
  EXPECT_TRUE(combiner.add({n(4)}, ready(tensor("a", 4), 4)));
  const std::vector<TensorReport> all = combiner.take_reports();
  ASSERT_THAT(all, SizeIs(1));
  for (const char* word : {"rank 1", "rank 3", "4", "8"}) {
    EXPECT_THAT(all[0].second.mismatch, HasSubstr(word));
  }
}

TEST(Combiner, ALockMakesWhatWaitsVoidButForWhatIsAlwaysDecreed) {
  const DescriptorPtr broadcast =
      tensor("b", 1, [](TensorDescriptor& t) { t.kind = CollectiveKind::kBroadcast; });
  Combiner combiner(2);
  EXPECT_TRUE(combiner.add({n(1)}, ready(tensor("a"), 1)));
  EXPECT_TRUE(combiner.add({n(1)}, ready(broadcast, 1)));
  combiner.forget_lockable();
  EXPECT_TRUE(combiner.add({n(1)}, ready(tensor("a"), 1))) << "it may come again";
  EXPECT_FALSE(combiner.add({n(1)}, ready(broadcast, 1)));
}

TEST(Combiner, OnceItHasStoppedReportsGoUpNodeByNode) {
  Combiner combiner(4);
  EXPECT_TRUE(combiner.add({n(1), n(3)}, ready(tensor("a", 4), 1)));
  EXPECT_TRUE(combiner.add({n(2)}, ready(tensor("a", 8), 2)));
  combiner.stop();
  const std::vector<TensorReport> waited = combiner.take_reports();
  ASSERT_THAT(waited, SizeIs(3));
  EXPECT_EQ(waited[1].first, n(3));
  EXPECT_EQ(waited[1].second.descriptor->shape, (std::vector<int64_t>{4}));
  EXPECT_EQ(waited[2].second.descriptor->shape, (std::vector<int64_t>{8}));
  EXPECT_TRUE(combiner.add({n(4)}, ready(tensor("a", 4), 4)));
  EXPECT_THAT(combiner.take_reports(), SizeIs(1));
  EXPECT_FALSE(combiner.add({n(4)}, ready(tensor("a", 4), 4)));
  combiner.forget("a");
  EXPECT_TRUE(combiner.add({n(4)}, ready(tensor("a", 4), 4))) << "in its next turn";
}

// --- Whole jobs ------------------------------------------------------------------------------

JobOptions with_tree(Coordination mode = Coordination::kLocked) {
  JobOptions options;
  options.agreement.mode = mode;
  options.tree = {4, 2};
  options.handover_grace_ms = 100;
  options.handover_timeout_ms = 1'000;
  return options;
}

class JobInATree : public testing::TestWithParam<Coordination> {
 protected:
  explicit JobInATree(JobOptions options = with_tree(GetParam()))
      : job_(std::vector<int>(7, 1), std::move(options)) {}

  bool all_failed_with(const std::string& words, const std::vector<int>& nodes) {
    for (const int node : nodes) {
      EXPECT_THAT(job_.node(node).failed, SizeIs(1)) << node;
      if (job_.node(node).failed.size() != 1) return false;
      EXPECT_THAT(job_.node(node).failed[0].message(), HasSubstr(words)) << node;
    }
    return true;
  }

  Cluster job_;
};

TEST_P(JobInATree, NobodyTalksToAnybodyButParentAndChildren) {
  job_.start();
  EXPECT_THAT(job_.node(5).started.at(0).data_addresses,
              ElementsAre("data0", "data1", "data2", "data3", "data4", "data5", "data6"));
  for (int rank = 0; rank < 7; ++rank) job_.submit(rank, tensor("a"));
  for (int turns = 0; turns < 5; ++turns) {  // enough for the rounds of modes with a cycle
    job_.settle();
    job_.pass(20);
  }
  for (int node = 0; node < 7; ++node) EXPECT_THAT(job_.launched(node), ElementsAre(1)) << node;
  for (int from = 0; from < 7; ++from) {
    for (int to = 0; to < 7; ++to) {
      const bool is_link = job_.node(from).core->links().is_neighbour(n(to));
      EXPECT_TRUE(is_link || !job_.has_spoken(from, to)) << from << " to " << to;
    }
  }
}

TEST_P(JobInATree, AMismatchNamesBothRanksWhereverTheyAre) {
  job_.start();
  std::vector<Ticket> tickets;
  for (int rank = 0; rank < 7; ++rank) {
    tickets.push_back(job_.submit(rank, tensor("a", rank == 5 ? 8 : 4)));
  }
  for (int turns = 0; turns < 5; ++turns) {
    job_.settle();
    job_.pass(20);
  }
  for (int rank = 0; rank < 7; ++rank) {
    const Status end = job_.end_of(rank, tickets[static_cast<size_t>(rank)]);
    EXPECT_EQ(end.code(), Code::kMismatch);
    EXPECT_THAT(end.message(), HasSubstr("rank 5"));
  }
}

TEST_P(JobInATree, WhoIsLostIsToldInTheWholeTree) {
  job_.start();
  const Status died(Code::kNodeLost, "node n1 is lost", Origin{"n1", {}});
  for (const int neighbour : {0, 3, 4}) job_.step(neighbour, NodeLost{n(1), died});
  job_.settle();
  EXPECT_TRUE(all_failed_with("n1", {0, 2, 3, 4, 5, 6}));
}

TEST_P(JobInATree, AGoodbyeFailsWhatOthersWaitFor) {
  job_.start();
  const Ticket waiting = job_.submit(3, tensor("a"));
  job_.settle();
  job_.detach(6);
  for (int turns = 0; turns < 5; ++turns) {
    job_.settle();
    job_.pass(20);
  }
  EXPECT_EQ(job_.end_of(3, waiting).code(), Code::kShutDown);
  EXPECT_THAT(job_.end_of(3, waiting).message(), HasSubstr("rank 6"));
}

TEST_P(JobInATree, WhenAllHaveLeftTheNextEpochForms) {
  job_.start();
  for (int rank = 0; rank < 7; ++rank) job_.detach(rank);
  job_.settle();
  for (int node = 0; node < 7; ++node) EXPECT_THAT(job_.node(node).finished, ElementsAre(Epoch{1}));
  job_.start();
}

INSTANTIATE_TEST_SUITE_P(AllModes, JobInATree, all_modes(), name_of_mode);

class Tree7 : public JobInATree {};

TEST_P(Tree7, TheCoordinatorHearsOfATensorOncePerChild) {
  job_.start();
  for (const int rank : {3, 4, 5, 1, 0}) job_.submit(rank, tensor("a"));
  for (const int node : {3, 4, 1}) job_.step(node, TurnEnded{});
  job_.deliver(3, 1);
  job_.step(1, TurnEnded{});
  EXPECT_THAT(job_.stream(1, 0), IsEmpty()) << "n4 has not been heard";
  job_.deliver(4, 1);
  job_.step(1, TurnEnded{});
  EXPECT_THAT(job_.stream(1, 0), SizeIs(1));
  job_.settle();
  EXPECT_THAT(job_.launched(0), IsEmpty());
  job_.submit(2, tensor("a"));
  job_.submit(6, tensor("a"));
  job_.settle();
  for (int node = 0; node < 7; ++node) EXPECT_THAT(job_.launched(node), ElementsAre(1)) << node;
}

INSTANTIATE_TEST_SUITE_P(ModesThatCombine, Tree7,
                         testing::Values(Coordination::kNegotiate, Coordination::kEventDriven,
                                         Coordination::kLocked),
                         name_of_mode);

TEST(TreeForming, WhoIsMissingIsKnownWhereverItIs) {
  JobOptions options = with_tree();
  options.start_timeout_ms = 1'000;
  Cluster job(std::vector<int>(7, 1), options);
  for (const int rank : {0, 1, 2, 3, 4, 6}) job.attach(rank);
  for (int i = 0; i < 4; ++i) {
    job.settle();
    job.pass(300);
  }
  job.settle();
  for (const int node : {0, 1, 2, 3, 4, 6}) {
    ASSERT_THAT(job.node(node).failed, SizeIs(1)) << node;
    EXPECT_THAT(job.node(node).failed[0].message(), HasSubstr("waiting for rank 5 on node n5"));
  }
}

TEST(TreeForming, AnotherTreeIsRefusedWithBothNodes) {
  const Layout layout = seven_nodes();
  JobOptions options = with_tree();
  JobCore parent(layout, n(1), options);
  options.tree.fan_in = 3;
  JobCore other(layout, n(4), options);
  Output output;
  other.step(0, RankAttached{LocalRank{0}}, output);
  ASSERT_THAT(output.sends, SizeIs(1));
  EXPECT_EQ(output.sends[0].first, n(1));
  Output answer;
  parent.step(0, MessageArrived{output.sends[0].second}, answer);
  ASSERT_TRUE(answer.failed);
  EXPECT_EQ(answer.failed->code(), Code::kMismatch);
  for (const char* words : {"n1", "n4", "--tree-fan-in"}) {
    EXPECT_THAT(answer.failed->message(), HasSubstr(words));
  }
}

// --- Leaving ---------------------------------------------------------------------------------

// n1 leaves, and n3 and n4 are to go on below n0. Ranks 0, 3 and 4 have a process set.
class LeavingATree : public testing::Test {
 protected:
  void SetUp() override {
    job_.start();
    for (int rank = 0; rank < 7; ++rank) {
      job_.submit(rank, tensor("add", 1, [](TensorDescriptor& t) {
                    t.kind = CollectiveKind::kAddProcessSet;
                    t.shape = {0, 3, 4};
                  }));
    }
    job_.settle();
    job_.detach(1);
    job_.settle();
    job_.step(1, JobClosed{Status(Code::kShutDown, "closed")});
    job_.settle();
    EXPECT_FALSE(may_go(1)) << "it has children";
  }
  bool may_go(int node) { return job_.node(node).core->may_go(); }
  NodeIndex parent_of(int node) { return job_.node(node).core->links().parent(); }
  DescriptorPtr in_set(const std::string& name) {
    return tensor(name, 1, [](TensorDescriptor& t) { t.process_set = 1; });
  }
  void expect_set_works(const std::string& name) {
    std::vector<size_t> launches;
    for (const int node : {0, 3, 4}) launches.push_back(job_.node(node).launches.size());
    for (const int rank : {0, 3, 4}) job_.submit(rank, in_set(name));
    job_.settle();
    size_t i = 0;
    for (const int node : {0, 3, 4}) {
      ASSERT_EQ(job_.node(node).launches.size(), launches[i++] + 1) << node;
      EXPECT_EQ(job_.node(node).launches.back().tensors->front().descriptor->name, name);
    }
  }

  Cluster job_{std::vector<int>(7, 1), with_tree(Coordination::kNegotiate)};
};

TEST_F(LeavingATree, ItsChildrenGoOnBelowItsParent) {
  expect_set_works("before");
  job_.pass(100);
  job_.settle();
  EXPECT_EQ(parent_of(3), n(0));
  EXPECT_EQ(parent_of(4), n(0));
  EXPECT_TRUE(may_go(1));
  EXPECT_EQ(job_.node(0).core->links().next_hop(n(1)), std::nullopt);
  job_.step(0, NodeLost{n(1), Status(Code::kNodeLost, "it has stopped")});
  expect_set_works("after");
  EXPECT_EQ(job_.state(0), JobState::kRunning);
}

// The old way is empty before the new one is used, in both directions.
TEST_F(LeavingATree, NothingOvertakesWhatIsOnTheOldWay) {
  job_.submit(3, in_set("first"));
  job_.step(3, TurnEnded{});
  job_.pass(100);
  job_.deliver(1, 3);  // tells n3 to move, while its report is on its way to n1
  job_.submit(3, in_set("second"));
  job_.step(3, TurnEnded{});
  ASSERT_THAT(job_.stream(3, 0), SizeIs(1)) << "it attaches, and says no more before it is drained";
  job_.deliver(3, 0);
  EXPECT_THAT(job_.stream(0, 3), IsEmpty());
  for (const int rank : {0, 4}) {
    job_.submit(rank, in_set("second"));
    job_.submit(rank, in_set("first"));
  }
  job_.settle();
  for (const int node : {0, 3, 4}) {
    EXPECT_THAT(job_.node(node).failed, IsEmpty()) << node;
    ASSERT_THAT(job_.node(node).launches, SizeIs(2)) << node;
    EXPECT_EQ(job_.node(node).launches[0].tensors->front().descriptor->name, "first");
  }
  EXPECT_EQ(parent_of(3), n(0));
}

TEST_F(LeavingATree, ANewParentThatNeverAnswersIsLost) {
  job_.pass(100);
  job_.deliver(1, 3);
  job_.stream(3, 0).clear();  // drops everything that n3 sends directly to n0
  for (int i = 0; i < 4; ++i) {
    job_.step(3, TimePassed{});
    job_.stream(3, 0).clear();
    job_.pass(300);
    job_.stream(3, 0).clear();
  }
  ASSERT_THAT(job_.node(3).failed, SizeIs(1));
  EXPECT_EQ(job_.node(3).failed[0].code(), Code::kNodeLost);
  EXPECT_THAT(job_.node(3).failed[0].message(), HasSubstr("n0 is lost"));
  job_.settle();
  for (const int node : {0, 2, 4, 5, 6}) EXPECT_EQ(job_.state(node), JobState::kFailed) << node;
}

TEST_F(LeavingATree, WhoDiesBeforeItsChildrenHaveMovedIsMissed) {
  const Status died(Code::kNodeLost, "node n1 is lost", Origin{"n1", {}});
  job_.step(0, NodeLost{n(1), died});
  job_.settle();
  for (const int node : {0, 2, 5, 6}) {
    ASSERT_THAT(job_.node(node).failed, SizeIs(1)) << node;
    EXPECT_THAT(job_.node(node).failed[0].message(), HasSubstr("n1"));
  }
}

TEST_F(LeavingATree, NobodyMovesWhenAllLeaveAtOnce) {
  for (const int rank : {0, 2, 3, 4, 5, 6}) job_.detach(rank);
  job_.settle();
  for (int node = 0; node < 7; ++node) {
    EXPECT_THAT(job_.node(node).finished, ElementsAre(Epoch{1}));
    EXPECT_TRUE(may_go(node));
  }
  EXPECT_FALSE(job_.has_spoken(3, 0));
}

}  // namespace
}  // namespace rueda::core
