// Cuts a batch of device memory that goes between nodes into rounds: while one is on the network,
// the next is copied to host memory, and the result of the last one back. Every node cuts alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/base/parts.h"

namespace rueda::engine {

// Returns the rounds, at least one, which have all elements of the batch, one behind the other.
// They have equal lengths but for the last, in multiples of 64 elements, so that a tensor's parts
// are aligned as its beginning is.
std::vector<ElementRange> cut_into_rounds(int64_t elements, size_t element_bytes, int nodes);

}  // namespace rueda::engine
