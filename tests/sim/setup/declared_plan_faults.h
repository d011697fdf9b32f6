// Plans that training processes declare before their first step, right ones and wrong ones.
#pragma once

#include <memory>
#include <vector>

#include "daemon/core/messages/plan.h"
#include "tests/sim/setup/setup.h"

namespace rueda::sim {

// Of these tensors, in this order; what they come after counts if it is one of those before.
core::DescriptorPtr plan_of(const std::vector<TensorSetup>& tensors);
// What the rank declares; null: nothing.
core::DescriptorPtr declared_by(const RunSetup& setup, int rank);
// What another run has recorded, in which all steps were of kind 0; null: it had no plan.
std::shared_ptr<const core::Plan> recorded_by(const RunSetup& setup);

}  // namespace rueda::sim
