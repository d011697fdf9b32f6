// Plants the mistakes of daemon/core/model/mutants.h that break the forming of generations, one
// after the other, and expects a checker of the simulator to find each.

#include <iomanip>
#include <iostream>

#include <gtest/gtest.h>

#include "daemon/core/model/mutants.h"
#include "tests/sim/generations/generations_simulator.h"
#include "tests/sim/setup/seeds.h"

namespace rueda::sim {
namespace {

struct Planted {
  core::Mutant mutant;
  const char* what;
  const char* checker;  // The checker that must find it.
};

constexpr Planted kPlanted[] = {
    {core::Mutant::kGenerationByMinority, "a generation by a minority", "one decision"},
    {core::Mutant::kChosenGenerationIgnored, "a chosen generation ignored", "one decision"},
    {core::Mutant::kPromiseForgotten, "a promise forgotten", "one decision"},
    {core::Mutant::kStaleIncarnationLetIn, "a stale incarnation let in", "incarnations"},
    {core::Mutant::kCountedBeforeItAttached, "counted before it attached", "true offers"},
    {core::Mutant::kDeathWhileFormingIgnored, "a death while forming ignored", "order of ranks"},
    {core::Mutant::kSurvivorNotAwaited, "a survivor not awaited", "survivors"},
    {core::Mutant::kNewcomersFirst, "newcomers first", "order of ranks"},
    {core::Mutant::kMinNpIgnored, "too few ranks", "bounds"},
    {core::Mutant::kMaxNpIgnored, "too many ranks", "bounds"},
};

class GenerationsMutants : public testing::Test {
 protected:
  ~GenerationsMutants() override { core::planted_mutant = core::Mutant::kNone; }
};

TEST_F(GenerationsMutants, EachIsFoundByItsChecker) {
  std::cout << std::left << std::setw(32) << "mutant" << std::setw(16) << "checker"
            << "seeds needed\n";
  for (const Planted& planted : kPlanted) {
    core::planted_mutant = planted.mutant;
    std::string violation;
    uint64_t seed = 0;
    while (violation.empty() && seed < kSeedsOfAChange / 2) {
      violation = GenerationsSimulator(++seed, GenerationsLimits{}).run().violation;
    }
    const std::string checker = violation.substr(0, violation.find(':'));
    EXPECT_EQ(checker, planted.checker) << planted.what << ": " << violation;
    std::cout << std::setw(32) << planted.what << std::setw(16) << checker << seed << '\n';
  }
}

// The build for mutants, with none planted, is the code as shipped.
TEST_F(GenerationsMutants, WithoutOneNothingIsFound) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    ASSERT_EQ(GenerationsSimulator(seed, GenerationsLimits{}).run().violation, "");
  }
}

}  // namespace
}  // namespace rueda::sim
