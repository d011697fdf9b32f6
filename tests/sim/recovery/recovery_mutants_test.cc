// Plants the mistakes of daemon/core/model/mutants.h that break rules R, one after the other, and
// expects a checker of the simulator to find each.

#include <iomanip>
#include <iostream>

#include <gtest/gtest.h>

#include "daemon/core/model/mutants.h"
#include "tests/sim/recovery/recovery_simulator.h"
#include "tests/sim/setup/seeds.h"

namespace rueda::sim {
namespace {

struct Planted {
  core::Mutant mutant;
  const char* what;
  const char* checker;  // the checker that must find it
};

constexpr Planted kPlanted[] = {
    {core::Mutant::kDeliverAfterSeal, "delivering after seal", "R3 seal"},
    {core::Mutant::kPartialFreedEarly, "P freed before F is whole", "R1 P until F"},
    {core::Mutant::kFinalFreedEarly, "F freed before stable", "R1 F until stable"},
    {core::Mutant::kEpochByMinority, "an epoch by a minority", "R4 quorum"},
    {core::Mutant::kCarriedSeqUsedTwice, "a seq used twice", "I5 one seq"},
    {core::Mutant::kDeliverWithoutLease, "delivering without a lease", "R5 lease"},
    {core::Mutant::kChosenDecisionIgnored, "a chosen decision ignored", "R4 one decision"},
};

class RecoveryMutants : public testing::Test {
 protected:
  ~RecoveryMutants() override { core::planted_mutant = core::Mutant::kNone; }
};

TEST_F(RecoveryMutants, EachIsFoundByItsChecker) {
  std::cout << std::left << std::setw(28) << "mutant" << std::setw(20) << "checker"
            << "seeds needed\n";
  for (const Planted& planted : kPlanted) {
    core::planted_mutant = planted.mutant;
    std::string violation;
    uint64_t seed = 0;
    while (violation.empty() && seed < kSeedsOfAChange / 2) {
      violation = RecoverySimulator(++seed, RecoveryLimits{}).run().violation;
    }
    const std::string checker = violation.substr(0, violation.find(':'));
    EXPECT_EQ(checker, planted.checker) << planted.what << ": " << violation;
    std::cout << std::setw(28) << planted.what << std::setw(20) << checker << seed << '\n';
  }
}

// The build for mutants, with none planted, is the code as shipped.
TEST_F(RecoveryMutants, WithoutOneNothingIsFound) {
  for (uint64_t seed = 1; seed <= 1'000; ++seed) {
    ASSERT_EQ(RecoverySimulator(seed, RecoveryLimits{}).run().violation, "");
  }
}

}  // namespace
}  // namespace rueda::sim
