// The modes with a cycle, as Horovod's background thread has one (Pumma et al., section III-B). In
// a round all nodes report to the coordinator, with a bit of the response cache for each tensor
// that they have seen before, and get the order of what is ready everywhere. They differ in how a
// node comes from one round to the next:
//
//   `cached`        it waits for the end of the round, and sleeps the cycle time less the time that
//                   the round took here (III-B: HOROVOD_CYCLE_TIME - T_previous);
//   `global-sleep`  the same, but the nodes tell each other these sleeps, and all take the least
//                   (IV-A, GS), after every AgreementOptions::sleep_agreed_every-th round;
//   `nonblocking`   it does not wait, but sleeps at once, and looks after each sleep whether the
//                   round is over; then it carries out what was ordered, and only then may it begin
//                   another round (IV-B, NBCS).
//
// One daemon a node takes part where the paper has a thread in each process, and rounds are
// messages to the coordinator and back where the paper has an all-reduce. While nothing new is
// ready anywhere there are no rounds, and the first one after such a time begins at once
// (docs/lineage.md). These modes are there to be measured against: a round is as slow as its
// slowest node.
#pragma once

#include <memory>

#include "daemon/core/order/agreement.h"

namespace rueda::core {

std::unique_ptr<Agreement> make_cycle_agreement(const Layout& layout, NodeIndex self,
                                                const SubmissionTable& submissions,
                                                const AgreementOptions& options);

}  // namespace rueda::core
