// The modes with a cycle, as Horovod's background thread has one: `cached` (bit vectors of the
// response cache, one round at a time, everybody in every round) and `global-sleep` (the same, and
// the length of the sleep between rounds is agreed by all; Pumma et al., GS). Here to be measured
// against: a round is as slow as its slowest node. While nothing is ready anywhere there are no
// rounds.
#pragma once

#include <memory>

#include "daemon/core/order/agreement.h"

namespace rueda::core {

std::unique_ptr<Agreement> make_cached_agreement(const Layout& layout, NodeIndex self,
                                                 const SubmissionTable& submissions,
                                                 const AgreementOptions& options);

}  // namespace rueda::core
