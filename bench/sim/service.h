// Simulates a step of training with Rueda: one daemon a node, on a core of its own, that is woken
// by events.
#pragma once

#include "bench/sim/random.h"
#include "bench/sim/run.h"

namespace rueda::scale {

// Returns the times of a step in a mode that is a service.
StepTimes service_step(const RunSpec& spec, Random& random);

}  // namespace rueda::scale
