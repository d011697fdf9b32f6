// Plans declared ahead, put into the form in which the daemon takes them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "client/abi/rueda_abi.h"
#include "client/include/rueda/rueda.h"
#include "client/src/request/tensor.h"
#include "daemon/base/status.h"

namespace rueda::client {

// The tensors' descriptors. The error names the tensor that cannot be declared like this.
Result<std::vector<TensorRequest>> describe_plan(std::span<const rueda_planned_tensor> tensors);
// ids: what the daemon calls the tensors.
std::vector<rueda_abi_plan> parts_of_plan(std::span<const rueda_planned_tensor> tensors,
                                          const std::vector<uint32_t>& ids);

}  // namespace rueda::client
