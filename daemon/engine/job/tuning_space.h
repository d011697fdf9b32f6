// Decides which settings of a job may be tuned, from what the daemon and the launcher were told
// (decision 51): settings that somebody has set are not searched for.
#pragma once

#include <cstdint>

#include "daemon/core/model/tuning.h"
#include "daemon/engine/job/job_spec.h"

namespace rueda::engine {

// Returns the options of the search. `loops` is the number of this daemon's data loops; a job has
// at most as many.
core::TuningOptions tuning_options(const EngineOptions& options, const JobSpec& spec,
                                   int64_t fusion_threshold_bytes, size_t loops);

// Returns the chunk that the slots of the job's channels are made for, in bytes; 0: as configured.
// All nodes compute the same.
uint64_t widest_chunk_bytes(const EngineOptions& options, const JobSpec& spec);

}  // namespace rueda::engine
