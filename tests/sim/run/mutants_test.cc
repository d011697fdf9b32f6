// Tests the checkers, because a checker that has never caught anything proves nothing: each mistake
// that is planted in core must be caught, and soon. The test prints which checker caught it, and
// how many seeds it took.

#include "daemon/core/model/mutants.h"

#include <cstdio>

#include <gtest/gtest.h>

#include "tests/sim/run/campaign.h"
#include "tests/sim/setup/seeds.h"

namespace rueda::sim {
namespace {

struct Planted {
  const char* name;
  core::Mutant mutant;
  core::DeathPolicy policy = core::DeathPolicy::kFail;
  bool in_data_plane = false;  // the mistake is in the simulator's model of the data plane
};

constexpr core::DeathPolicy kShrink = core::DeathPolicy::kShrink;

const Planted kPlanted[] = {
    {"a stale generation accepted", core::Mutant::kNone, core::DeathPolicy::kFail, true},
    {"LOCK applied one seq early", core::Mutant::kLockAppliedOneSeqEarly},
    {"u from the maximum", core::Mutant::kResumeFromMaximum},
    {"a seq used twice", core::Mutant::kSeqUsedTwice},
    {"launching out of order", core::Mutant::kLaunchOutOfOrder},
    {"a stale ready bit accepted", core::Mutant::kStaleReadyBitAccepted},
    {"credit leaked on cancel", core::Mutant::kCreditLeakedOnCancel},
    {"fusion across a branch", core::Mutant::kFusedAcrossBranches},
    {"ways that part ignored", core::Mutant::kDivergenceIgnored},
    {"delivering after seal", core::Mutant::kDeliverAfterSeal, kShrink},
    {"P freed before F is whole", core::Mutant::kPartialFreedEarly, kShrink},
    {"launching beyond the bound", core::Mutant::kBoundIgnored, kShrink},
    {"F freed before stable", core::Mutant::kFinalFreedEarly, kShrink},
    {"an epoch by a minority", core::Mutant::kEpochByMinority, kShrink},
    {"a carried seq used twice", core::Mutant::kCarriedSeqUsedTwice, kShrink},
    {"delivering without a lease", core::Mutant::kDeliverWithoutLease, kShrink},
    {"a half without its witness", core::Mutant::kWitnessIgnored, kShrink},
    {"the ring's order ignored", core::Mutant::kRingIgnored},
    {"a joined rank counted twice", core::Mutant::kJoinedRankCountedTwice},
    {"a joined node counted twice", core::Mutant::kJoinedNodeCountedTwice},
    {"dependent tensors fused", core::Mutant::kDependentTensorsFused},
    {"fast path by name alone", core::Mutant::kFastByName},
    {"fast path, not taken back", core::Mutant::kFastNotTakenBack},
    {"a tuning of one node", core::Mutant::kTuningOfOneNode},
    {"reported before all below", core::Mutant::kReportedBeforeAllBelow},
    {"a link used before drained", core::Mutant::kLinkUsedBeforeDrained},
    {"a send matched twice", core::Mutant::kSendMatchedTwice},
    {"a later receive first", core::Mutant::kLaterReceiveFirst},
    {"a receive taken back stays", core::Mutant::kCancelledReceiveStays},
    {"a send taken back stays", core::Mutant::kWithdrawnOfferStays},
    {"an early offer refused", core::Mutant::kEarlyOfferRefused},
};

CampaignResult run_with(const Planted& planted, uint64_t seeds) {
  Limits limits;
  limits.mode = core::Coordination::kLocked;
  limits.policy = planted.policy;
  limits.takes_stale_frames = planted.in_data_plane;
  core::planted_mutant = planted.mutant;
  CampaignResult result = run_campaign(1, seeds, limits);
  core::planted_mutant = core::Mutant::kNone;
  return result;
}

TEST(Mutants, EachIsCaughtByAChecker) {
  std::printf("%-30s %-12s %s\n", "mutant", "checker", "seeds");
  for (const Planted& planted : kPlanted) {
    const CampaignResult result = run_with(planted, kSeedsOfAChange / 2);
    ASSERT_FALSE(result.failures.empty()) << planted.name << " was not caught";
    const Failure& caught = result.failures.front();
    const std::string rule = caught.violation.substr(0, caught.violation.find(':'));
    std::printf("%-30s %-12s %llu\n", planted.name, rule.c_str(),
                static_cast<unsigned long long>(caught.seed));
  }
}

TEST(Mutants, NoneIsCaughtWhereNoneIsPlanted) {
  for (const core::DeathPolicy policy : {core::DeathPolicy::kFail, kShrink}) {
    const CampaignResult result = run_with({"none", core::Mutant::kNone, policy}, 500);
    EXPECT_TRUE(result.failures.empty()) << result.failures.front().violation;
  }
}

}  // namespace
}  // namespace rueda::sim
