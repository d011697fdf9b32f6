// Measures the collectives that move buffers, and the barrier: for each size, checked passes, then
// the measured loop.
#pragma once

#include "bench/cli/options.h"
#include "bench/cli/report.h"
#include "bench/run/job.h"
#include "bench/run/timing.h"

namespace rueda::bench {

// Runs every dtype, operator and size that `options` ask for; rank 0 prints and writes. Returns the
// number of wrong elements over all ranks. Collective.
uint64_t run_collectives(Job& job, const CpuMeter& meter, const Options& options, JsonLines* json);

}  // namespace rueda::bench
