// The `locked` mode, the default: event-driven until a schedule has repeated, then a plan in force
// on every node, and no message about order at all. Rules L3 to L8 of docs/protocol.md.
#pragma once

#include <memory>

#include "daemon/core/order/agreement.h"

namespace rueda::core {

std::unique_ptr<Agreement> make_locked_agreement(const Layout& layout, NodeIndex self,
                                                 const SubmissionTable& submissions,
                                                 const AgreementOptions& options);

}  // namespace rueda::core
