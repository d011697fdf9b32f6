// From what the core launches to what the data loop carries out.
#pragma once

#include <functional>
#include <memory>

#include "daemon/core/job_events.h"
#include "daemon/engine/operation.h"

namespace rueda::engine {

// The buffers of one local rank's submission; must be known.
using FindSubmission = std::function<const session::Submission&(LocalRank, Ticket)>;

std::unique_ptr<Operation> build_operation(const core::Launch& launch, const core::Layout& layout,
                                           const FindSubmission& find);

}  // namespace rueda::engine
