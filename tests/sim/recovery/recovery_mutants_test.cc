// Plants the mistakes of daemon/core/model/mutants.h that break rules R, one after the other, and
// expects a checker of the simulator to find each.

#include <gtest/gtest.h>

#include "daemon/core/model/mutants.h"
#include "tests/sim/recovery/recovery_simulator.h"
#include "tests/sim/setup/planted_mutants.h"

namespace rueda::sim {
namespace {

constexpr PlantedMutant kPlanted[] = {
    {core::Mutant::kDeliverAfterSeal, "delivering after seal", "R3 seal"},
    {core::Mutant::kPartialFreedEarly, "P freed before F is whole", "R1 P until F"},
    {core::Mutant::kFinalFreedEarly, "F freed before stable", "R1 F until stable"},
    {core::Mutant::kEpochByMinority, "an epoch by a minority", "R4 quorum"},
    {core::Mutant::kCarriedSeqUsedTwice, "a seq used twice", "I5 one seq"},
    {core::Mutant::kDeliverWithoutLease, "delivering without a lease", "R5 lease"},
    {core::Mutant::kChosenDecisionIgnored, "a chosen decision ignored", "R4 one decision"},
};

std::string run(uint64_t seed) { return RecoverySimulator(seed, RecoveryLimits{}).run().violation; }

using RecoveryMutants = MutantsTest;

TEST_F(RecoveryMutants, EachIsFoundByItsChecker) { expect_each_is_found(kPlanted, run); }

TEST_F(RecoveryMutants, WithoutOneNothingIsFound) { expect_nothing_is_found(1'000, run); }

}  // namespace
}  // namespace rueda::sim
