// The core's options of a job, from those of the daemon and those of the job.
#pragma once

#include "daemon/core/job/job_options.h"
#include "daemon/engine/job/job_spec.h"

namespace rueda::engine {

core::JobOptions core_options(const EngineContext& context, const JobSpec& spec);

// Returns the most ranks that an elastic job may have.
int most_ranks(const JobSpec& spec);

}  // namespace rueda::engine
