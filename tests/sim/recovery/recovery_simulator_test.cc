// Tests recovery over many seeds (seeds.h); RUEDA_SIM_SEED replays one and prints its trace.

#include "tests/sim/recovery/recovery_simulator.h"

#include <cstdlib>
#include <iostream>

#include <gtest/gtest.h>

#include "tests/sim/setup/seeds.h"

namespace rueda::sim {
namespace {

void check(const Seeds& range) {
  RecoveryResult sum;
  const uint64_t seeds = range.count;
  uint64_t with_epochs = 0;
  for (uint64_t seed = range.first; seed < range.first + seeds; ++seed) {
    const RecoveryResult result = RecoverySimulator(seed, RecoveryLimits{}).run();
    ASSERT_EQ(result.violation, "") << "replay: RUEDA_SIM_SEED=" << seed;
    with_epochs += result.epochs > 1;
    sum.events += result.events;
    sum.epochs += result.epochs;
    sum.delivered += result.delivered;
    sum.failed += result.failed;
    sum.redone += result.redone;
    sum.completed_by_decision += result.completed_by_decision;
    sum.mixed += result.mixed;
    sum.diverged += result.diverged;
    sum.left_out += result.left_out;
    sum.quorums_lost += result.quorums_lost;
  }
  std::cout << seeds << " seeds from " << range.first << ", " << with_epochs
            << " with more than one epoch: " << sum.events << " events, " << sum.epochs
            << " epochs, " << sum.delivered << " operations delivered, " << sum.failed
            << " failed, " << sum.redone << " redone, " << sum.completed_by_decision
            << " completed by decision, " << sum.mixed << " tensors of two epochs, " << sum.left_out
            << " nodes told that it is over, " << sum.diverged << " results diverged and told, "
            << sum.quorums_lost << " jobs without a quorum\n";
  // A simulator that never gets anywhere would also find no violation.
  EXPECT_GT(with_epochs, seeds / 4);
  EXPECT_GT(sum.delivered, seeds * 5);
  EXPECT_GT(sum.redone, seeds / 20);
  EXPECT_GT(sum.completed_by_decision, seeds / 20);
  EXPECT_GT(sum.mixed, seeds / 200);
  EXPECT_GT(sum.left_out, seeds / 50);
}

TEST(RecoverySimulator, EveryCheckerHoldsForEverySeed) {
  if (const char* text = std::getenv("RUEDA_SIM_SEED")) {
    RecoveryLimits limits;
    limits.keep_trace = true;
    const RecoveryResult result = RecoverySimulator(std::strtoull(text, nullptr, 10), limits).run();
    for (const std::string& line : result.trace) std::cout << line << '\n';
    EXPECT_EQ(result.violation, "");
    return;
  }
  for (const Seeds& range : seeds_to_run()) check(range);
}

TEST(RecoverySimulator, WithoutFaultsOneEpochDeliversEverything) {
  RecoveryLimits limits;
  limits.max_faults = 0;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    const RecoveryResult result = RecoverySimulator(seed, limits).run();
    ASSERT_EQ(result.violation, "");
    ASSERT_EQ(result.failed, 0u);
    ASSERT_EQ(result.epochs, 1u);
  }
}

TEST(RecoverySimulator, ASeedReplaysToTheSameTrace) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const RecoveryResult first = RecoverySimulator(seed, RecoveryLimits{}).run();
    const RecoveryResult second = RecoverySimulator(seed, RecoveryLimits{}).run();
    EXPECT_EQ(first.trace_hash, second.trace_hash);
    EXPECT_EQ(first.events, second.events);
  }
  EXPECT_NE(RecoverySimulator(1, RecoveryLimits{}).run().trace_hash,
            RecoverySimulator(2, RecoveryLimits{}).run().trace_hash);
}

}  // namespace
}  // namespace rueda::sim
