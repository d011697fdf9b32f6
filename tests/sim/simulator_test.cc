// Thousands of runs of the whole protocol, each from one seed. RUEDA_SIM_SEEDS sets how many;
// RUEDA_SIM_SEED replays one and prints its trace.

#include "tests/sim/simulator.h"

#include <cstdlib>
#include <iostream>

#include <gtest/gtest.h>

namespace rueda::sim {
namespace {

uint64_t seeds_to_run() {
  const char* text = std::getenv("RUEDA_SIM_SEEDS");
  return text ? std::strtoull(text, nullptr, 10) : 10'000;
}

TEST(Simulator, EveryCheckerHoldsForEverySeed) {
  if (const char* text = std::getenv("RUEDA_SIM_SEED")) {
    Limits limits;
    limits.keep_trace = true;
    const RunResult result = Simulator(std::strtoull(text, nullptr, 10), limits).run();
    for (const std::string& line : result.trace) std::cout << line << '\n';
    EXPECT_EQ(result.violation, "");
    return;
  }
  uint64_t operations = 0, ok = 0, errors = 0, faulty = 0, events = 0;
  const uint64_t seeds = seeds_to_run();
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const RunResult result = Simulator(seed, Limits{}).run();
    ASSERT_EQ(result.violation, "") << "replay: RUEDA_SIM_SEED=" << seed;
    operations += result.operations;
    ok += result.delivered_ok;
    errors += result.delivered_error;
    faulty += result.had_fault;
    events += result.events;
  }
  std::cout << seeds << " seeds, " << faulty << " with a fault: " << events << " events, "
            << operations << " operations, " << ok << " submissions delivered, " << errors
            << " ended with an error\n";
  // A simulator that never gets anywhere would also find no violation.
  EXPECT_GT(ok, seeds);
  EXPECT_GT(errors, seeds / 100);
  EXPECT_GT(faulty, seeds / 4);
}

TEST(Simulator, WithoutFaultsEverythingIsDelivered) {
  Limits limits;
  limits.faults = false;
  limits.mismatches = false;
  limits.leavers = false;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    const RunResult result = Simulator(seed, limits).run();
    ASSERT_EQ(result.violation, "");
    ASSERT_EQ(result.delivered_error, 0u);
    ASSERT_GT(result.delivered_ok, 0u);
  }
}

TEST(Simulator, ASeedReplaysToTheSameTrace) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const RunResult first = Simulator(seed, Limits{}).run();
    const RunResult second = Simulator(seed, Limits{}).run();
    EXPECT_EQ(first.trace_hash, second.trace_hash);
    EXPECT_EQ(first.events, second.events);
  }
  EXPECT_NE(Simulator(1, Limits{}).run().trace_hash, Simulator(2, Limits{}).run().trace_hash);
}

}  // namespace
}  // namespace rueda::sim
