// The modes that act when something happens. `negotiate` follows Sergeev and Del Balso 2018, with
// nodes in the place of ranks, and events in the place of a cycle. `event-driven` adds the
// response cache: a node reports when it has something, and the coordinator decrees when something
// is ready everywhere (docs/decisions/0002-no-cycle.md). `locked` does the same until it locks.
#pragma once

#include <memory>

#include "daemon/core/order/agreement.h"

namespace rueda::core {

std::unique_ptr<Agreement> make_negotiate_agreement(const Layout& layout, NodeIndex self,
                                                    const SubmissionTable& submissions,
                                                    const AgreementOptions& options);

}  // namespace rueda::core
