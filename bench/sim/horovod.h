// Simulates a step of training under Horovod 0.16 (Sergeev and Del Balso 2018, with the response
// cache of 2019) and under the four cures of Pumma et al. One background thread in each training
// process goes through rounds: it sleeps for the rest of a cycle, then all threads of the job
// combine the bits of the tensors that they have ready, and carry out the operations that all have
// ready. docs/scale.md says what each mode changes.
#pragma once

#include "bench/sim/random.h"
#include "bench/sim/run.h"

namespace rueda::scale {

// Returns the times of a step in a mode that is not a service.
StepTimes horovod_step(const RunSpec& spec, Random& random);

}  // namespace rueda::scale
