// Tests the modes with a cycle by a clock that the test moves: when each node wakes up, what it
// then says, and when it carries out what was ordered. Times are in microseconds, and the cycle
// time is 5 ms, as in Pumma et al.

#include "daemon/core/modes/cycle_modes.h"

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/core/model/tree.h"
#include "tests/core/builders.h"

namespace rueda::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr TicksUs kCycle = 5'000;

class Cycle : public testing::Test {
 protected:
  struct Node {
    std::unique_ptr<SubmissionTable> submissions;
    std::unique_ptr<Agreement> agreement;
    std::deque<std::pair<NodeIndex, AgreementMessage>> inbox;  // Each with its author.
    std::vector<std::string> done;                             // The tensors that were ordered.
    uint32_t rounds = 0;
  };

  void start(Coordination mode, int nodes,
             const std::function<void(AgreementOptions&)>& change = {}) {
    AgreementOptions options;
    options.mode = mode;
    options.cycle_time_us = kCycle;
    options.fusion.threshold_bytes = 0;
    if (change) change(options);
    fan_in_ = options.tree_fan_in;
    layout_.emplace(layout_of(std::vector<int>(static_cast<size_t>(nodes), 1)));
    nodes_.clear();
    for (int i = 0; i < nodes; ++i) {
      Node& node = nodes_.emplace_back();
      node.submissions = std::make_unique<SubmissionTable>(layout_->node(NodeIndex{i}).ranks);
      node.agreement = make_agreement(*layout_, NodeIndex{i}, *node.submissions, options);
    }
  }
  Node& at(int node) { return nodes_[static_cast<size_t>(node)]; }

  // The tensor is ready on the node, whose turn this is not yet.
  void ready(TicksUs now, int node, const std::string& name) {
    at(node).agreement->set_now(now);
    at(node).agreement->on_local_ready({tensor(name), Rank{node}, {}});
  }
  void ready_everywhere(TicksUs now, const std::string& name) {
    for (int node = 0; node < static_cast<int>(nodes_.size()); ++node) ready(now, node, name);
  }
  // The node takes in what has come to it, and its turn ends.
  Status turn(TicksUs now, int node) {
    Agreement& agreement = *at(node).agreement;
    agreement.set_now(now);
    Status status;
    for (const auto& [from, message] : std::exchange(at(node).inbox, {})) {
      if (status.is_ok()) status = agreement.on_message(from, message);
    }
    AgreementOutput output;
    agreement.end_turn(output);
    for (const auto& [to, message] : output.sends) send(node, to, message);
    for (const OrderedOperation& operation : output.ordered) {
      at(node).done.insert(at(node).done.end(), operation.tensors.begin(), operation.tensors.end());
    }
    at(node).rounds += output.rounds;
    return status;
  }
  void turn_ok(TicksUs now, int node) {
    const Status status = turn(now, node);
    EXPECT_TRUE(status.is_ok()) << status.message();
  }
  void send(int from, NodeIndex to, const AgreementMessage& message) {
    sent_.emplace_back(from, to, message);
    if (to == kNodeAbove) to = Tree(*layout_, fan_in_).parent(NodeIndex{from});
    for (int node = 0; node < static_cast<int>(nodes_.size()); ++node) {
      if (node == from || (to != kEverybodyBelow && to.value != node)) continue;
      at(node).inbox.emplace_back(NodeIndex{from}, message);
    }
  }
  // Returns when the node wakes up next; it has something to say then.
  TicksUs wakes(int node) { return at(node).agreement->wakes_at_us().value_or(-1); }

  // All nodes begin a round at these times, and its end is known to all at `end`.
  void round(const std::vector<TicksUs>& begins, TicksUs end, const std::string& name) {
    ready_everywhere(begins.front(), name);
    for (size_t node = 0; node < begins.size(); ++node) {
      turn_ok(begins[node], static_cast<int>(node));
    }
    for (int node = 0; node < static_cast<int>(nodes_.size()); ++node) turn_ok(end, node);
  }
  // Tells every node, at `now`, what the others have said, until nobody says anything.
  void settle(TicksUs now) {
    for (bool moved = true; moved;) {
      moved = false;
      for (int node = 0; node < static_cast<int>(nodes_.size()); ++node) {
        if (at(node).inbox.empty()) continue;
        turn_ok(now, node);
        moved = true;
      }
    }
  }
  std::vector<TicksUs> all_wake() {
    std::vector<TicksUs> times;
    for (int node = 0; node < static_cast<int>(nodes_.size()); ++node) times.push_back(wakes(node));
    return times;
  }
  // Returns the sleeps that the node has told, to whomever.
  std::vector<TicksUs> sleeps_told_by(int node) {
    std::vector<TicksUs> sleeps;
    for (const auto& [from, to, message] : sent_) {
      const auto* ready = std::get_if<Ready>(&message);
      if (from == node && ready && ready->sleep_us) sleeps.push_back(*ready->sleep_us);
    }
    return sleeps;
  }

  std::optional<Layout> layout_;
  std::deque<Node> nodes_;
  int fan_in_ = 0;
  std::vector<std::tuple<int, NodeIndex, AgreementMessage>> sent_;
};

// --- cached: HOROVOD_CYCLE_TIME - T_previous -----------------------------------------------------

TEST_F(Cycle, ANodeSleepsTheCycleTimeLessWhatTheRoundTook) {
  start(Coordination::kCached, 2);
  round({0, 0}, 1'200, "a");
  EXPECT_THAT(at(0).done, ElementsAre("a"));
  ready_everywhere(1'300, "b");
  EXPECT_THAT(all_wake(), ElementsAre(5'000, 5'000));
  turn_ok(4'999, 1);
  EXPECT_THAT(at(0).inbox, IsEmpty()) << "nothing is said within the cycle";
  turn_ok(5'000, 1);
  EXPECT_EQ(at(0).inbox.size(), 1u);
}

// Section III-D, Figure 7: who waited for the straggler does not sleep, and the straggler does, so
// that it is late again.
TEST_F(Cycle, TheStragglerSleepsLongestAndTheOthersWaitForItAgain) {
  start(Coordination::kCached, 2);
  round({0, 4'000}, 6'000, "a");
  ready_everywhere(6'000, "b");
  EXPECT_THAT(all_wake(), ElementsAre(6'000, 9'000));
}

TEST_F(Cycle, AfterARestTheNextRoundBeginsAtOnce) {
  start(Coordination::kCached, 2);
  round({0, 0}, 1'000, "a");
  EXPECT_THAT(all_wake(), ElementsAre(-1, -1)) << "nothing new is ready: nobody wakes up";
  ready_everywhere(70'000, "b");
  turn_ok(70'000, 1);
  EXPECT_EQ(at(0).inbox.size(), 1u);
}

TEST_F(Cycle, MayBeShorterThanAMillisecond) {
  start(Coordination::kCached, 1, [](AgreementOptions& options) { options.cycle_time_us = 250; });
  round({0}, 0, "a");
  ready(10, 0, "b");
  EXPECT_THAT(all_wake(), ElementsAre(250));
  turn_ok(249, 0);
  EXPECT_THAT(at(0).done, ElementsAre("a"));
  turn_ok(250, 0);
  EXPECT_THAT(at(0).done, ElementsAre("a", "b"));
  EXPECT_EQ(at(0).rounds, 2u);
}

// --- global-sleep: the least of all sleeps -------------------------------------------------------

// The straggler would have slept 3 ms, and its fellow, whose round took longer than a cycle, not at
// all; the third 2 ms. All take the least.
TEST_F(Cycle, AllSleepTheLeastOfTheirOwnSleeps) {
  start(Coordination::kGlobalSleep, 3);
  round({0, 4'000, 3'000}, 6'000, "a");
  EXPECT_THAT(sleeps_told_by(1), ElementsAre(3'000));
  EXPECT_THAT(sleeps_told_by(2), ElementsAre(2'000));
  ready_everywhere(6'000, "b");
  EXPECT_THAT(all_wake(), ElementsAre(-1, -1, -1)) << "the sleep is not agreed on yet";
  settle(6'100);
  for (int node = 0; node < 3; ++node) EXPECT_THAT(at(node).done, ElementsAre("a", "b")) << node;
}

TEST_F(Cycle, TheSleepThatIsAgreedOnBeginsWhenItIsKnown) {
  start(Coordination::kGlobalSleep, 2);
  round({0, 500}, 1'500, "a");
  ready_everywhere(1'500, "b");
  turn_ok(1'700, 0);
  turn_ok(1'800, 1);
  EXPECT_THAT(all_wake(), ElementsAre(1'700 + 3'500, 1'800 + 3'500));
  EXPECT_EQ(at(0).rounds, 1u) << "the agreement on the sleep is no round";
}

TEST_F(Cycle, EveryNthSleepIsAgreedOnAndTheOthersAreTheNodesOwn) {
  start(Coordination::kGlobalSleep, 2, [](auto& options) { options.sleep_agreed_every = 2; });
  round({0, 4'000}, 6'000, "a");
  EXPECT_THAT(sleeps_told_by(1), IsEmpty());
  ready_everywhere(6'000, "b");
  EXPECT_THAT(all_wake(), ElementsAre(6'000, 9'000));
  turn_ok(6'000, 0);
  turn_ok(9'000, 1);
  turn_ok(9'500, 0);
  turn_ok(9'500, 1);
  EXPECT_THAT(at(1).done, ElementsAre("a", "b"));
  EXPECT_THAT(sleeps_told_by(1), ElementsAre(4'500));
  ready_everywhere(9'500, "c");
  settle(9'600);
  EXPECT_THAT(all_wake(), ElementsAre(9'600 + 1'500, 9'600 + 1'500));
}

//     0
//   1   2
//  3 4 5 6
TEST_F(Cycle, InATreeTheLeastIsFoundOnTheWay) {
  start(Coordination::kGlobalSleep, 7, [](auto& options) { options.tree_fan_in = 2; });
  round({0, 0, 0, 1'000, 0, 0, 300}, 2'000, "a");
  sent_.clear();
  ready_everywhere(2'000, "b");
  settle(2'000);
  EXPECT_THAT(all_wake(), testing::Each(5'000));
  // Node 4 had waited longest of its branch, and node 1 says so for it.
  EXPECT_THAT(sleeps_told_by(1), ElementsAre(3'000));
  EXPECT_THAT(sleeps_told_by(2), ElementsAre(3'000));
  for (const auto& [from, to, message] : sent_) {
    if (std::holds_alternative<Ready>(message)) {
      EXPECT_EQ(to, kNodeAbove) << from;
    }
  }
}

TEST_F(Cycle, AnInnerNodeWaitsForThoseBelowAndOnlyUntilARankLeaves) {
  start(Coordination::kGlobalSleep, 7, [](auto& options) { options.tree_fan_in = 2; });
  round({0, 0, 0, 0, 0, 0, 0}, 2'000, "a");
  sent_.clear();
  turn_ok(2'100, 1);  // It has the sleeps of its children, whose turns came first.
  EXPECT_THAT(sleeps_told_by(1), ElementsAre(3'000)) << "once for itself and both children";
  settle(2'100);
  round({7'100, 7'100, 7'100, 7'100, 7'100, 7'100, 7'100}, 7'100, "b");
  for (Node& node : nodes_) node.agreement->on_rank_left(Rank{6});
  sent_.clear();
  settle(9'100);
  int to_coordinator = 0;
  for (const auto& [from, to, message] : sent_) {
    const auto* ready = std::get_if<Ready>(&message);
    if (!ready || !ready->sleep_us) continue;
    EXPECT_EQ(to, NodeIndex{0});
    EXPECT_TRUE(ready->of.has_value());
    ++to_coordinator;
  }
  EXPECT_GT(to_coordinator, 0);
  ready_everywhere(9'100, "c");
  EXPECT_THAT(all_wake(), testing::Each(testing::Ge(9'100))) << "nobody waits for ever";
}

TEST_F(Cycle, ANodeThatHasGoneIsNotWaitedFor) {
  start(Coordination::kGlobalSleep, 3);
  round({0, 0, 0}, 1'000, "a");
  turn_ok(1'000, 1);
  at(0).inbox.pop_back();  // Node 2 goes before its sleep is sent.
  at(0).agreement->on_node_gone(NodeIndex{2});
  ready_everywhere(1'000, "b");
  turn_ok(1'000, 0);
  EXPECT_EQ(wakes(0), 5'000);
}

TEST_F(Cycle, ASleepThatCannotBeEndsTheEpochWithTheNodesName) {
  start(Coordination::kGlobalSleep, 2);
  Ready ready;
  ready.round = 1;
  ready.sleep_us = kCycle + 1;
  EXPECT_THAT(at(0).agreement->on_message(NodeIndex{1}, ready).message(),
              HasSubstr("node n1 told node n0 a sleep of 5001 us, in a cycle of 5000 us"));
  ready.sleep_us = 1;
  EXPECT_THAT(at(1).agreement->on_message(NodeIndex{0}, ready).message(),
              HasSubstr("does not coordinate"));
  ready.round = 7;
  EXPECT_THAT(at(0).agreement->on_message(NodeIndex{1}, ready).message(), HasSubstr("round 7"));
  Decree decree;
  decree.round = 1;
  decree.sleep_us = 1;
  EXPECT_THAT(at(1).agreement->on_message(NodeIndex{0}, decree).message(),
              HasSubstr("which was not asked for"));
  start(Coordination::kCached, 2);
  EXPECT_FALSE(at(0).agreement->on_message(NodeIndex{1}, ready).is_ok());
}

// --- nonblocking: nobody waits for a round -------------------------------------------------------

TEST_F(Cycle, TheEndOfARoundIsSeenInALaterCycle) {
  start(Coordination::kNonblocking, 2);
  round({0, 0}, 1'000, "a");
  EXPECT_EQ(at(1).rounds, 1u) << "the round is over";
  EXPECT_THAT(at(0).done, IsEmpty());
  EXPECT_THAT(at(1).done, IsEmpty());
  EXPECT_THAT(all_wake(), ElementsAre(5'000, 5'000));
  turn_ok(4'999, 1);
  EXPECT_THAT(at(1).done, IsEmpty());
  turn_ok(5'000, 1);
  EXPECT_THAT(at(1).done, ElementsAre("a"));
}

TEST_F(Cycle, ALateRoundIsSeenInTheNextCycleAfterItsEnd) {
  start(Coordination::kNonblocking, 2);
  round({0, 8'000}, 12'000, "a");
  EXPECT_THAT(all_wake(), ElementsAre(15'000, 13'000)) << "each has cycles of its own";
  turn_ok(13'000, 1);
  EXPECT_THAT(at(1).done, ElementsAre("a"));
}

// "It guarantees cache consistency by ensuring that the cache synchronization has completed before
// performing another one."
TEST_F(Cycle, NoRoundBeginsBeforeTheOneBeforeHasEnded) {
  start(Coordination::kNonblocking, 2);
  ready_everywhere(0, "a");
  turn_ok(0, 1);
  ASSERT_EQ(at(0).inbox.size(), 1u);
  ready(100, 1, "b");
  for (const TicksUs now : {5'000, 10'000}) {
    EXPECT_EQ(wakes(1), -1) << "there is nothing to look at";
    turn_ok(now, 1);
  }
  EXPECT_EQ(at(0).inbox.size(), 1u) << "the first round is under way";
  turn_ok(11'000, 0);
  turn_ok(12'000, 1);
  EXPECT_EQ(at(0).inbox.size(), 0u) << "it is over, but the node sleeps";
  EXPECT_EQ(wakes(1), 15'000);
  turn_ok(15'000, 1);
  EXPECT_THAT(at(1).done, ElementsAre("a"));
  EXPECT_EQ(at(0).inbox.size(), 1u) << "the same cycle begins the next round";
}

// The coordinator may be asleep after a round when a member asks for the next one.
TEST_F(Cycle, ARoundThatAMemberBeginsEarlierLosesNothing) {
  start(Coordination::kNonblocking, 2);
  round({3'000, 0}, 4'000, "a");
  ready(4'500, 1, "b");
  turn_ok(5'000, 1);
  EXPECT_THAT(at(1).done, ElementsAre("a"));
  turn_ok(5'100, 0);
  EXPECT_THAT(at(0).done, IsEmpty());
  ready(5'200, 0, "b");
  turn_ok(8'000, 0);
  EXPECT_THAT(at(0).done, ElementsAre("a"));
  EXPECT_EQ(at(0).rounds, 2u);
  turn_ok(8'100, 1);
  turn_ok(10'000, 1);
  turn_ok(13'000, 0);
  EXPECT_THAT(at(0).done, ElementsAre("a", "b"));
  EXPECT_THAT(at(1).done, ElementsAre("a", "b"));
}

// Otherwise a node that looked sooner would send messages of a set that this one does not have.
TEST_F(Cycle, AChangeOfProcessSetsIsNotPutOffToALaterCycle) {
  start(Coordination::kNonblocking, 2);
  round({0, 0}, 1'000, kProcessSetsName);
  EXPECT_THAT(at(0).done, ElementsAre(kProcessSetsName));
  EXPECT_THAT(at(1).done, ElementsAre(kProcessSetsName));
}

TEST_F(Cycle, WhatACoordinatorHadOrderedBeforeItWentIsCarriedOutAtOnce) {
  start(Coordination::kNonblocking, 2);
  round({0, 0}, 1'000, "a");
  at(1).agreement->on_node_gone(NodeIndex{0});
  turn_ok(1'500, 1);
  EXPECT_THAT(at(1).done, ElementsAre("a"));
}

}  // namespace
}  // namespace rueda::core
