// Rule R4 as a function: what is to become of the operations of an epoch, from what those that go
// on hold of them.
#pragma once

#include <map>

#include "daemon/core/messages/recovery_messages.h"

namespace rueda::core {

// What happens to a job when one of its nodes dies.
enum class DeathPolicy : uint8_t {
  kFail,    // the job ends, and every survivor is told who died
  kShrink,  // the survivors go on without it
};

// before: the members of the epoch that ends, ascending. reports: of members that are sealed, so
// that the reports stay true; not empty. Those that do not withdraw go on.
//
// An operation is COMPLETE if the final chunks of those that go on cover it, else REDO. One of them
// that delivered it has held all of F, so it is COMPLETE then. Up to where: an operation that one
// of them has not launched, or launched by another name, is complete on none, so it is not carried
// over.
Decision decide(Epoch next, const std::vector<NodeIndex>& before,
                const std::map<NodeIndex, NodeReport>& reports, DeathPolicy policy);

}  // namespace rueda::core
