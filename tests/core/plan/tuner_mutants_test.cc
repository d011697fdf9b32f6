// Tests that mistakes planted in the search (daemon/core/model/mutants.h) are found.

#include <gtest/gtest.h>

#include "daemon/core/model/mutants.h"
#include "tests/core/plan/tuner_search.h"

namespace rueda::core {
namespace {

constexpr int kSearches = 20;

// Returns how many of the searches end with a setting other than the defaults.
int changed_with(Mutant mutant, const Surface& surface) {
  planted_mutant = mutant;
  int changed = 0;
  const TunedSetting defaults = tuning_options().space.defaults();
  for (uint64_t seed = 0; seed < kSearches; ++seed) {
    const TunedSetting chosen = search(tuning_options(), surface, 0.03, seed).chosen;
    changed += chosen != defaults;
  }
  planted_mutant = Mutant::kNone;
  return changed;
}

// A surface on which the defaults are best.
double worse_elsewhere(const TunedSetting& setting) {
  return setting == tuning_options().space.defaults() ? 50 : 55;
}

TEST(TunerMutants, WithoutOneTheSearchesEndAsTheyShould) {
  EXPECT_EQ(changed_with(Mutant::kNone, bowl), kSearches);
  EXPECT_EQ(changed_with(Mutant::kNone, worse_elsewhere), 0);
}

TEST(TunerMutants, WhoKeepsTheSlowerHalfFindsNoGain) {
  EXPECT_LT(changed_with(Mutant::kSlowerHalfKept, bowl), kSearches);
}

TEST(TunerMutants, WhoTakesNoiseForAGainChangesForNothing) {
  const auto flat = [](const TunedSetting&) { return 50.0; };
  EXPECT_GT(changed_with(Mutant::kNoiseTaken, flat), kSearches / 2);
  EXPECT_LE(changed_with(Mutant::kNone, flat), 2) << "by chance";
}

}  // namespace
}  // namespace rueda::core
