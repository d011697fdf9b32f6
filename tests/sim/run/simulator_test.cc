// Tests thousands of runs of the whole protocol, each from one seed (seeds.h). rueda-sim-run
// replays one, prints its trace and makes a failing one small (docs/testing.md).

#include "tests/sim/run/simulator.h"

#include <algorithm>
#include <iostream>

#include <gtest/gtest.h>

#include "tests/sim/run/campaign.h"
#include "tests/sim/setup/seeds.h"

namespace rueda::sim {
namespace {

TEST(Simulator, EveryRuleHoldsForEverySeed) {
  for (const Seeds& range : seeds_to_run()) {
    const uint64_t seeds = range.count;
    const CampaignResult result = run_campaign(range.first, seeds, Limits{});
    ASSERT_TRUE(result.failures.empty())
        << result.failures.front().violation << "; see it with: rueda-sim-run --shrink --seed "
        << result.failures.front().seed;
    std::cout << "from " << range.first << ": " << result.summary() << '\n';
    // A simulator that never gets anywhere would also find no violation.
    EXPECT_GT(result.delivered_ok, seeds);
    EXPECT_GT(result.delivered_error, seeds / 100);
    EXPECT_GT(result.lethal, seeds / 4);
    EXPECT_GT(result.locked_launches, seeds);
    EXPECT_GT(result.cancels, seeds / 10);
    EXPECT_GT(result.recovered, seeds / 50);
    EXPECT_GT(result.completed_by_decision, seeds / 50);
    EXPECT_GT(result.repeated, seeds / 200);
  }
}

TEST(Simulator, WithoutFaultsEverythingIsDelivered) {
  Limits limits;
  limits.faults = false;
  limits.mismatches = false;
  limits.leavers = false;
  limits.joins = false;  // while a rank has joined, broadcasts are refused
  const CampaignResult result = run_campaign(1, 500, limits);
  ASSERT_TRUE(result.failures.empty())
      << result.failures.front().violation << ", seed " << result.failures.front().seed;
  EXPECT_EQ(result.delivered_error, 0u);
  EXPECT_GT(result.delivered_ok, 0u);
}

TEST(Simulator, ALockedScheduleThatRepeatsSendsNothingAboutOrder) {
  Limits limits;
  limits.mode = core::Coordination::kLocked;
  limits.faults = limits.strays = limits.mismatches = limits.leavers = limits.joins = false;
  limits.alternatives = false;
  limits.sets = limits.plans = false;  // these are added, removed and declared by decree
  limits.nccl = false;                 // is decreed, too
  limits.tuning = false;               // a search sends messages, and a recorded plan may end
  uint64_t locked_launches = 0;
  const uint64_t seeds = testing_support::scaled(300, 60);
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    RunSetup setup = draw_setup(seed, limits);
    setup.steps = 20;
    setup.epochs = 1;
    setup.eager = setup.polls = false;
    setup.patience_ms = 10'000;  // the processes think for a while between two tensors
    // Broadcasts would be decreed in every step.
    for (TensorSetup& tensor : setup.tensors) {
      tensor.descriptor.kind = CollectiveKind::kAllreduce;
    }
    const RunResult result = Simulator(setup, RandomChoices(seed), {}).run();
    ASSERT_EQ(result.violation, "") << "seed " << seed;
    EXPECT_EQ(result.messages_while_locked, 0u) << "seed " << seed;
    locked_launches += result.locked_launches;
  }
  EXPECT_GT(locked_launches, 30 * seeds);
}

// The coordinator had a part of a group, another epoch began, a rank left, and the nodes refused
// the rest. The rank that had submitted the part once waited for ever.
TEST(Simulator, AGroupThatWaitsWhenARankLeavesIsCarriedOut) {
  Limits limits;
  limits.mode = core::Coordination::kLocked;
  limits.policy = core::DeathPolicy::kShrink;
  limits.tuning = false;
  EXPECT_EQ(run_seed(109206, limits).violation, "");
}

// L9: steps of several kinds come in turn or at random, nested or not. Processes that keep to one
// order take the same way everywhere, and after some steps no message is sent.
TEST(Simulator, AlternativesThatComeAgainSendNothingAboutOrder) {
  Limits limits;
  limits.mode = core::Coordination::kLocked;
  limits.faults = limits.strays = limits.mismatches = limits.leavers = limits.joins = false;
  limits.plans = limits.tuning = false;  // these have no alternatives
  limits.nccl = false;                   // is decreed, in every step
  uint64_t locked_launches = 0;
  uint64_t with_alternatives = 0;
  // runs are long
  const uint64_t seeds = std::min<uint64_t>(testing_support::scaled(150, 50), 150);
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    RunSetup setup = draw_setup(seed, limits);
    if (setup.kinds.empty()) continue;
    ++with_alternatives;
    setup.epochs = 1;
    setup.reordered = setup.eager = setup.polls = false;
    setup.patience_ms = 10'000;
    for (TensorSetup& tensor : setup.tensors) {
      tensor.descriptor.kind = CollectiveKind::kAllreduce;
    }
    // A step is whatever begins with the first tensor, so all kinds have it.
    setup.tensors.front().kinds = ~0u;
    setup.steps = 80;
    const RunResult some = Simulator(setup, RandomChoices(seed), {}).run();
    ASSERT_EQ(some.violation, "") << "seed " << seed;
    setup.steps = 120;
    const RunResult more = Simulator(setup, RandomChoices(seed), {}).run();
    ASSERT_EQ(more.violation, "") << "seed " << seed;
    EXPECT_EQ(more.order_messages, some.order_messages) << "seed " << seed;
    locked_launches += more.locked_launches;
  }
  EXPECT_GT(with_alternatives, seeds / 8);
  EXPECT_GT(locked_launches, 60 * seeds);
}

TEST(Simulator, ASeedReplaysToTheSameTrace) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const RunResult first = run_seed(seed, Limits{});
    RunOptions options;
    options.keep_trace = true;
    const RunResult second = run_seed(seed, Limits{}, options);
    EXPECT_EQ(first.trace_hash, second.trace_hash);
    EXPECT_EQ(first.events, second.events);
  }
  EXPECT_NE(run_seed(1, Limits{}).trace_hash, run_seed(2, Limits{}).trace_hash);
}

TEST(Simulator, TheChoicesOfARunReplayIt) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const RunSetup setup = draw_setup(seed, Limits{});
    RunOptions options;
    options.record_choices = true;
    const RunResult first = Simulator(setup, RandomChoices(seed), options).run();
    const RunResult second = Simulator(setup, RandomChoices(first.choices), {}).run();
    EXPECT_EQ(first.trace_hash, second.trace_hash);
  }
}

}  // namespace
}  // namespace rueda::sim
