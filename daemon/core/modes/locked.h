// The `locked` mode, which is the default. It is event-driven until a schedule has repeated; then a
// plan is in force on every node, and no message about order is sent at all (rules L3 to L8 of
// docs/protocol.md).
#pragma once

#include <memory>

#include "daemon/core/order/agreement.h"

namespace rueda::core {

std::unique_ptr<Agreement> make_locked_agreement(const Layout& layout, NodeIndex self,
                                                 const SubmissionTable& submissions,
                                                 const AgreementOptions& options);

}  // namespace rueda::core
