// Puts plans that are declared ahead into the form in which the daemon takes them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "client/abi/rueda_abi.h"
#include "client/include/rueda/rueda.h"
#include "client/src/request/tensor.h"
#include "daemon/base/status.h"

namespace rueda::client {

// Returns the tensors' descriptors. An error names the tensor that cannot be in a plan like this.
Result<std::vector<TensorRequest>> describe_plan(std::span<const rueda_planned_tensor> tensors);
// Cuts the plan into messages. `ids` has the daemon's ids of the tensors, in the order of the plan.
std::vector<rueda_abi_plan> parts_of_plan(std::span<const rueda_planned_tensor> tensors,
                                          const std::vector<uint32_t>& ids);

}  // namespace rueda::client
