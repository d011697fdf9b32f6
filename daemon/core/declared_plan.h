// Plans declared ahead (decision 16): a step's tensors as a partial order, from the framework's
// graph. They become a plan that is in force before the first step.
#pragma once

#include <string>
#include <vector>

#include "daemon/core/descriptor.h"
#include "daemon/core/fusion.h"
#include "daemon/core/plan.h"

namespace rueda::core {

// Why no plan can be made of the tensors, as a sentence about them; empty: one can.
std::string find_flaw(const std::vector<PlannedTensor>& declared);

// Tensors share a batch if they can be fused, fit under the threshold, and none of the batch comes
// after another, on whatever way. Batches are in an order in which they can be ready one after
// another. find_flaw(declared) finds none.
Plan plan_of(const std::vector<PlannedTensor>& declared, const FusionOptions& fusion);

}  // namespace rueda::core
