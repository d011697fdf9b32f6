// What of a job may be tuned, by what the daemon was told and what the launcher was (decision 51):
// what somebody has set is not searched for.
#pragma once

#include <cstdint>

#include "daemon/core/model/tuning.h"
#include "daemon/engine/job/job_spec.h"

namespace rueda::engine {

// `loops`: of this daemon; a job has as many at most.
core::TuningOptions tuning_options(const EngineOptions& options, const JobSpec& spec,
                                   int64_t fusion_threshold_bytes, size_t loops);

// What the slots of the job's channels are made for; 0: as configured. All nodes compute the same.
uint64_t widest_chunk_bytes(const EngineOptions& options, const JobSpec& spec);

}  // namespace rueda::engine
