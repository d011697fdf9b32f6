#include "daemon/core/plan/tuner.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/plan/tuner_search.h"

namespace rueda::core {
namespace {

using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;

TEST(Tuner, CandidatesBeginWithTheDefaultsAndDiffer) {
  const std::vector<TunedSetting> all = candidates_of(tuning_options().space, 16);
  EXPECT_EQ(all.size(), 16u);
  EXPECT_EQ(all.front(), tuning_options().space.defaults());
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(all[i], all[j]);
  }
  TuningSpace two;
  two.chunk_bytes = {0, 4096};
  EXPECT_EQ(candidates_of(two, 16).size(), 2u);
}

// Each value by itself helps a little; the best setting is reached by no single change.
TEST(Tuner, TheBestValuesOfAllDimensionsAreTriedTogether) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const TunedSetting chosen = search(tuning_options(), bowl, 0.01, seed).chosen;
    EXPECT_EQ(bowl(chosen), 50) << "seed " << seed;
  }
}

TEST(Tuner, AClearGainIsFoundInEverySearch) {
  const double before = bowl(tuning_options().space.defaults());
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Searched searched = search(tuning_options(), bowl, 0.03, seed);
    EXPECT_LT(bowl(searched.chosen), before * 0.92) << "seed " << seed;
    EXPECT_EQ(searched.lines.back().verdict, "chosen");
    EXPECT_EQ(searched.lines.back().phase, "settled");
  }
}

TEST(Tuner, WhereNothingIsToBeGainedTheDefaultsAreKept) {
  int changed = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Searched searched = search(
        tuning_options(), [](const TunedSetting&) { return 20.0; }, 0.10, seed);
    if (searched.chosen != tuning_options().space.defaults()) {
      ++changed;
    } else {
      EXPECT_EQ(searched.lines.back().verdict, "no gain, defaults kept");
    }
  }
  EXPECT_LE(changed, 10) << "of 200, by chance";
}

// The chosen setting is never slower, except by as much as noise can hide.
TEST(Tuner, NeverSettlesOnWhatIsThreePercentSlower) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    const double scale = 5 + static_cast<double>(random() % 200);
    const auto rough = [&](const TunedSetting& setting) {
      const auto mix = static_cast<uint64_t>(setting.fusion_bytes) * 31 +
                       setting.data.chunk_bytes * 17 + setting.data.streams * 7 +
                       static_cast<uint64_t>(setting.data.cutover_log2 + 100) + seed;
      return scale * (1 + static_cast<double>(std::mt19937_64(mix)() % 1000) / 5000);
    };
    const Searched searched = search(tuning_options(), rough, 0.15, seed, 0.2);
    EXPECT_LE(rough(searched.chosen), rough(tuning_options().space.defaults()) * 1.03)
        << "seed " << seed;
  }
}

TEST(Tuner, TheLogShowsTheSearch) {
  const Searched searched = search(tuning_options(), bowl, 0.01, 7);
  std::set<std::string> verdicts;
  size_t measured = 0;
  for (const TuningLine& line : searched.lines) {
    verdicts.insert(line.verdict);
    if (line.verdict.empty()) ++measured;
  }
  // Eight settings of the first rung are kept, and one is a combination.
  EXPECT_EQ(measured, 16u + 9 * 2 + 5 * 4 + 3 * 8 + 2 * 16 + 2 * Tuner::kPairs);
  EXPECT_TRUE(verdicts.contains("kept"));
  EXPECT_TRUE(verdicts.contains("dropped"));
  EXPECT_THAT(searched.lines, Each(Field(&TuningLine::round_ms, testing::Gt(0.0))));
}

TEST(Tuner, TheSameTimesGiveTheSameSearch) {
  const Searched one = search(tuning_options(), bowl, 0.1, 3);
  const Searched other = search(tuning_options(), bowl, 0.1, 3);
  EXPECT_EQ(one.chosen, other.chosen);
  EXPECT_EQ(one.rounds, other.rounds);
}

TEST(Tuner, WithNothingToSearchItIsSettled) {
  Tuner tuner(TuningOptions{});
  EXPECT_TRUE(tuner.is_settled());
  EXPECT_THAT(tuner.take_lines().back().verdict, HasSubstr("defaults kept"));
  EXPECT_FALSE(tuner.on_round(1));
}

TEST(Tuner, AWindowThatIsBrokenOffIsMeasuredAgain) {
  Tuner tuner(tuning_options());
  tuner.on_locked();
  TicksMs now = 0;
  for (int round = 0; round < 4; ++round) EXPECT_FALSE(tuner.on_round(now += 100));
  tuner.on_lost();
  tuner.on_locked();
  EXPECT_TRUE(tuner.take_lines().empty());
  now += 1'000'000;  // a pause, which belongs to no window
  int rounds = 0;
  while (!tuner.on_round(now += 100)) ++rounds;
  EXPECT_EQ(rounds, 2 + 5);
  const std::vector<TuningLine> lines = tuner.take_lines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_DOUBLE_EQ(lines.front().round_ms, 100);
}

TEST(Tuner, AScheduleThatDoesNotHoldEndsTheSearch) {
  Tuner tuner(tuning_options());
  for (int i = 0; i < Tuner::kMaxLost; ++i) {
    EXPECT_FALSE(tuner.is_settled());
    tuner.on_locked();
    tuner.on_lost();
  }
  EXPECT_TRUE(tuner.is_settled());
  EXPECT_EQ(tuner.setting(), tuning_options().space.defaults());
  EXPECT_THAT(tuner.take_lines().back().verdict, HasSubstr("does not hold"));
}

TEST(Tuner, ShortStepsAreMeasuredOverMoreOfThem) {
  TuningOptions short_steps = tuning_options();
  short_steps.window_ms = 1000;
  Tuner tuner(short_steps);
  tuner.on_locked();
  TicksMs now = 0;
  int rounds = 0;
  do ++rounds;
  while (!tuner.on_round(now += 2));
  EXPECT_EQ(rounds, 2 + 1 + 500);
}

}  // namespace
}  // namespace rueda::core
