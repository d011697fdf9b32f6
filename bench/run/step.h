// Measures a training step's communication: a model's whole gradient set, in the order of its
// backward pass.
#pragma once

#include "bench/cli/options.h"
#include "bench/cli/report.h"
#include "bench/run/job.h"
#include "bench/run/timing.h"

namespace rueda::bench {

// Runs options.model for every dtype and operator asked for; rank 0 prints and writes. Returns the
// number of wrong elements over all ranks. Collective.
uint64_t run_steps(Job& job, const CpuMeter& meter, const Options& options, JsonLines* json);

}  // namespace rueda::bench
