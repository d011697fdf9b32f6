// Plans that are declared ahead (decision 16): a step's tensors as a partial order, which comes
// from the framework's graph. They become a plan that is in force before the first step.
#pragma once

#include <string>
#include <vector>

#include "daemon/core/model/descriptor.h"
#include "daemon/core/plan/plan_tree.h"

namespace rueda::core {

// Returns why no plan can be made of the tensors, as a sentence about them, or "" if one can be
// made. No tensors are no flaw: the rank has no plan, and says so.
std::string find_flaw(const std::vector<PlannedTensor>& declared);

// Returns a record of the step as if it had been seen. A plan made of it (plan_tree.h) fuses what
// can be fused, fits under the threshold, and comes after no other tensor of the batch, directly or
// indirectly. Batches are in an order in which they can be ready one after another. `declared` must
// have passed find_flaw().
StepRecord step_of(const std::vector<PlannedTensor>& declared);

}  // namespace rueda::core
