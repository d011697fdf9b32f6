// The modes that act when something happens. `negotiate` follows Sergeev and Del Balso 2018, with
// nodes in the place of ranks, and events in the place of a cycle. `nonblocking` adds the response
// cache: a node reports when it has something, the coordinator decrees when something is ready
// everywhere, and nobody waits for a round to end (Pumma et al., NBCS).
#pragma once

#include <memory>

#include "daemon/core/order/agreement.h"

namespace rueda::core {

std::unique_ptr<Agreement> make_negotiate_agreement(const Layout& layout, NodeIndex self,
                                                    const SubmissionTable& submissions,
                                                    const AgreementOptions& options);

}  // namespace rueda::core
