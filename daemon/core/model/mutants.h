// Mistakes that a test build plants in core, one at a time, to see that a checker finds each: a
// checker that has never caught anything proves nothing.
//
// A mistake sits where a rule is kept:  if (sealed_ && !RUEDA_MUTANT(kDeliverAfterSeal)) return;
// In what is shipped RUEDA_MUTANT() is the constant false, and nothing else in this file exists.
// Tests that want mutants link rueda_core_mutants (tests/sim/CMakeLists.txt) in place of
// rueda_core: the same sources, compiled with RUEDA_MUTANTS defined. There they choose one at run
// time,
//
//   core::planted_mutant = core::Mutant::kDeliverAfterSeal;
//
// and kNone, the value at the start, is the code as shipped. The choice holds for the whole process
// until it is changed; core runs in the thread that sets it.
#pragma once

#ifdef RUEDA_MUTANTS

#include <cstdint>

namespace rueda::core {

enum class Mutant : uint8_t {
  kNone,
  // Of locked schedules (rules L).
  kLockAppliedOneSeqEarly,
  kResumeFromMaximum,  // u from the maximum of the launched seqs, not the minimum
  kLaunchOutOfOrder,
  kStaleReadyBitAccepted,
  kCreditLeakedOnCancel,
  kDivergenceIgnored,       // L9: u without a look at which batches the nodes have launched
  kFusedAcrossBranches,     // L9: a tensor of all alternatives with one of only one
  kDependentTensorsFused,   // of a declared plan
  kFastByName,              // what has a name of the plan is taken for the plan's
  kFastNotTakenBack,        // what is cancelled is not told to the agreement
  kReportedBeforeAllBelow,  // in a tree: with one node below that has not reported
  kLinkUsedBeforeDrained,   // in a tree, by a new parent
  kSlowerHalfKept,          // autotune: of each rung
  kNoiseTaken,              // autotune: the best of the search is taken, whatever the pairs say
  kTuningOfOneNode,         // autotune: a member launches with the defaults
  kRingIgnored,             // a member takes the nodes in ascending order
  kJoinedRankCountedTwice,  // L11: as having submitted the tensor, and as having joined
  kJoinedNodeCountedTwice,  // likewise, in a tree
  // Of recovery (rules R).
  kDeliverAfterSeal,
  kPartialFreedEarly,  // P, before F is whole
  kBoundIgnored,       // R2: launching does not wait
  kFinalFreedEarly,    // F, before the operation is stable
  kEpochByMinority,
  kSeqUsedTwice,         // the first after an unlock
  kCarriedSeqUsedTwice,  // the last that an epoch takes over
  kDeliverWithoutLease,
  kChosenDecisionIgnored,  // a proposer does not take over what may have been chosen
  kWitnessIgnored,         // an exact half with the lowest node goes on, though a witness decides
};

inline Mutant planted_mutant = Mutant::kNone;

}  // namespace rueda::core

#define RUEDA_MUTANT(name) (::rueda::core::planted_mutant == ::rueda::core::Mutant::name)

#else

#define RUEDA_MUTANT(name) false

#endif
