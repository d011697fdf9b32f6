// Tests locked schedules, message by message: rules L3 to L8 of docs/protocol.md.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/modes/locked_cluster.h"

namespace rueda::core {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSubsetOf;

TEST_F(LockedTest, AfterThreeIdenticalStepsNothingIsSaid) {
  start({2, 2, 1});
  lock({tensor("a"), tensor("b")});
  for (int i = 0; i < 5; ++i) {
    const Ticket a = cluster_->submit(0, tensor("a"));
    for (int rank = 1; rank < ranks_; ++rank) cluster_->submit(rank, tensor("a"));
    cluster_->submit_everywhere(tensor("b"));
    cluster_->end_turns();
    for (int from = 0; from < 3; ++from) {
      for (int to = 0; to < 3; ++to) EXPECT_THAT(cluster_->stream(from, to), IsEmpty());
    }
    complete_launched();
    EXPECT_TRUE(cluster_->end_of(0, a).is_ok());
  }
}

TEST_F(LockedTest, ANodeLaunchesWhenItsOwnRanksAreReady) {
  start({1, 1});
  lock({tensor("a")});
  const size_t before = cluster_->node(1).launches.size();
  cluster_->submit(1, tensor("a"));
  cluster_->end_turns();
  ASSERT_EQ(cluster_->node(1).launches.size(), before + 1);
  EXPECT_TRUE(cluster_->node(1).launches.back().locked);
  EXPECT_EQ(cluster_->node(0).launches.size(), before) << "its rank has not submitted";
}

// The tensor is reported before the lock and not decreed: it goes with the plan, and the report is
// void (L4).
TEST_F(LockedTest, AReportUnderWayWhenTheLockComesIsIgnored) {
  start({1, 1});
  for (int i = 0; i < 2; ++i) step({tensor("a")});
  cluster_->submit_everywhere(tensor("a"));
  cluster_->end_turns();
  cluster_->deliver(1, 0);  // delivers the last report of the third step
  cluster_->end_turns();    // sends decree and lock to node 1
  for (int node : {0, 1}) cluster_->step(node, TurnEnded{});
  cluster_->deliver(0, 1);  // delivers the decree
  cluster_->end_turns();
  for (int node : {0, 1}) {
    done_.insert({node, cluster_->node(node).launches.back().seq.value});
    cluster_->step(node, OperationDone{cluster_->node(node).launches.back().seq});
  }
  const Ticket early = cluster_->submit(1, tensor("a"));
  cluster_->end_turns();  // node 1 has not heard of the lock, and reports
  EXPECT_FALSE(cluster_->stream(1, 0).empty());
  cluster_->submit(0, tensor("a"));
  complete_launched();
  EXPECT_TRUE(cluster_->end_of(1, early).is_ok());
  EXPECT_TRUE(is_locked(0));
  EXPECT_TRUE(is_locked(1));
}

// --- L6, L7: every way to leave a plan ---------------------------------------------------------

TEST_F(LockedTest, AnUnknownTensorUnlocks) {
  start({1, 1});
  lock({tensor("a")});
  step({tensor("new")});
  for (int node : {0, 1}) EXPECT_FALSE(is_locked(node));
  EXPECT_THAT(cluster_->node(0).notes.back(), HasSubstr("tensor \"new\" is not in the plan"));
  EXPECT_EQ(cluster_->node(0).core->submissions_in_flight(), 0u);
}

TEST_F(LockedTest, AnotherShapeUnlocksAndIsNegotiated) {
  start({1, 1});
  lock({tensor("a", 4), tensor("b", 4)});
  step({tensor("a", 5), tensor("b", 4)});
  EXPECT_FALSE(is_locked(0));
  EXPECT_THAT(cluster_->node(1).notes.back(), HasSubstr("shape [5], and [4] in the plan"));
  EXPECT_EQ(cluster_->node(0).core->submissions_in_flight(), 0u);
}

TEST_F(LockedTest, ShapesThatDifferBetweenRanksAreAMismatchForAll) {
  start({1, 1});
  lock({tensor("a", 4)});
  const Ticket other = cluster_->submit(0, tensor("a", 5));
  const Ticket usual = cluster_->submit(1, tensor("a", 4));
  complete_launched();
  EXPECT_EQ(cluster_->end_of(0, other).code(), Code::kMismatch);
  EXPECT_EQ(cluster_->end_of(1, usual).code(), Code::kMismatch);
  // This step shows that the job goes on.
  step({tensor("a", 4)});
  EXPECT_EQ(cluster_->node(0).core->submissions_in_flight(), 0u);
}

// Node 1 has launched a, and node 0 never will. Operations from 1 + the minimum on are cancelled,
// so a is cancelled and its tensor is ready again.
TEST_F(LockedTest, WhatOnlySomeHaveLaunchedIsCancelled) {
  start({1, 1}, 0);
  lock({tensor("a"), tensor("b")});
  const uint64_t next = cluster_->node(1).launches.back().seq.value + 1;
  const Ticket a = cluster_->submit(1, tensor("a"));
  cluster_->end_turns();
  ASSERT_EQ(cluster_->node(1).launches.back().seq.value, next);
  cluster_->submit_everywhere(tensor("new"));
  complete_launched();
  ASSERT_EQ(cluster_->node(1).cancels.size(), 1u);
  EXPECT_EQ(cluster_->node(1).cancels[0].first, Seq{next});
  EXPECT_EQ(cluster_->node(1).cancels[0].generation, 2u);
  EXPECT_FALSE(cluster_->has_ended(1, a));
  // The operation's number comes again, in the new generation.
  EXPECT_EQ(cluster_->node(1).launches.back().seq, Seq{next});
  EXPECT_EQ(cluster_->node(1).launches.back().generation, 2u);
  EXPECT_EQ(cluster_->node(1).launches.back().tensors->front().descriptor->name, "new");
  cluster_->submit(0, tensor("a"));
  complete_launched();
  EXPECT_TRUE(cluster_->end_of(1, a).is_ok());
}

TEST_F(LockedTest, ATensorThatComesAgainBeforeTheHeadUnlocks) {
  start({1, 1}, 0);
  lock({tensor("a"), tensor("b")});
  step({tensor("a")});
  EXPECT_TRUE(is_locked(0));
  step({tensor("a")});  // skips b
  EXPECT_FALSE(is_locked(0));
  EXPECT_THAT(cluster_->node(0).notes.back(), HasSubstr("tensor \"a\" has come again before"));
  EXPECT_EQ(cluster_->node(0).core->submissions_in_flight(), 0u);
}

TEST_F(LockedTest, ARankThatWaitsForALaterTensorUnlocks) {
  start({2, 1}, 0);
  lock({tensor("a"), tensor("b")});
  const Ticket b = cluster_->submit(0, tensor("b"));
  cluster_->submit(1, tensor("b"));
  cluster_->submit(2, tensor("b"));
  complete_launched();
  EXPECT_TRUE(is_locked(0));
  cluster_->step(0, RankWaits{cluster_->local(0), b});
  complete_launched();
  EXPECT_FALSE(is_locked(0));
  EXPECT_TRUE(cluster_->end_of(0, b).is_ok());
}

// A wait for launched operations, or after everything before it was submitted, is no deviation.
TEST_F(LockedTest, ARankThatHasDoneItsPartMayWait) {
  start({2, 1}, 0);
  lock({tensor("a"), tensor("b")});
  const Ticket a = cluster_->submit(0, tensor("a"));
  cluster_->step(0, RankWaits{cluster_->local(0), a});
  cluster_->settle();
  EXPECT_TRUE(is_locked(0));
  const Ticket b = cluster_->submit(0, tensor("b"));
  cluster_->step(0, RankWaits{cluster_->local(0), b});
  cluster_->settle();
  EXPECT_TRUE(is_locked(0));
}

TEST_F(LockedTest, AHeadOvertakenForLongUnlocks) {
  start({1, 1}, 0);
  lock({tensor("a"), tensor("b")});
  cluster_->submit_everywhere(tensor("b"));
  complete_launched();
  EXPECT_TRUE(is_locked(0));
  // the fast path (plan_fast_path.h) is left first, then the wait is judged
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(cluster_->node(0).core->wakes_at().has_value());
    cluster_->pass(1'000);
    complete_launched();
  }
  EXPECT_FALSE(is_locked(0));
  EXPECT_EQ(cluster_->node(0).core->submissions_in_flight(), 0u);
}

TEST_F(LockedTest, SubmittingEarlyIsNoDeviation) {
  start({1, 1}, 0);
  lock({tensor("a"), tensor("b")});
  cluster_->submit_everywhere(tensor("b"));
  cluster_->settle();
  cluster_->submit_everywhere(tensor("a"));
  complete_launched();
  EXPECT_TRUE(is_locked(0));
  EXPECT_EQ(cluster_->node(0).core->submissions_in_flight(), 0u);
}

TEST_F(LockedTest, LocksAgainLater) {
  start({1, 1});
  lock({tensor("a")});
  step({tensor("new")});
  ASSERT_FALSE(is_locked(0));
  for (int i = 0; i < 7; ++i) step({tensor("a")});
  EXPECT_TRUE(is_locked(0)) << "twice as many steps, for the first lock did not hold";
  EXPECT_TRUE(is_locked(1));
}

// The number of steps doubles, and never falls below the configured one.
TEST_F(LockedTest, MoreStepsThanTheMostStayMore) {
  JobOptions options;
  options.agreement.mode = Coordination::kLocked;
  options.agreement.lock_after_steps = 1'500;
  cluster_.emplace(std::vector<int>{1, 1}, options);
  cluster_->start();
  ranks_ = 2;
  for (int i = 0; i < 1'500; ++i) step({tensor("a")});
  ASSERT_TRUE(is_locked(0));
  step({tensor("new")});
  for (int i = 0; i < 1'498; ++i) step({tensor("a")});
  EXPECT_FALSE(is_locked(0));
}

// --- What leaves locks undisturbed ---------------------------------------------------------------

TEST_F(LockedTest, BroadcastsAreDecreedBesideALock) {
  start({1, 1});
  lock({tensor("a")});
  const DescriptorPtr broadcast = tensor("buffer", 1, [](TensorDescriptor& t) {
    t.kind = CollectiveKind::kBroadcast;
    t.root = Rank{0};
  });
  step({broadcast, tensor("a")});
  EXPECT_TRUE(is_locked(0));
  EXPECT_EQ(cluster_->node(0).core->submissions_in_flight(), 0u);
  // Broadcasts have numbers of their own.
  EXPECT_EQ(track_of(cluster_->node(0).launches.back().seq),
            track_of(cluster_->node(1).launches.back().seq));
}

// A launch of NCCL's kernels cannot be cancelled.
TEST_F(LockedTest, WhatNcclCarriesIsDecreedBesideALock) {
  start({1, 1});
  const auto by_nccl = [](TensorDescriptor& t) { t.memory = MemorySpace::kDeviceNccl; };
  for (int i = 0; i < 8; ++i) step({tensor("a"), tensor("gradient", 4, by_nccl)});
  for (int node = 0; node < 2; ++node) {
    EXPECT_TRUE(is_locked(node));
    EXPECT_EQ(cluster_->node(node).core->submissions_in_flight(), 0u);
    EXPECT_TRUE(cluster_->node(node).cancels.empty());
  }
  for (const Launch& launch : cluster_->node(0).launches) {
    const TensorDescriptor& first = *launch.tensors->front().descriptor;
    EXPECT_EQ(track_of(launch.seq) == Track::kDecreed, first.name == "gradient");
  }
}

// A lock once took over the lockable track, and forgot groups that were waiting for their last
// tensor.
TEST_F(LockedTest, AGroupThatNcclCarriesOutlivesTheBeginningAndTheEndOfALock) {
  start({1, 1});
  const auto member = [](const std::string& name) {
    return tensor(name, 4, [](TensorDescriptor& t) {
      t.memory = MemorySpace::kDeviceNccl;
      t.group = "g";
      t.group_size = 2;
    });
  };
  const Ticket first = cluster_->submit(0, member("one"));
  cluster_->submit(1, member("one"));
  complete_launched();
  lock({tensor("a")});
  step({tensor("b")});
  EXPECT_FALSE(is_locked(0));
  EXPECT_FALSE(cluster_->has_ended(0, first));
  step({member("other")});
  EXPECT_TRUE(cluster_->end_of(0, first).is_ok());
  EXPECT_EQ(cluster_->node(1).core->submissions_in_flight(), 0u);
}

// The group is complete, and waits for others to end before it is decreed.
TEST_F(LockedTest, AGroupThatWaitsInTheQueueOutlivesTheBeginningOfALock) {
  start({1, 1});
  const auto by_nccl = [](TensorDescriptor& t) {
    t.memory = MemorySpace::kDeviceNccl;
    t.op = ReduceOp::kMax;
  };
  std::vector<Ticket> tickets;
  const auto submit = [&](const DescriptorPtr& item) {
    tickets.push_back(cluster_->submit(0, item));
    cluster_->submit(1, item);
    cluster_->settle();
  };
  // These tensors have types that are not fused, and are more than may be open.
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt64}) {
    submit(tensor(std::string("busy ") + to_string(dtype), 1, [&](TensorDescriptor& t) {
      by_nccl(t);
      t.dtype = dtype;
    }));
  }
  for (const char* name : {"one", "other"}) {
    submit(tensor(name, 4, [](TensorDescriptor& t) {
      t.memory = MemorySpace::kDeviceNccl;
      t.group = "g";
      t.group_size = 2;
    }));
  }
  const size_t decreed = cluster_->node(0).launches.size();
  EXPECT_LT(decreed, 5u) << "the group has been decreed";
  for (int i = 0; i < 3; ++i) {
    cluster_->submit_everywhere(tensor("a"));
    for (bool moved = true; moved;) {
      cluster_->settle();
      moved = false;
      for (const auto& [seq, launches] : under_way()) {
        if (track_of(Seq{seq}) != Track::kLockable || launches.size() < 2) continue;
        for (const int node : launches) {
          done_.insert({node, seq});
          cluster_->step(node, OperationDone{Seq{seq}});
        }
        moved = true;
        break;
      }
    }
  }
  EXPECT_TRUE(is_locked(0));
  complete_launched();
  for (const Ticket ticket : tickets) EXPECT_TRUE(cluster_->end_of(0, ticket).is_ok());
  EXPECT_TRUE(is_locked(1));
}

TEST_F(LockedTest, AnotherKindUnderAPlannedNameIsAMismatch) {
  start({1, 1});
  lock({tensor("a")});
  const Ticket usual = cluster_->submit(0, tensor("a"));
  const Ticket other = cluster_->submit(1, tensor("a", 1, [](TensorDescriptor& t) {
                                          t.kind = CollectiveKind::kBroadcast;
                                          t.root = Rank{0};
                                        }));
  complete_launched();
  EXPECT_EQ(cluster_->end_of(0, usual).code(), Code::kMismatch);
  EXPECT_EQ(cluster_->end_of(1, other).code(), Code::kMismatch);
}

// --- Goodbye -------------------------------------------------------------------------------------

TEST_F(LockedTest, RanksLeaveALockedJob) {
  start({1, 1, 1});
  lock({tensor("a")});
  cluster_->detach(2);
  cluster_->settle();
  for (int node = 0; node < 3; ++node) EXPECT_FALSE(is_locked(node));
  const Ticket late = cluster_->submit(1, tensor("a"));
  EXPECT_EQ(cluster_->end_of(1, late).code(), Code::kShutDown);
  cluster_->detach(0);
  cluster_->detach(1);
  cluster_->settle();
  for (int node = 0; node < 3; ++node) {
    EXPECT_EQ(cluster_->state(node), JobState::kForming);
    EXPECT_EQ(cluster_->node(node).finished.size(), 1u);
  }
}

// The node's goodbye says how far it was, so the plan is given up without it.
TEST_F(LockedTest, ANodeThatStopsAfterItsGoodbyeIsNotMissed) {
  start({1, 1, 1});
  lock({tensor("a")});
  cluster_->detach(2);
  cluster_->deliver(2, 0);
  cluster_->step(0, NodeLost{NodeIndex{2}, Status(Code::kNodeLost, "it stopped")});
  cluster_->stream(0, 2).clear();
  cluster_->detach(0);
  cluster_->detach(1);
  cluster_->settle();
  EXPECT_THAT(cluster_->node(0).failed, IsEmpty());
  EXPECT_EQ(cluster_->state(0), JobState::kForming);
  EXPECT_EQ(cluster_->state(1), JobState::kForming);
}

TEST_F(LockedTest, WhatEverybodyLaunchedBeforeAGoodbyeIsDelivered) {
  start({1, 1});
  lock({tensor("a")});
  const Ticket here = cluster_->submit(0, tensor("a"));
  cluster_->submit(1, tensor("a"));
  cluster_->end_turns();
  const uint64_t seq = cluster_->node(1).launches.back().seq.value;
  done_.insert({1, seq});
  cluster_->step(1, OperationDone{Seq{seq}});
  cluster_->detach(1);
  cluster_->settle();
  done_.insert({0, seq});
  cluster_->step(0, OperationDone{Seq{seq}});
  EXPECT_TRUE(cluster_->end_of(0, here).is_ok());
}

// A node that has finished closes its channel. The message that it has left waits for the plan to
// be given up, and must get through a sealed epoch.
TEST_F(LockedTest, ASuspectThatHadLeftALockedJobIsNotMissed) {
  for (const int suspicious : {0, 1}) {
    start({1, 1, 1});
    lock({tensor("a")});
    cluster_->detach(2);
    cluster_->step(suspicious, DataChannelLost{NodeIndex{2}, Status(Code::kNodeLost, "it closed")});
    EXPECT_EQ(cluster_->state(suspicious), JobState::kSuspecting);
    cluster_->settle();
    EXPECT_EQ(cluster_->state(suspicious), JobState::kRunning);
    cluster_->pass(10'000);
    cluster_->detach(0);
    cluster_->detach(1);
    cluster_->settle();
    for (int node = 0; node < 3; ++node) EXPECT_THAT(cluster_->node(node).failed, IsEmpty());
    done_.clear();
  }
}

// The node's goodbye was on its way before the lock came, and the node answers nothing any more.
TEST_F(LockedTest, ANodeThatLeftWithoutHavingSeenTheLockHoldsNobodyUp) {
  start({1, 1, 1});
  for (int i = 0; i < 2; ++i) step({tensor("a")});
  cluster_->submit_everywhere(tensor("a"));
  cluster_->end_turns();
  cluster_->deliver(1, 0);
  cluster_->deliver(2, 0);
  cluster_->end_turns();    // sends the decree, then the lock
  cluster_->deliver(0, 2);  // delivers only the decree
  cluster_->deliver(0, 1);
  cluster_->end_turns();
  for (int node = 0; node < 3; ++node) {
    cluster_->step(node, OperationDone{cluster_->node(node).launches.back().seq});
  }
  cluster_->detach(2);
  cluster_->deliver(2, 0);
  cluster_->stream(0, 2).clear();
  const Ticket waits = cluster_->submit(1, tensor("a"));
  for (bool moved = true; moved;) {
    moved = false;
    cluster_->step(0, TurnEnded{});
    cluster_->step(1, TurnEnded{});
    cluster_->stream(0, 2).clear();
    for (const auto& [from, to] : {std::pair{0, 1}, std::pair{1, 0}}) {
      if (cluster_->stream(from, to).empty()) continue;
      cluster_->deliver(from, to);
      moved = true;
    }
  }
  EXPECT_FALSE(is_locked(0));
  EXPECT_EQ(cluster_->end_of(1, waits).code(), Code::kShutDown);
}

TEST_F(LockedTest, ANodeThatMisreportsHowFarItWasEndsTheEpoch) {
  for (const uint64_t launched : {uint64_t{0}, uint64_t{1}, kDecreedBit + 7}) {
    start({1, 1});
    lock({tensor("a")});
    for (int i = 0; i < 3; ++i) step({tensor("a")});
    const Message last{NodeIndex{1}, Epoch{1}, 1'000, AgreementMessage(Frozen{1, Seq{launched}})};
    Message frozen = last;
    for (frozen.number = 1; frozen.number < 100 && cluster_->node(0).failed.empty();
         ++frozen.number) {
      cluster_->step(0, MessageArrived{frozen});
    }
    ASSERT_EQ(cluster_->node(0).failed.size(), 1u);
    EXPECT_THAT(cluster_->node(0).failed[0].message(), HasSubstr("which cannot be"));
    done_.clear();
  }
}

// --- Every mode ----------------------------------------------------------------------------------

class EveryMode : public LockedTest, public testing::WithParamInterface<Coordination> {};

TEST_P(EveryMode, StepsOfAllKindsComplete) {
  JobOptions options;
  options.agreement.mode = GetParam();
  options.agreement.cache_capacity = 2;
  cluster_.emplace(std::vector<int>{2, 1, 2}, options);
  cluster_->start();
  ranks_ = 5;
  const DescriptorPtr broadcast = tensor("b", 3, [](TensorDescriptor& t) {
    t.kind = CollectiveKind::kBroadcast;
    t.root = Rank{4};
  });
  const DescriptorPtr barrier = tensor("c", 0, [](TensorDescriptor& t) {
    t.kind = CollectiveKind::kBarrier;
    t.shape.clear();
  });
  for (int i = 0; i < 10; ++i) {
    for (const DescriptorPtr& item : {tensor("a", 1 + i / 7), broadcast, barrier,
                                      member_of("g", 2, "g1"), member_of("g", 2, "g2")}) {
      cluster_->submit_everywhere(item);
    }
    for (int cycle = 0; cycle < 10; ++cycle) {
      complete_launched();
      cluster_->pass(20);
    }
    complete_launched();
    for (int node = 0; node < 3; ++node) {
      ASSERT_EQ(cluster_->node(node).core->submissions_in_flight(), 0u) << i;
      ASSERT_THAT(cluster_->node(node).failed, IsEmpty())
          << cluster_->node(node).failed[0].message();
    }
  }
  EXPECT_STREQ(cluster_->node(0).core->mode(), to_string(GetParam()));
  // An idle job sends no messages.
  for (int node = 0; node < 3; ++node) {
    EXPECT_FALSE(cluster_->node(node).core->wakes_at().has_value());
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryMode, all_modes(), name_of_mode);

}  // namespace
}  // namespace rueda::core
