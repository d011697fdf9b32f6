// Fits the three values of parameters.h that are marked as fitted. Each follows from one of the
// targets when the values before it are fitted; there is no search for a best compromise.
#pragma once

#include "bench/sim/parameters.h"

namespace rueda::scale {

// Returns `start` with the fitted values replaced.
Parameters fit(Parameters start, const FitTargets& targets);

}  // namespace rueda::scale
