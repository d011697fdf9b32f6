// Plants the mistakes of daemon/core/model/mutants.h that break the forming of generations, one
// after the other, and expects a checker of the simulator to find each.

#include <gtest/gtest.h>

#include "daemon/core/model/mutants.h"
#include "tests/sim/generations/generations_simulator.h"
#include "tests/sim/setup/planted_mutants.h"

namespace rueda::sim {
namespace {

constexpr PlantedMutant kPlanted[] = {
    {core::Mutant::kGenerationByMinority, "a generation by a minority", "one decision"},
    {core::Mutant::kChosenGenerationIgnored, "a chosen generation ignored", "one decision"},
    {core::Mutant::kPromiseForgotten, "a promise forgotten", "one decision"},
    {core::Mutant::kVotesNotKept, "votes not kept", "one decision"},
    {core::Mutant::kStaleIncarnationLetIn, "a stale incarnation let in", "incarnations"},
    {core::Mutant::kCountedBeforeItAttached, "counted before it attached", "true offers"},
    {core::Mutant::kDeathWhileFormingIgnored, "a death while forming ignored", "true offers"},
    {core::Mutant::kSurvivorNotAwaited, "a survivor not awaited", "state"},
    {core::Mutant::kNewcomersFirst, "newcomers first", "order of ranks"},
    {core::Mutant::kMinNpIgnored, "too few ranks", "bounds"},
    {core::Mutant::kMaxNpIgnored, "too many ranks", "bounds"},
    {core::Mutant::kEndNotFinal, "an end that is not final", "final"},
    {core::Mutant::kEndNotTold, "an end that is not told", "final"},
};

std::string run(uint64_t seed) {
  return GenerationsSimulator(seed, GenerationsLimits{}).run().violation;
}

using GenerationsMutants = MutantsTest;

TEST_F(GenerationsMutants, EachIsFoundByItsChecker) { expect_each_is_found(kPlanted, run); }

TEST_F(GenerationsMutants, WithoutOneNothingIsFound) { expect_nothing_is_found(500, run); }

}  // namespace
}  // namespace rueda::sim
