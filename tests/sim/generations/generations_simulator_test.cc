// Tests the forming of generations over many seeds (seeds.h); RUEDA_SIM_SEED replays one and prints
// its trace.

#include "tests/sim/generations/generations_simulator.h"

#include <cstdlib>
#include <iostream>

#include <gtest/gtest.h>

#include "tests/sim/setup/seeds.h"

namespace rueda::sim {
namespace {

void check(const Seeds& range) {
  GenerationsResult sum;
  uint64_t generations = 0;
  uint64_t without_quorum = 0;
  uint64_t too_few = 0;
  uint64_t ended = 0;
  for (uint64_t seed = range.first; seed < range.first + range.count; ++seed) {
    const GenerationsResult result = GenerationsSimulator(seed, GenerationsLimits{}).run();
    ASSERT_EQ(result.violation, "") << "replay: RUEDA_SIM_SEED=" << seed;
    generations += result.generations;
    sum.events += result.events;
    sum.steps += result.steps;
    sum.grown += result.grown;
    sum.replaced_leaders += result.replaced_leaders;
    sum.resumed += result.resumed;
    without_quorum += result.quorum_lost;
    too_few += result.too_few;
    ended += result.was_ended;
  }
  std::cout << range.count << " seeds from " << range.first << ": " << sum.events << " events, "
            << generations << " generations, of which " << sum.grown << " grew and "
            << sum.replaced_leaders << " had another coordinator, " << sum.resumed
            << " daemons that came back, " << sum.steps << " steps, " << without_quorum
            << " jobs without a quorum and " << too_few << " with too few processes at the end, "
            << ended << " that somebody has ended\n";
  // A simulator that never gets anywhere would also find no violation.
  EXPECT_GT(generations, range.count * 2);
  EXPECT_GT(sum.grown, range.count / 4);
  EXPECT_GT(sum.replaced_leaders, range.count / 20);
  EXPECT_GT(sum.resumed, range.count / 20);
  EXPECT_GT(sum.steps, range.count * 100);
  EXPECT_GT(ended, range.count / 20);
  EXPECT_LT(without_quorum + too_few, range.count / 2);
}

TEST(GenerationsSimulator, EveryCheckerHoldsForEverySeed) {
  if (const char* text = std::getenv("RUEDA_SIM_SEED")) {
    GenerationsLimits limits;
    limits.keep_trace = true;
    const GenerationsResult result =
        GenerationsSimulator(std::strtoull(text, nullptr, 10), limits).run();
    for (const std::string& line : result.trace) std::cout << line << '\n';
    EXPECT_EQ(result.violation, "");
    return;
  }
  for (const Seeds& range : seeds_to_run("RUEDA_SIM_GENERATIONS")) check(range);
}

TEST(GenerationsSimulator, ASeedReplaysToTheSameTrace) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const GenerationsResult first = GenerationsSimulator(seed, GenerationsLimits{}).run();
    const GenerationsResult second = GenerationsSimulator(seed, GenerationsLimits{}).run();
    EXPECT_EQ(first.trace_hash, second.trace_hash);
    EXPECT_EQ(first.events, second.events);
  }
  EXPECT_NE(GenerationsSimulator(1, GenerationsLimits{}).run().trace_hash,
            GenerationsSimulator(2, GenerationsLimits{}).run().trace_hash);
}

}  // namespace
}  // namespace rueda::sim
