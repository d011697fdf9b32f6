// Plans declared ahead (decision 16): a step's tensors as a partial order, from the framework's
// graph. They become a plan that is in force before the first step.
#pragma once

#include <string>
#include <vector>

#include "daemon/core/model/descriptor.h"
#include "daemon/core/plan/plan_tree.h"

namespace rueda::core {

// Why no plan can be made of the tensors, as a sentence about them; empty: one can.
std::string find_flaw(const std::vector<PlannedTensor>& declared);

// As if the step had been seen. A plan of it (plan_tree.h) fuses what can be fused, fits under the
// threshold, and does not come after another of the batch, on whatever way. Batches are in an order
// in which they can be ready one after another. find_flaw(declared) finds none.
StepRecord step_of(const std::vector<PlannedTensor>& declared);

}  // namespace rueda::core
