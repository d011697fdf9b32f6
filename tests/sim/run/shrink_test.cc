#include "tests/sim/run/shrink.h"

#include <gtest/gtest.h>

namespace rueda::sim {
namespace {

// Judges by a rule that does not hold, as if the protocol promised that no node ever dies.
RunResult judge_by_a_wrong_rule(const RunSetup& setup, RandomChoices choices,
                                const RunOptions& options) {
  RunResult result = simulate(setup, std::move(choices), options);
  if (result.delivered_ok > 0 && result.delivered_error > 0) {
    result.violation = "wrong: both good and bad news";
  }
  return result;
}

size_t size_of(const RunSetup& run) {
  return run.ranks.size() + run.tensors.size() + run.faults.size() + run.strays.size();
}

uint64_t find_failing_seed() {
  for (uint64_t seed = 1;; ++seed) {
    const RunSetup setup = draw_setup(seed, Limits{});
    if (setup.ranks.size() < 3 || setup.faults.empty() || size_of(setup) < 10) continue;
    if (!judge_by_a_wrong_rule(setup, RandomChoices(seed), {}).violation.empty()) return seed;
  }
}

TEST(Shrink, LeavesWhatTheViolationNeeds) {
  const RunSetup setup = draw_setup(find_failing_seed(), Limits{});
  const SmallRun small = shrink(setup, 20'000, judge_by_a_wrong_rule);
  EXPECT_EQ(small.result.violation, "wrong: both good and bad news");
  EXPECT_LT(size_of(small.setup), size_of(setup) / 2);
  // Nothing more can be left out: if any one choice is missing, the rule holds.
  for (size_t i = 0; i < small.choices.size(); ++i) {
    std::vector<Choice> fewer = small.choices;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_EQ(judge_by_a_wrong_rule(small.setup, RandomChoices(fewer), {}).violation, "");
  }
  EXPECT_FALSE(small.result.trace.empty());
}

TEST(Shrink, TheSmallRunReplays) {
  const RunSetup setup = draw_setup(find_failing_seed(), Limits{});
  const SmallRun small = shrink(setup, 20'000, judge_by_a_wrong_rule);
  const RunResult again = judge_by_a_wrong_rule(small.setup, RandomChoices(small.choices), {});
  EXPECT_EQ(again.trace_hash, small.result.trace_hash);
  EXPECT_EQ(again.violation, small.result.violation);
}

TEST(Shrink, ARunThatHoldsStaysAsItIs) {
  Limits limits;
  limits.faults = limits.strays = limits.mismatches = limits.leavers = limits.joins = false;
  const SmallRun small = shrink(draw_setup(1, limits), 100);
  EXPECT_EQ(small.result.violation, "");
  EXPECT_EQ(small.setup.lines(), draw_setup(1, limits).lines());
}

}  // namespace
}  // namespace rueda::sim
