// Rule R4 as a function: it decides what becomes of the operations of an epoch, from what those
// that go on hold of them.
#pragma once

#include <map>

#include "daemon/core/messages/recovery_messages.h"

namespace rueda::core {

// The choice of what happens to a job when one of its nodes dies.
enum class DeathPolicy : uint8_t {
  kFail,    // The job ends, and every survivor is told who died.
  kShrink,  // The survivors go on without it.
};

// Decides how the epoch before `next` ends. `before` holds its members, ascending. `reports` holds
// the reports of members that are sealed, so that the reports stay true; there must be one. Those
// that do not withdraw go on.
//
// An operation is COMPLETE if the final chunks of those that go on cover it, else REDO. If one of
// them has delivered it, that node has held all of F, so the operation is COMPLETE. An operation
// that one of them has not launched, or has launched by another name, is complete on none of them,
// so neither it nor what comes after it is carried over.
Decision decide(Epoch next, const std::vector<NodeIndex>& before,
                const std::map<NodeIndex, NodeReport>& reports, DeathPolicy policy);

}  // namespace rueda::core
