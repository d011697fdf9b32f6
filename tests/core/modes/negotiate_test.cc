// Tests the coordinator's part and a member's part of `negotiate`, driven by hand.

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/core/order/agreement.h"
#include "tests/core/builders.h"

namespace rueda::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const NodeIndex kCoordinator{0};
const NodeIndex kMember{1};

AgreementOptions options(int max_open_operations = 4, int64_t threshold_bytes = 1 << 20) {
  AgreementOptions made;
  made.mode = Coordination::kNegotiate;
  made.max_open_operations = max_open_operations;
  made.fusion.threshold_bytes = threshold_bytes;
  return made;
}

OrderedOperation operation(uint64_t seq, uint64_t plan_hash, const std::string& tensor) {
  OrderedOperation made;
  made.seq = Seq{seq};
  made.plan_hash = plan_hash;
  made.tensors = {tensor};
  return made;
}

// Sets up node n0 (ranks 0 and 1) as the coordinator, and n1 (ranks 2 and 3) as a member.
class Negotiate : public testing::Test {
 protected:
  void SetUp() override { start(options()); }

  void start(const AgreementOptions& with) {
    coordinator_ = make_agreement(layout_, kCoordinator, submissions_, with);
  }

  void here(const DescriptorPtr& descriptor, const std::string& mismatch = {}) {
    coordinator_->on_local_ready({descriptor, Rank{0}, mismatch});
  }
  Status there(const DescriptorPtr& descriptor, const std::string& mismatch = {}) {
    return coordinator_->on_message(kMember, Ready{{{descriptor, Rank{2}, mismatch}}});
  }
  void everywhere(const DescriptorPtr& descriptor) {
    here(descriptor);
    ASSERT_TRUE(there(descriptor).is_ok());
  }

  AgreementOutput turn() {
    AgreementOutput output;
    coordinator_->end_turn(output);
    return output;
  }
  std::vector<Names> order() {
    std::vector<Names> batches;
    for (const OrderedOperation& operation : turn().ordered) batches.push_back(operation.tensors);
    return batches;
  }
  // Returns the error of the one operation that is decreed.
  Status error() {
    const AgreementOutput output = turn();
    EXPECT_EQ(output.ordered.size(), 1u);
    return output.ordered.empty() ? Status::ok() : output.ordered.front().error;
  }

  const Layout layout_ = layout_of({2, 2});
  SubmissionTable submissions_{layout_.node(kCoordinator).ranks};
  SubmissionTable member_submissions_{layout_.node(kMember).ranks};
  std::unique_ptr<Agreement> coordinator_;
};

// --- Order ---------------------------------------------------------------------------------------

TEST_F(Negotiate, DecreesWhatEveryNodeHasReported) {
  here(tensor("a"));
  EXPECT_THAT(order(), IsEmpty());
  ASSERT_TRUE(there(tensor("b")).is_ok());
  EXPECT_THAT(order(), IsEmpty());
  ASSERT_TRUE(there(tensor("a")).is_ok());
  EXPECT_THAT(order(), ElementsAre(Names{"a"}));
  here(tensor("b"));
  EXPECT_THAT(order(), ElementsAre(Names{"b"}));
}

TEST_F(Negotiate, TellsTheMembersWhatItDoesItself) {
  everywhere(tensor("a"));
  const AgreementOutput output = turn();
  ASSERT_EQ(output.ordered.size(), 1u);
  EXPECT_EQ(output.ordered[0].seq, Seq{1});
  EXPECT_EQ(output.ordered[0].plan_hash, plan_hash({tensor("a")}));
  EXPECT_TRUE(output.ordered[0].error.is_ok());
  ASSERT_EQ(output.sends.size(), 1u);
  EXPECT_EQ(output.sends[0].first, kMember);
  const auto& decree = std::get<Decree>(output.sends[0].second);
  ASSERT_EQ(decree.operations.size(), 1u);
  EXPECT_EQ(decree.operations[0].seq, Seq{1});
  EXPECT_EQ(decree.operations[0].tensors, Names{"a"});
  EXPECT_EQ(decree.operations[0].plan_hash, output.ordered[0].plan_hash);
}

TEST_F(Negotiate, SaysNothingWhenThereIsNothingToSay) {
  EXPECT_THAT(turn().sends, IsEmpty());
  here(tensor("a"));
  EXPECT_THAT(turn().sends, IsEmpty());
}

TEST_F(Negotiate, TheOrderIsThatOfTheLastReports) {
  start(options(4, 0));
  for (const char* name : {"a", "b", "c"}) here(tensor(name));
  for (const char* name : {"c", "a", "b"}) ASSERT_TRUE(there(tensor(name)).is_ok());
  EXPECT_THAT(order(), ElementsAre(Names{"c"}, Names{"a"}, Names{"b"}));
}

TEST_F(Negotiate, OneTurnsTensorsAreFused) {
  for (const char* name : {"a", "b", "c"}) everywhere(tensor(name));
  EXPECT_THAT(order(), ElementsAre(Names{"a", "b", "c"}));
}

TEST_F(Negotiate, SequenceNumbersHaveNoGaps) {
  start(options(100, 0));
  for (int i = 0; i < 10; ++i) everywhere(tensor("t" + std::to_string(i)));
  uint64_t expected = 1;
  for (const OrderedOperation& operation : turn().ordered) {
    EXPECT_EQ(operation.seq, Seq{expected++});
  }
  EXPECT_EQ(expected, 11u);
}

TEST_F(Negotiate, WhileOperationsAreOpenReadyTensorsGatherAndAreFused) {
  start(options(2));
  everywhere(tensor("a"));
  EXPECT_THAT(order(), ElementsAre(Names{"a"}));
  everywhere(tensor("b"));
  EXPECT_THAT(order(), ElementsAre(Names{"b"}));
  for (const char* name : {"c", "d", "e"}) {
    everywhere(tensor(name));
    EXPECT_THAT(order(), IsEmpty()) << "two operations are open";
  }
  coordinator_->on_operation_ended(Seq{1});
  EXPECT_THAT(order(), ElementsAre(Names{"c", "d", "e"}));
}

// --- Disagreement --------------------------------------------------------------------------------

TEST_F(Negotiate, AMismatchInAnyFieldIsDecreedAsAnErrorThatNamesIt) {
  using Change = std::function<void(TensorDescriptor&)>;
  const std::vector<std::pair<std::string, Change>> rows{
      {"collective is allreduce on rank 0 and barrier on rank 2",
       [](auto& t) { t.kind = CollectiveKind::kBarrier; }},
      {"dtype is float32 on rank 0 and int32 on rank 2", [](auto& t) { t.dtype = DType::kInt32; }},
      {"shape is [4] on rank 0 and [2, 2] on rank 2",
       [](auto& t) {
         t.shape = {2, 2};
       }},
      {"op is average on rank 0 and sum on rank 2", [](auto& t) { t.op = ReduceOp::kSum; }},
      {"root rank is -1 on rank 0 and 1 on rank 2", [](auto& t) { t.root = Rank{1}; }},
      {"process set is 0 on rank 0 and 3 on rank 2", [](auto& t) { t.process_set = 3; }},
      {"prescale factor is 1 on rank 0 and 0.25 on rank 2", [](auto& t) { t.prescale = 0.25; }},
      {"postscale factor is 1 on rank 0 and 2 on rank 2", [](auto& t) { t.postscale = 2; }},
      {"group is \"\" on rank 0 and \"g\" on rank 2", [](auto& t) { t.group = "g"; }},
      {"group size is 0 on rank 0 and 2 on rank 2", [](auto& t) { t.group_size = 2; }},
  };
  for (const auto& [text, change] : rows) {
    start(options());
    here(tensor("a", 4));
    ASSERT_TRUE(there(tensor("a", 4, change)).is_ok()) << "the application's fault, not a peer's";
    const AgreementOutput output = turn();
    ASSERT_EQ(output.ordered.size(), 1u) << text;
    EXPECT_EQ(output.ordered[0].error.code(), Code::kMismatch);
    EXPECT_EQ(output.ordered[0].error.message(),
              "ranks disagree on tensor \"a\": " + text + "; submit the same on every rank");
    EXPECT_EQ(output.ordered[0].plan_hash, 0u);
    EXPECT_EQ(output.ordered[0].tensors, Names{"a"});
    EXPECT_EQ(std::get<Decree>(output.sends.at(0).second).operations[0].error,
              output.ordered[0].error);
  }
}

TEST_F(Negotiate, ANodesOwnMismatchIsPassedOnInItsWords) {
  here(tensor("a"));
  ASSERT_TRUE(there(tensor("a"), "rank 2 and rank 3 differ").is_ok());
  EXPECT_EQ(error(), Status(Code::kMismatch, "rank 2 and rank 3 differ"));
}

TEST_F(Negotiate, TheFirstMismatchIsTheOneReported) {
  here(tensor("a", 1), "first words");
  ASSERT_TRUE(there(tensor("a", 2), "second words").is_ok());
  EXPECT_EQ(error().message(), "first words");
}

TEST_F(Negotiate, AfterAMismatchTheNameMayBeUsedAgain) {
  here(tensor("a", 1));
  ASSERT_TRUE(there(tensor("a", 2)).is_ok());
  EXPECT_FALSE(error().is_ok());
  everywhere(tensor("a", 1));
  EXPECT_TRUE(error().is_ok());
}

TEST_F(Negotiate, AnErrorWaitsForNoRoomAndTakesANumber) {
  start(options(1));
  everywhere(tensor("a"));
  EXPECT_THAT(order(), ElementsAre(Names{"a"}));
  here(tensor("bad", 1));
  ASSERT_TRUE(there(tensor("bad", 2)).is_ok());
  const AgreementOutput output = turn();
  ASSERT_EQ(output.ordered.size(), 1u);
  EXPECT_EQ(output.ordered[0].seq, Seq{2});
}

TEST_F(Negotiate, ARootThatIsNoRankOfTheJob) {
  const auto from_rank = [](int root) {
    return tensor("w", 1, [root](TensorDescriptor& t) {
      t.kind = CollectiveKind::kBroadcast;
      t.root = Rank{root};
    });
  };
  for (const int root : {-1, 4}) {
    start(options());
    everywhere(from_rank(root));
    EXPECT_EQ(error(), Status(Code::kInvalidArgument,
                              "the broadcast of tensor \"w\" has root rank " +
                                  std::to_string(root) + ", and the job has ranks 0-3"));
  }
  for (const int root : {0, 3}) {
    start(options());
    everywhere(from_rank(root));
    EXPECT_TRUE(error().is_ok());
  }
}

// --- Groups --------------------------------------------------------------------------------------

TEST_F(Negotiate, AGroupWaitsForItsLastMember) {
  everywhere(member_of("g", 2, "g1"));
  everywhere(tensor("x"));
  EXPECT_THAT(order(), ElementsAre(Names{"x"}));
  everywhere(member_of("g", 2, "g2"));
  EXPECT_THAT(order(), ElementsAre(Names{"g1", "g2"}));
}

TEST_F(Negotiate, AGroupIsNotSplitByTheThreshold) {
  start(options(4, 4));
  everywhere(member_of("g", 2, "g1"));
  everywhere(member_of("g", 2, "g2"));
  EXPECT_THAT(order(), ElementsAre(Names{"g1", "g2"}));
}

TEST_F(Negotiate, TwoGroupsAtOnceStayApart) {
  start(options(4, 4));
  for (const char* name : {"g1", "g2"}) {
    everywhere(member_of("g", 2, name));
    everywhere(member_of("h", 2, std::string("h") + name));
  }
  EXPECT_THAT(order(), ElementsAre(Names{"g1", "g2"}, Names{"hg1", "hg2"}));
}

TEST_F(Negotiate, AGroupOfSeveralDtypesIsOneOperationADtype) {
  start(options(4, 0));
  everywhere(member_of("g", 4, "f1"));
  everywhere(member_of("g", 4, "i1", DType::kInt64));
  everywhere(member_of("g", 4, "f2"));
  EXPECT_THAT(order(), IsEmpty());
  everywhere(member_of("g", 4, "i2", DType::kInt64));
  EXPECT_THAT(order(), ElementsAre(Names{"f1", "f2"}, Names{"i1", "i2"}));
}

TEST_F(Negotiate, OneBadMemberFailsTheWholeGroup) {
  here(member_of("g", 3, "g1"));
  here(member_of("g", 3, "g2"));
  here(member_of("g", 3, "g3"));
  ASSERT_TRUE(there(member_of("g", 3, "g1")).is_ok());
  ASSERT_TRUE(there(member_of("g", 3, "g2", DType::kInt64)).is_ok());
  EXPECT_THAT(order(), IsEmpty()) << "a group stands and falls together";
  ASSERT_TRUE(there(member_of("g", 3, "g3")).is_ok());
  const AgreementOutput output = turn();
  ASSERT_EQ(output.ordered.size(), 1u);
  EXPECT_THAT(output.ordered[0].tensors, ElementsAre("g1", "g2", "g3"));
  EXPECT_THAT(output.ordered[0].error.message(), HasSubstr("tensor \"g2\""));
}

TEST_F(Negotiate, RanksThatDisagreeOnTheGroupItselfAllGetAnAnswer) {
  // The result is the same whichever node reports first, because each node's view of the groups is
  // complete only in itself.
  here(member_of("g", 2, "a"));
  ASSERT_TRUE(there(member_of("h", 2, "b")).is_ok());
  here(member_of("g", 2, "b"));
  ASSERT_TRUE(there(member_of("h", 2, "a")).is_ok());
  Names ended;
  for (const OrderedOperation& operation : turn().ordered) {
    EXPECT_EQ(operation.error.code(), Code::kMismatch);
    EXPECT_THAT(operation.error.message(), HasSubstr("group is"));
    ended.insert(ended.end(), operation.tensors.begin(), operation.tensors.end());
  }
  EXPECT_THAT(ended, testing::UnorderedElementsAre("a", "b"));
}

TEST_F(Negotiate, WhoReportsFirstDoesNotDecideWhatTheGroupIs) {
  // Rank 1 alone calls the group h. Whatever the order of reports, rank 0's view, in which the
  // group is complete, counts in the end.
  const Layout layout = layout_of({1, 1, 1});
  const SubmissionTable submissions(layout.node(kCoordinator).ranks);
  const auto coordinator = make_agreement(layout, kCoordinator, submissions, options());
  const auto report = [&](int rank, const std::string& name) {
    const DescriptorPtr descriptor = member_of(rank == 1 ? "h" : "g", 2, name);
    if (rank == 0) {
      coordinator->on_local_ready({descriptor, Rank{0}, {}});
    } else {
      EXPECT_TRUE(
          coordinator->on_message(NodeIndex{rank}, Ready{{{descriptor, Rank{rank}, {}}}}).is_ok());
    }
  };
  std::vector<int> one{0, 1, 2}, other;
  do {
    other = {0, 1, 2};
    do {
      for (const int rank : one) report(rank, "a");
      for (const int rank : other) report(rank, "b");
      AgreementOutput output;
      coordinator->end_turn(output);
      ASSERT_EQ(output.ordered.size(), 1u);
      EXPECT_EQ(output.ordered[0].tensors, (Names{"a", "b"}));
      EXPECT_EQ(output.ordered[0].error.code(), Code::kMismatch);
    } while (std::next_permutation(other.begin(), other.end()));
  } while (std::next_permutation(one.begin(), one.end()));
}

// --- Ranks that leave ----------------------------------------------------------------------------

TEST_F(Negotiate, ALeavingRankFailsWhatItHadNotSubmitted) {
  here(tensor("a"));
  EXPECT_THAT(order(), IsEmpty());
  coordinator_->on_rank_left(Rank{3});
  EXPECT_EQ(error(), Status(Code::kShutDown, describe_left("a", Rank{3})));
  EXPECT_EQ(describe_left("a", Rank{3}),
            "tensor \"a\" cannot complete: rank 3 has left the job (its rueda_shutdown ran)");
}

TEST_F(Negotiate, WhatIsReportedAfterItLeftFailsAtOnce) {
  coordinator_->on_rank_left(Rank{3});
  here(tensor("a"));
  EXPECT_EQ(error().code(), Code::kShutDown);
}

TEST_F(Negotiate, WhatItsNodeHadReportedCanStillComplete) {
  ASSERT_TRUE(there(tensor("a")).is_ok());
  coordinator_->on_rank_left(Rank{3});
  EXPECT_THAT(order(), IsEmpty());
  here(tensor("a"));
  EXPECT_TRUE(error().is_ok());
}

TEST_F(Negotiate, AGroupDoesNotWaitForMembersThatCannotCome) {
  here(member_of("g", 2, "g1"));
  coordinator_->on_rank_left(Rank{3});
  // The rank that submitted it hears that rank 3 has left, and never submits g2.
  const AgreementOutput output = turn();
  ASSERT_EQ(output.ordered.size(), 1u);
  EXPECT_EQ(output.ordered[0].tensors, Names{"g1"});
  EXPECT_EQ(output.ordered[0].error.code(), Code::kShutDown);
}

// --- The member's part, and peers that break the protocol ----------------------------------------

TEST_F(Negotiate, AMemberReportsAtTheEndOfItsTurn) {
  const auto member = make_agreement(layout_, kMember, member_submissions_, options());
  member->on_local_ready({tensor("a"), Rank{2}, {}});
  member->on_local_ready({tensor("b"), Rank{2}, "they differ"});
  AgreementOutput output;
  member->end_turn(output);
  ASSERT_EQ(output.sends.size(), 1u);
  EXPECT_EQ(output.sends[0].first, kCoordinator);
  const auto& ready = std::get<Ready>(output.sends[0].second);
  ASSERT_EQ(ready.entries.size(), 2u);
  EXPECT_EQ(ready.entries[0].descriptor->name, "a");
  EXPECT_EQ(ready.entries[1].mismatch, "they differ");
  EXPECT_THAT(output.ordered, IsEmpty());

  AgreementOutput next;
  member->end_turn(next);
  EXPECT_THAT(next.sends, IsEmpty()) << "nothing is reported twice";
}

TEST_F(Negotiate, LongReadyListsAreSplitAtTheBound) {
  const auto member = make_agreement(layout_, kMember, member_submissions_, options());
  for (int i = 0; i < 2 * 2048 + 1; ++i) {
    member->on_local_ready({tensor("t" + std::to_string(i)), Rank{2}, {}});
  }
  AgreementOutput output;
  member->end_turn(output);
  std::vector<size_t> sizes;
  int next = 0;
  for (const auto& [to, body] : output.sends) {
    const auto& entries = std::get<Ready>(body).entries;
    sizes.push_back(entries.size());
    for (const ReadyTensor& entry : entries) {
      EXPECT_EQ(entry.descriptor->name, "t" + std::to_string(next++));
    }
  }
  EXPECT_THAT(sizes, ElementsAre(2048, 2048, 1));
}

TEST_F(Negotiate, AMemberFollowsTheDecree) {
  const auto member = make_agreement(layout_, kMember, member_submissions_, options());
  ASSERT_TRUE(member->on_message(kCoordinator, Decree{{operation(1, 7, "a")}}).is_ok());
  ASSERT_TRUE(member->on_message(kCoordinator, Decree{{operation(2, 8, "b"), operation(3, 9, "c")}})
                  .is_ok());
  AgreementOutput output;
  member->end_turn(output);
  ASSERT_EQ(output.ordered.size(), 3u);
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(output.ordered[i].seq, Seq{i + 1});
    EXPECT_EQ(output.ordered[i].plan_hash, i + 7);
  }
  EXPECT_THAT(output.sends, IsEmpty());
}

TEST_F(Negotiate, AnOperationThatIsNotTheNextIsAnError) {
  for (const uint64_t seq : {0, 1, 3}) {
    const auto member = make_agreement(layout_, kMember, member_submissions_, options());
    ASSERT_TRUE(member->on_message(kCoordinator, Decree{{operation(1, 7, "a")}}).is_ok());
    const Status status = member->on_message(kCoordinator, Decree{{operation(seq, 7, "a")}});
    EXPECT_EQ(status.code(), Code::kInternal);
    EXPECT_EQ(status.message(),
              "the coordinator on node n0 sent operation " + std::to_string(seq) + " after 1");
  }
}

TEST_F(Negotiate, ATensorReportedTwiceIsAnErrorThatNamesTheNode) {
  ASSERT_TRUE(there(tensor("a")).is_ok());
  const Status status = there(tensor("a"));
  EXPECT_EQ(status, Status(Code::kInternal, "node n1 reported tensor \"a\" twice"));
}

TEST_F(Negotiate, MisdirectedMessagesAreErrors) {
  const auto member = make_agreement(layout_, kMember, member_submissions_, options());
  EXPECT_EQ(member->on_message(kCoordinator, Ready{}).message(),
            "node n0 sent its ready tensors to node n1, which does not coordinate");
  EXPECT_EQ(member->on_message(kMember, Decree{}).code(), Code::kInternal);
  EXPECT_EQ(coordinator_->on_message(kMember, Decree{}).message(),
            "node n1 sent a decree to node n0 and does not coordinate");
}

TEST_F(Negotiate, AMessageOfALockIsAnError) {
  EXPECT_EQ(coordinator_->on_message(kMember, Frozen{}).message(),
            "node n1 sent a message that mode negotiate has no use for");
}

}  // namespace
}  // namespace rueda::core
