// Makes plans that training processes declare before their first step, right ones and wrong ones.
#pragma once

#include <memory>
#include <vector>

#include "daemon/core/messages/plan.h"
#include "tests/sim/setup/setup.h"

namespace rueda::sim {

// Returns a plan of these tensors, in this order. What a tensor comes after counts only if it
// stands before the tensor.
core::DescriptorPtr plan_of(const std::vector<TensorSetup>& tensors);
// Returns what the rank declares, or null for nothing.
core::DescriptorPtr declared_by(const RunSetup& setup, int rank);
// Returns what another run has recorded in which all steps were of kind 0, or null if it had no
// plan.
std::shared_ptr<const core::Plan> recorded_by(const RunSetup& setup);

}  // namespace rueda::sim
