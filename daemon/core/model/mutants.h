// Mistakes that a test build plants in core, one at a time, to see that a checker finds each: a
// checker that has never caught anything proves nothing.
//
// A mistake sits where a rule is kept:
//
//   if (sealed_ && !RUEDA_MUTANT(kDeliverAfterSeal)) return;
//
// In what is shipped RUEDA_MUTANT() is the constant false, and nothing else in this file exists.
// Tests that want mutants link rueda_core_mutants (tests/sim/CMakeLists.txt) in place of
// rueda_core: the same sources, compiled with RUEDA_MUTANTS defined. A test chooses a mutant at run
// time:
//
//   core::planted_mutant = core::Mutant::kDeliverAfterSeal;
//
// The value at the start, kNone, is the code as shipped. The choice holds for the whole process
// until it is changed; core runs in the thread that sets it.
#pragma once

#ifdef RUEDA_MUTANTS

#include <cstdint>

namespace rueda::core {

enum class Mutant : uint8_t {
  kNone,
  // These break the rules of locked schedules (rules L).
  kLockAppliedOneSeqEarly,
  kResumeFromMaximum,  // The maximum of the launched seqs becomes u, not the minimum.
  kLaunchOutOfOrder,
  kStaleReadyBitAccepted,
  kCreditLeakedOnCancel,
  kDivergenceIgnored,       // L9: u is chosen without a look at which batches the nodes launched.
  kFusedAcrossBranches,     // L9: a tensor of all alternatives is fused with one of only one.
  kDependentTensorsFused,   // Tensors of a declared plan that depend on each other are fused.
  kFastByName,              // A tensor with a name of the plan is taken for the plan's tensor.
  kFastNotTakenBack,        // The agreement is not told what was cancelled.
  kReportedBeforeAllBelow,  // In a tree: a tensor goes up when one node below has not reported it.
  kLinkUsedBeforeDrained,   // In a tree: a new parent uses its link too early.
  kSlowerHalfKept,          // Autotuning: the slower half of each rung is kept.
  kNoiseTaken,              // Autotuning: the best of the search is taken, whatever the pairs say.
  kTuningOfOneNode,         // Autotuning: a member launches with the defaults.
  kRingIgnored,             // A member takes the nodes in ascending order.
  // L11: a rank counts as having submitted the tensor and as having joined.
  kJoinedRankCountedTwice,
  kJoinedNodeCountedTwice,  // In a tree: a node counts as having reported and as having joined.
  // These break the rules of transfers (core/job/transfers.h).
  kSendMatchedTwice,       // A send stays where it was when a receive has met it.
  kLaterReceiveFirst,      // A receive that names the source is met before an earlier one of any.
  kCancelledReceiveStays,  // A receive that was taken back may still meet a send.
  kWithdrawnOfferStays,    // A send that was taken back may still meet a receive.
  kEarlyOfferRefused,      // An offer that comes before its process set is known is refused.
  // These break the rules of recovery (rules R).
  kDeliverAfterSeal,
  kPartialFreedEarly,  // P is freed before F is whole.
  kBoundIgnored,       // R2: launching does not wait.
  kFinalFreedEarly,    // F is freed before the operation is stable.
  kEpochByMinority,
  kSeqUsedTwice,         // The first seq after an unlock is used twice.
  kCarriedSeqUsedTwice,  // The last seq that an epoch takes over is used twice.
  kDeliverWithoutLease,
  kChosenDecisionIgnored,  // A proposer does not take over what may have been chosen.
  kWitnessIgnored,         // An exact half with the lowest node goes on, though a witness decides.
  // These break the forming of generations (generations.h).
  kGenerationByMinority,
  kChosenGenerationIgnored,  // A proposer does not take over what may have been chosen.
  kPromiseForgotten,       // A voter that is asked anew forgets what it has promised and accepted.
  kVotesNotKept,           // A daemon that starts again as the same member has forgotten its votes.
  kStaleIncarnationLetIn,  // A daemon that has started again is taken for the one before.
  kCountedBeforeItAttached,  // A process that has not attached again is dealt a rank.
  kDeathWhileFormingIgnored,
  kSurvivorNotAwaited,  // A generation is formed without those who were in the one before and live.
  kNewcomersFirst,      // Ranks are dealt to newcomers first.
  kMinNpIgnored,
  kMaxNpIgnored,
  kEndNotFinal,  // A node goes on though it has heard that somebody has ended the job.
  kEndNotTold,   // It keeps that to itself.
};

inline Mutant planted_mutant = Mutant::kNone;

}  // namespace rueda::core

#define RUEDA_MUTANT(name) (::rueda::core::planted_mutant == ::rueda::core::Mutant::name)

#else

#define RUEDA_MUTANT(name) false

#endif
