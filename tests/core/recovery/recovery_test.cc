#include "daemon/core/recovery/recovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/recovery/recovery_cluster.h"

namespace rueda::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const std::vector<int> kThree = {2, 1, 3};  // ranks of each node
const RecoveryOptions kTimes;               // has the default times

RecoveryOptions with(const std::function<void(RecoveryOptions&)>& change) {
  RecoveryOptions options = RecoveryCluster::shrink();
  change(options);
  return options;
}

// --- R1, R2 --------------------------------------------------------------------------------------

TEST(RecoveryHolding, PGoesWhenFIsWholeAndFWhenAllHaveIt) {
  RecoveryCluster cluster(kThree);
  cluster.launch_on({0, 1, 2}, 1);
  cluster.chunk(0, 1, 0);
  cluster.chunk(0, 1, 1);
  EXPECT_THAT(cluster.node(0).freed_partials, IsEmpty());
  cluster.chunk(0, 1, 2);
  EXPECT_THAT(cluster.node(0).freed_partials, ElementsAre(Seq{1}));
  EXPECT_THAT(cluster.node(0).freed_finals, IsEmpty());
  cluster.complete(1, 1);
  cluster.complete(2, 1);
  cluster.pass(kTimes.heartbeat_ms);
  for (const int node : {0, 1, 2}) {
    EXPECT_THAT(cluster.node(node).freed_finals, ElementsAre(Seq{1})) << node;
  }
}

TEST(RecoveryHolding, FramesTellThatAnOperationIsStable) {
  RecoveryCluster cluster(kThree);
  cluster.launch_on({0, 1, 2}, 1);
  cluster.complete(0, 1);
  cluster.stable(0, 1);
  EXPECT_THAT(cluster.node(0).freed_finals, ElementsAre(Seq{1}));
}

TEST(RecoveryHolding, LaunchingWaitsBeyondTheBound) {
  RecoveryCluster cluster(kThree, with([](auto& o) { o.max_unstable_bytes = 100; }));
  EXPECT_TRUE(cluster.core(0).may_launch(500)) << "alone, however large";
  cluster.launch_on({0, 1, 2}, 1, 60);
  EXPECT_TRUE(cluster.core(0).may_launch(40));
  EXPECT_FALSE(cluster.core(0).may_launch(41));
  cluster.complete(0, 1);
  EXPECT_FALSE(cluster.core(0).may_launch(41)) << "the others do not hold it yet";
}

TEST(RecoveryHolding, WhenMuchIsUnstableAndTrafficStopsItIsAcknowledgedAtOnce) {
  RecoveryCluster cluster(kThree, with([](auto& o) { o.max_unstable_bytes = 100; }));
  cluster.launch_on({0, 1, 2}, 1, 60);
  for (const int node : {0, 1, 2}) cluster.complete(node, 1);
  EXPECT_TRUE(cluster.core(0).may_launch(100));
}

TEST(RecoveryHolding, LittleWaitsForTheNextHeartbeat) {
  RecoveryCluster cluster(kThree);
  cluster.launch_on({0, 1, 2}, 1);
  for (const int node : {0, 1, 2}) cluster.complete(node, 1);
  EXPECT_THAT(cluster.node(0).freed_finals, IsEmpty());
}

TEST(RecoveryHolding, PolicyFailKeepsNothingThatWasDelivered) {
  RecoveryCluster cluster(kThree, RecoveryOptions{});
  cluster.launch_on({0, 1, 2}, 1);
  cluster.complete(0, 1);
  EXPECT_THAT(cluster.node(0).freed_finals, ElementsAre(Seq{1}));
}

TEST(RecoveryHolding, ANodeAloneNeedsNobody) {
  RecoveryCluster cluster({4});
  cluster.launch(0, 1);
  cluster.chunk(0, 1, 0);
  EXPECT_THAT(cluster.node(0).deliveries, SizeIs(1));
  EXPECT_THAT(cluster.node(0).freed_finals, ElementsAre(Seq{1}));
  EXPECT_EQ(cluster.core(0).deadline(), std::nullopt);
}

// --- R3 ------------------------------------------------------------------------------------------

TEST(RecoverySeal, ASealedNodeNeitherDeliversNorLaunches) {
  RecoveryCluster cluster(kThree);
  cluster.launch_on({0, 1, 2}, 1);
  cluster.suspect(0, 2);
  EXPECT_EQ(cluster.node(0).seals, 1);
  cluster.complete(0, 1);
  EXPECT_THAT(cluster.node(0).deliveries, IsEmpty());
  EXPECT_FALSE(cluster.core(0).may_launch(1));
}

TEST(RecoverySeal, SilenceIsSuspicious) {
  RecoveryCluster cluster(kThree);
  cluster.kill(1);
  cluster.pass(kTimes.suspicion_ms - 1);
  EXPECT_EQ(cluster.node(0).seals, 0);
  cluster.pass(1);
  EXPECT_EQ(cluster.node(0).seals, 1);
}

// --- R4 ------------------------------------------------------------------------------------------

TEST(RecoveryDecision, SurvivorsGoOnWithWhatIsCompleteAndRepeatTheRest) {
  RecoveryCluster cluster(kThree);
  for (const uint64_t seq : {1, 2, 3}) cluster.launch_on({0, 2}, seq);
  for (const uint64_t seq : {1, 2}) cluster.launch(1, seq);
  cluster.complete(0, 1);  // is delivered
  cluster.chunk(0, 2, 0);
  cluster.kill(1);
  cluster.suspect(0, 1);
  cluster.pass(kTimes.eviction_ms + kTimes.resend_ms);
  for (const int node : {0, 2}) {
    ASSERT_THAT(cluster.node(node).epochs, SizeIs(1)) << node;
    const NextEpoch& next = cluster.node(node).epochs[0];
    EXPECT_EQ(next.epoch, Epoch{2});
    EXPECT_THAT(next.members, ElementsAre(n0, n2));
    EXPECT_THAT(next.lost, ElementsAre(n1));
    ASSERT_THAT(next.operations, SizeIs(3)) << "both who go on have launched 3";
    EXPECT_EQ(next.operations[0].verdict, Verdict::kComplete);
    EXPECT_EQ(next.operations[1].verdict, Verdict::kRedo);
    EXPECT_EQ(next.operations[2].verdict, Verdict::kRedo);
    EXPECT_EQ(next.next_seq[0], Seq{4});
  }
  EXPECT_THAT(cluster.node(0).epochs[0].fetches, IsEmpty());
  EXPECT_THAT(cluster.node(2).epochs[0].fetches, SizeIs(3));
  EXPECT_EQ(cluster.node(2).epochs[0].fetches[0].from, n0);
}

TEST(RecoveryDecision, ACompletionSaysOfWhichEpochItIs) {
  RecoveryCluster cluster(kThree);
  cluster.launch_on({0, 1, 2}, 1);
  cluster.launch_on({0, 1, 2}, 2);
  cluster.complete(0, 1);
  cluster.kill(1);
  cluster.suspect(0, 1);
  cluster.pass(kTimes.eviction_ms + kTimes.resend_ms);
  for (size_t chunk = 0; chunk < 3; ++chunk) cluster.chunk(2, 1, chunk);  // fetches the chunks
  cluster.launch_on({0, 2}, 2);                                           // launches it again
  for (const int node : {0, 2}) cluster.complete(node, 2);
  ASSERT_THAT(cluster.node(2).deliveries, SizeIs(2));
  const CompletedOperation& completed = cluster.node(2).deliveries[0];
  EXPECT_EQ(completed.epoch, Epoch{1});
  EXPECT_EQ(completed.contributors, 6u) << "the old divisor";
  const CompletedOperation& redone = cluster.node(2).deliveries[1];
  EXPECT_EQ(redone.epoch, Epoch{2});
  EXPECT_EQ(redone.contributors, 5u) << "the new one";
  EXPECT_THAT(cluster.node(0).deliveries, SizeIs(2)) << "what was delivered before is not again";
}

TEST(RecoveryDecision, WhatOneHasNotLaunchedReturns) {
  RecoveryCluster cluster(kThree);
  cluster.launch_on({0, 1, 2}, 1);
  cluster.launch_on({0, 1}, 2);
  cluster.kill(1);
  cluster.suspect(0, 1);
  cluster.pass(kTimes.eviction_ms + kTimes.resend_ms);
  EXPECT_THAT(cluster.node(0).epochs[0].operations, SizeIs(1));
  EXPECT_EQ(cluster.node(0).epochs[0].returned[0], Seq{2});
  EXPECT_EQ(cluster.node(0).epochs[0].next_seq[0], Seq{2});
}

TEST(RecoveryDecision, TheDeathOfTheCoordinatorCostsAnEpoch) {
  RecoveryCluster cluster(kThree);
  cluster.kill(0);
  cluster.pass(kTimes.suspicion_ms + kTimes.eviction_ms);
  EXPECT_THAT(cluster.core(1).members(), ElementsAre(n1, n2));
  EXPECT_THAT(cluster.core(2).members(), ElementsAre(n1, n2));
}

TEST(RecoveryDecision, AProposerThatDiesHalfWayIsFollowedByTheNext) {
  RecoveryCluster cluster({1, 1, 1, 1});
  cluster.launch_on({0, 1, 2, 3}, 1);
  cluster.cut(0, 2);
  cluster.cut(0, 3);
  cluster.suspect(0, 3);
  cluster.pass(0);  // only node 1 hears of the ballot
  cluster.kill(0);
  cluster.pass(kTimes.suspicion_ms + 2 * kTimes.eviction_ms + 4 * kTimes.retry_ms);
  for (const int node : {1, 2, 3}) {
    EXPECT_THAT(cluster.core(node).members(), ElementsAre(n1, n2, n3)) << node;
    EXPECT_EQ(cluster.core(node).epoch(), Epoch{2}) << node;
  }
}

TEST(RecoveryDecision, AnUnfoundedSuspicionCostsAnEpochAndNobody) {
  RecoveryCluster cluster(kThree);
  cluster.launch_on({0, 1, 2}, 1);
  cluster.suspect(1, 2);
  cluster.pass(kTimes.stagger_ms * 3);
  for (const int node : {0, 1, 2}) {
    EXPECT_EQ(cluster.core(node).epoch(), Epoch{2}) << node;
    EXPECT_THAT(cluster.core(node).members(), ElementsAre(n0, n1, n2)) << node;
  }
}

TEST(RecoveryDecision, OfTwoHalvesTheOneWithTheLowestNodeGoesOn) {
  RecoveryCluster cluster({1, 1, 1, 1});
  for (const int low : {0, 1}) {
    for (const int high : {2, 3}) {
      cluster.cut(low, high);
      cluster.cut(high, low);
    }
  }
  cluster.pass(kTimes.suspicion_ms + 2 * kTimes.eviction_ms);
  EXPECT_THAT(cluster.core(0).members(), ElementsAre(n0, n1));
  EXPECT_EQ(cluster.core(1).epoch(), Epoch{2});
  EXPECT_EQ(cluster.core(2).epoch(), Epoch{1});
  cluster.pass(kTimes.give_up_ms);
  for (const int node : {2, 3}) {
    ASSERT_THAT(cluster.node(node).ends, SizeIs(1)) << "and the other gives up, in bounded time";
    EXPECT_THAT(cluster.node(node).ends[0].status.message(),
                HasSubstr("is not of a majority that could decide how to go on"));
  }
}

TEST(RecoveryDecision, OrTheOneThatTheWitnessHears) {
  RecoveryCluster cluster({1, 1}, with([](auto& o) { o.has_witness = true; }));
  const int witness = 2;
  cluster.launch_on({0, 1}, 1);
  for (const int other : {1, witness}) {
    cluster.cut(0, other);
    cluster.cut(other, 0);
  }
  cluster.pass(kTimes.suspicion_ms + 2 * kTimes.eviction_ms);
  EXPECT_THAT(cluster.core(1).members(), ElementsAre(n1));
  EXPECT_EQ(cluster.core(witness).epoch(), Epoch{2});
  EXPECT_EQ(cluster.core(0).epoch(), Epoch{1});
}

TEST(RecoveryDecision, NobodyMissesTheWitness) {
  RecoveryCluster cluster({1, 1}, with([](auto& o) { o.has_witness = true; }));
  const int witness = 2;
  for (const int node : {0, 1}) {
    cluster.cut(node, witness);
    cluster.cut(witness, node);
  }
  cluster.pass(2 * kTimes.suspicion_ms + 2 * kTimes.eviction_ms);
  cluster.launch_on({0, 1}, 1);
  EXPECT_EQ(cluster.core(0).epoch(), Epoch{1});
  EXPECT_EQ(cluster.core(0).state(), RecoveryState::kRunning);
  EXPECT_TRUE(cluster.core(0).has_lease(cluster.now()));
  EXPECT_EQ(cluster.core(witness).deadline(), std::nullopt) << "it keeps no time";
}

// A job that all ranks have left begins anew, and does not tell the witness.
TEST(RecoveryDecision, TheWitnessAsksWhichEpochRuns) {
  RecoveryOptions options = kTimes;
  options.has_witness = true;
  const Layout layout = Layout::make({{"a", "", {Rank{0}}}, {"b", "", {Rank{1}}}}).value();
  const NodeIndex self{2};
  Recovery node(layout, n0, options, Epoch{3});
  Recovery witness(layout, self, options, Epoch{0});
  RecoveryOutput said;
  node.start(0, said);
  const auto last_to = [](const RecoveryOutput& output, NodeIndex to) {
    RecoveryMessage message{};
    for (const auto& [receiver, each] : output.sends) {
      if (receiver == to) message = each;
    }
    return message;
  };
  RecoveryOutput asked;
  witness.on_message(1, last_to(said, self), asked);
  EXPECT_TRUE(std::holds_alternative<Ask>(last_to(asked, n0).body));
  RecoveryOutput told;
  node.on_message(2, last_to(asked, n0), told);
  RecoveryOutput entered;
  witness.on_message(3, last_to(told, self), entered);
  EXPECT_EQ(witness.epoch(), Epoch{3});
  EXPECT_THAT(witness.members(), ElementsAre(n0, n1));
}

TEST(RecoveryDecision, WhoMissedItIsToldWhenItIsHeardOf) {
  RecoveryCluster cluster(kThree);
  cluster.launch_on({0, 1, 2}, 1);
  for (const int other : {0, 1}) cluster.cut(other, 2);
  cluster.suspect(0, 1);
  cluster.pass(2 * kTimes.eviction_ms);
  EXPECT_THAT(cluster.core(0).members(), ElementsAre(n0, n1));
  cluster.heal();
  cluster.pass(kTimes.retry_ms);
  ASSERT_THAT(cluster.node(2).ends, SizeIs(1));
  EXPECT_EQ(cluster.node(2).ends[0].status.code(), Code::kNodeLost);
  EXPECT_EQ(cluster.node(2).ends[0].status.message(),
            "epoch 2 of the job began without node n2, of which the others had not heard for too "
            "long");
}

// --- R5 ------------------------------------------------------------------------------------------

TEST(RecoveryLease, NothingIsDeliveredBeforeAMajorityHasHeardTheNode) {
  RecoveryCluster cluster(kThree);
  cluster.cut(0, 1);
  cluster.cut(0, 2);
  cluster.launch_on({0, 1, 2}, 1);
  cluster.pass(kTimes.lease_ms);
  EXPECT_FALSE(cluster.core(0).has_lease(cluster.now()));
  cluster.complete(0, 1);
  EXPECT_THAT(cluster.node(0).deliveries, IsEmpty());
  cluster.heal();
  cluster.pass(kTimes.heartbeat_ms);
  EXPECT_THAT(cluster.node(0).deliveries, SizeIs(1)) << "and then it is";
}

TEST(RecoveryLease, AThawedNodeDeliversNothing) {
  RecoveryCluster cluster(kThree);
  cluster.launch_on({0, 1, 2}, 1);
  cluster.launch_on({0, 1, 2}, 2);
  cluster.complete(1, 1);
  cluster.freeze(1);
  cluster.pass(kTimes.suspicion_ms + kTimes.eviction_ms + kTimes.resend_ms);
  ASSERT_EQ(cluster.core(0).epoch(), Epoch{2});
  // Node 2's last frames arrive before anything else does.
  cluster.complete(1, 2);
  EXPECT_THAT(cluster.node(1).deliveries, SizeIs(1));
  cluster.thaw(1);
  cluster.pass(0);
  ASSERT_THAT(cluster.node(1).ends, SizeIs(1));
  EXPECT_THAT(cluster.node(1).deliveries, SizeIs(1));
  EXPECT_THAT(cluster.node(1).ends[0].diverged, ElementsAre(Seq{1}))
      << "it had delivered what the others repeat";
}

TEST(RecoveryLease, NobodyIsLeftOutWhoMayStillDeliver) {
  RecoveryCluster cluster(kThree);
  cluster.pass(kTimes.heartbeat_ms);  // node 2 was heard just now
  cluster.kill(2);
  cluster.suspect(0, 2);
  cluster.suspect(1, 2);
  cluster.pass(kTimes.lease_ms);
  EXPECT_EQ(cluster.core(0).epoch(), Epoch{1});
  cluster.pass(kTimes.eviction_ms - kTimes.lease_ms + kTimes.resend_ms);
  EXPECT_EQ(cluster.core(0).epoch(), Epoch{2});
}

// The proposer is in a hurry, and the acceptor trusts its own clock.
TEST(RecoveryLease, AnAcceptorWaitsForTheLeaseThatItHelpedToRenew) {
  RecoveryCluster cluster(kThree);
  Decision decision;
  decision.epoch = Epoch{2};
  decision.members = {n0, n1};
  decision.lost = {n2};
  const Accept accept{{1, n0}, std::make_shared<const Decision>(decision)};
  cluster.cut(1, 0);
  RecoveryOutput early;
  cluster.core(1).on_message(cluster.now(), {n0, Epoch{1}, accept}, early);
  EXPECT_TRUE(early.sealed);
  cluster.core(1).on_stopped(cluster.now(), {}, {}, early);
  EXPECT_THAT(early.sends, IsEmpty());
  RecoveryOutput late;
  cluster.core(1).on_message(cluster.now() + kTimes.eviction_ms, {n0, Epoch{1}, accept}, late);
  ASSERT_THAT(late.sends, SizeIs(1));
  EXPECT_TRUE(std::holds_alternative<Accepted>(late.sends[0].second.body));
}

TEST(RecoveryDeathTest, ALeaseThatOutlivesEvictionIsRefused) {
  EXPECT_DEATH(RecoveryCluster(kThree, with([](auto& o) { o.lease_ms = o.eviction_ms; })),
               "lease_ms");
}

// --- Policy `fail` -------------------------------------------------------------------------------

TEST(RecoveryFail, EverySurvivorIsToldWhoDied) {
  RecoveryCluster cluster(kThree, RecoveryOptions{});
  cluster.launch_on({0, 1, 2}, 1);
  cluster.kill(0);
  cluster.suspect(1, 0);
  cluster.pass(kTimes.eviction_ms + kTimes.resend_ms);
  for (const int node : {1, 2}) {
    ASSERT_THAT(cluster.node(node).ends, SizeIs(1)) << node;
    EXPECT_EQ(cluster.node(node).ends[0].status,
              Status(Code::kNodeLost, "lost node n0", Origin{"n0", {}}));
    EXPECT_EQ(cluster.core(node).state(), RecoveryState::kEnded);
    EXPECT_EQ(cluster.core(node).deadline(), std::nullopt);
  }
}

TEST(RecoveryFail, WhoWasAwayIsToldByThoseWhoHaveEnded) {
  RecoveryCluster cluster(kThree, RecoveryOptions{});
  cluster.freeze(2);
  cluster.suspect(0, 2);
  cluster.pass(kTimes.eviction_ms + kTimes.resend_ms);
  ASSERT_EQ(cluster.core(0).state(), RecoveryState::kEnded);
  cluster.node(2).inbox.clear();  // even if none of the messages has arrived
  cluster.thaw(2);
  cluster.pass(kTimes.retry_ms);
  ASSERT_THAT(cluster.node(2).ends, SizeIs(1));
  EXPECT_EQ(cluster.node(2).ends[0].status.message(), "lost node n2");
}

// --- What may arrive -----------------------------------------------------------------------------

TEST(RecoveryMessages, OfStrangersAndOfOldEpochsChangeNothing) {
  RecoveryCluster cluster({1, 1, 1, 1});
  cluster.kill(3);
  cluster.pass(kTimes.suspicion_ms + kTimes.eviction_ms);
  ASSERT_EQ(cluster.core(0).epoch(), Epoch{2});
  cluster.message(0, {n3, Epoch{2}, Prepare{{9, n3}}});
  cluster.message(0, {n1, Epoch{1}, Prepare{{9, n1}}});
  cluster.message(0, {n1, Epoch{1}, Accepted{{1, n0}}});
  EXPECT_EQ(cluster.core(0).state(), RecoveryState::kRunning);
  EXPECT_EQ(cluster.core(0).epoch(), Epoch{2});
}

TEST(RecoveryMessages, ADecisionLearnedTwiceIsCarriedOutOnce) {
  RecoveryCluster cluster(kThree);
  Decision decision;
  decision.epoch = Epoch{2};
  decision.members = {n0, n1, n2};
  decision.tracks[0].first = Seq{1};
  const Learn learn{std::make_shared<const Decision>(decision)};
  cluster.message(0, {n1, Epoch{1}, learn});
  cluster.message(0, {n2, Epoch{2}, learn});
  EXPECT_THAT(cluster.node(0).epochs, SizeIs(1));
}

}  // namespace
}  // namespace rueda::core
