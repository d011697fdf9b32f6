// The parts that the checks of all collectives' arguments have in common (tensor.h).
#pragma once

#include <string>
#include <string_view>

#include "client/src/request/tensor.h"

namespace rueda::client {

std::string quoted(std::string_view name);
Status invalid(std::string message);

// Describes everything but the memory; input and output get as many bytes as the shape says.
Result<TensorRequest> describe(const rueda_tensor* tensor, CollectiveKind kind);
// options NULL means average, no scales.
Status set_options(const rueda_reduce_options* options, TensorRequest& request);
Status set_root(int root_rank, int world_size, TensorRequest& request);
// Sets and checks the memory. The sizes must be known before.
Status set_memory(const rueda_tensor& tensor, TensorRequest& request);

}  // namespace rueda::client
