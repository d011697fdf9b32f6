// The modes with a cycle, as Horovod's background thread has one. In `cached`, bit vectors of the
// response cache are reported in rounds, and everybody takes part in every round. `global-sleep` is
// the same, but all agree on the length of the sleep between rounds (Pumma et al., GS). Both are
// there to be measured against: a round is as slow as its slowest node. While nothing is ready
// anywhere there are no rounds.
#pragma once

#include <memory>

#include "daemon/core/order/agreement.h"

namespace rueda::core {

std::unique_ptr<Agreement> make_cached_agreement(const Layout& layout, NodeIndex self,
                                                 const SubmissionTable& submissions,
                                                 const AgreementOptions& options);

}  // namespace rueda::core
