// Fits the three values of parameters.h that are marked so. Each follows from one of the targets,
// the others being there already: no search for a best compromise.
#pragma once

#include "bench/sim/parameters.h"

namespace rueda::scale {

// `start` with other values for what is fitted.
Parameters fit(Parameters start, const FitTargets& targets);

}  // namespace rueda::scale
