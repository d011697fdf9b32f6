#include "bench/sim/order.h"

#include <stdexcept>

#include <gtest/gtest.h>

#include "bench/sim/run.h"
#include "daemon/base/limits.h"

namespace rueda::scale {
namespace {

OrderSpec spec_of(int nodes, core::Coordination mode) {
  OrderSpec spec;
  spec.nodes = nodes;
  spec.mode = mode;
  spec.tensors = 3;
  spec.one_by_one = true;
  return spec;
}

// Each tensor costs a report of each member and a decree to each member.
TEST(OrderTest, WithoutAPlanEachTensorCostsTwoMessagesAMember) {
  for (const auto mode : {core::Coordination::kNegotiate, core::Coordination::kEventDriven}) {
    for (const int nodes : {1, 2, 5, 32}) {
      for (const OrderStep& step : run_order(spec_of(nodes, mode)).steps) {
        EXPECT_EQ(step.messages, static_cast<uint64_t>(3 * 2 * (nodes - 1)));
        EXPECT_EQ(step.coordinator_messages, step.messages);
        EXPECT_FALSE(step.locked);
      }
    }
  }
}

TEST(OrderTest, ALockedScheduleSendsNothing) {
  const OrderResult result = run_order(spec_of(8, core::Coordination::kLocked));
  ASSERT_EQ(result.steps.size(), 10u);
  EXPECT_EQ(result.steps[0].messages, 3u * 2 * 7);
  EXPECT_EQ(result.steps[2].messages, 3u * 2 * 7 + 7);  // the plan is the last 7
  for (size_t i = 3; i < result.steps.size(); ++i) {
    EXPECT_TRUE(result.steps[i].locked);
    EXPECT_EQ(result.steps[i].messages, 0u);
    EXPECT_EQ(result.steps[i].coordinator_bytes, 0u);
    EXPECT_LT(result.steps[i].coordination_ms, result.steps[1].coordination_ms);
  }
}

TEST(OrderTest, AStepThatThePlanDoesNotHaveUnlocks) {
  OrderSpec spec = spec_of(8, core::Coordination::kLocked);
  spec.one_by_one = false;
  spec.deviates_at = 5;
  const OrderResult result = run_order(spec);
  EXPECT_TRUE(result.steps[4].locked);
  EXPECT_FALSE(result.steps[5].locked);
  // Each member costs a request, Freeze, Frozen and Resume; then come the messages of an unlocked
  // step.
  EXPECT_EQ(result.steps[5].messages, 7u * 4 + 7 * 2);
  EXPECT_GT(result.steps[5].coordination_ms, result.steps[0].coordination_ms);
}

TEST(OrderTest, ATreeCombinesReports) {
  OrderSpec spec = spec_of(1024, core::Coordination::kEventDriven);
  spec.one_by_one = false;
  spec.steps = 2;
  const OrderResult result = run_order(spec);
  EXPECT_EQ(result.steps[1].messages, 2u * 1023);
  EXPECT_EQ(result.steps[1].coordinator_messages, 2u * 32);
}

TEST(OrderTest, ALossIsDecidedOnAfterTheSilenceThatTheOptionsAllow) {
  OrderSpec spec = spec_of(16, core::Coordination::kLocked);
  spec.policy = core::DeathPolicy::kShrink;
  spec.compute_ms = 200;
  spec.node_dies = 8;
  const OrderResult result = run_order(spec);
  ASSERT_TRUE(result.loss);
  const core::RecoveryOptions options;
  const double heartbeat = static_cast<double>(options.heartbeat_ms);
  // The node was last heard of at most a heartbeat before it died.
  EXPECT_GE(result.loss->suspected_ms, static_cast<double>(options.suspicion_ms) - heartbeat);
  EXPECT_LE(result.loss->suspected_ms, static_cast<double>(options.suspicion_ms) + 1);
  EXPECT_GE(result.loss->decided_ms, static_cast<double>(options.eviction_ms) - heartbeat);
  EXPECT_LE(result.loss->decided_ms, static_cast<double>(options.eviction_ms) + 10);
  EXPECT_GE(result.loss->sealed_ms, result.loss->suspected_ms);
}

TEST(OrderTest, UnderPolicyFailAllHearOfALoss) {
  for (const int nodes : {16, 256}) {
    OrderSpec spec = spec_of(nodes, core::Coordination::kLocked);
    spec.node_dies = nodes / 2;
    const OrderResult result = run_order(spec);
    ASSERT_TRUE(result.loss);
    EXPECT_GT(result.loss->decided_ms, 0.03);
    EXPECT_LT(result.loss->decided_ms, 5);
    EXPECT_GE(result.loss->messages, static_cast<uint64_t>(nodes - 2));
  }
}

TEST(OrderTest, SharedCoresTakeLonger) {
  OrderSpec spec = spec_of(16, core::Coordination::kNegotiate);
  const double alone = run_order(spec).steps.back().coordination_ms;
  spec.shared_cores = 1;
  EXPECT_GT(run_order(spec).steps.back().coordination_ms, 1.2 * alone);
}

TEST(OrderTest, TheCoordinatorsMessagesMayCostWhatOthersDoNot) {
  OrderSpec spec = spec_of(2, core::Coordination::kNegotiate);
  const double usual = run_order(spec).steps.back().coordination_ms;
  spec.coordinator_message_us = spec.parameters.message_us + 100;
  // The added time is that of the step's last tensor: a report that the coordinator takes, and a
  // decree that it sends.
  EXPECT_NEAR(run_order(spec).steps.back().coordination_ms, usual + 2 * 0.1, 1e-6);
}

// A daemon sends and acts before the whole cost of a message has passed; the rest of the cost is
// over before its next turn.
TEST(OrderTest, WhatNobodyWaitsForIsNoTimeOfAStep) {
  OrderSpec spec = spec_of(2, core::Coordination::kNegotiate);
  spec.parameters.message_us = 100;
  spec.parameters.wake_us = 0;
  const double usual = run_order(spec).steps.back().coordination_ms;
  spec.unawaited_share = 0.25;
  EXPECT_NEAR(run_order(spec).steps.back().coordination_ms, usual - 2 * 0.025, 1e-6);
  // All daemons share one core, and each waits for it in turn.
  spec.shared_cores = 1;
  EXPECT_NEAR(run_order(spec).steps.back().coordination_ms, usual, 0.01);
}

TEST(OrderTest, MoreNodesThanTheCoreAllowsAreRefused) {
  EXPECT_THROW(run_order(spec_of(limits::kMaxNodes + 1, core::Coordination::kLocked)),
               std::runtime_error);
}

// A step's time has what the shipped core says that agreeing takes, and nothing else about order.
TEST(OrderTest, TheModesOfAServiceHaveTheCoresMessagesBytesAndTime) {
  for (const int nodes : {2, 65, 256}) {
    for (const auto& [mode, coordination] :
         {std::pair{Mode::kCached, core::Coordination::kCached},
          std::pair{Mode::kLocked, core::Coordination::kLocked}}) {
      OrderSpec order;
      order.nodes = nodes;
      order.mode = coordination;
      order.tensors = 161;
      order.steps = mode == Mode::kCached ? 3 : 5;
      const OrderStep step = run_order(order).steps.back();
      RunSpec spec;
      spec.gpus = nodes * spec.gpus_per_node;
      spec.mode = mode;
      spec.network = find_network("resnet50");
      spec.held_up = false;
      spec.parameters.compute_variation = 0;
      spec.parameters.own_core_delay_us = 0;
      spec.parameters.daemon_cores = 0;
      const RunResult result = run(spec, 1);
      EXPECT_EQ(result.mean.order_messages, static_cast<double>(step.messages)) << nodes;
      EXPECT_EQ(result.mean.coordinator_bytes, static_cast<double>(step.coordinator_bytes))
          << nodes;
      EXPECT_NEAR(result.mean.coordination_ms(), step.coordination_ms, 1e-6) << nodes;
    }
  }
}

}  // namespace
}  // namespace rueda::scale
