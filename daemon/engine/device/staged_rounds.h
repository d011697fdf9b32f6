// A batch of device memory that goes between nodes is cut into rounds: while one is on the network,
// the next is copied to host memory, and what has come of the last one back. Every node cuts alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/base/parts.h"

namespace rueda::engine {

// One behind the other, all elements of the batch; one at least. Of equal lengths but for the last,
// in multiples of 64 elements, so that a tensor's parts are aligned as its beginning is.
std::vector<ElementRange> cut_into_rounds(int64_t elements, size_t element_bytes, int nodes);

}  // namespace rueda::engine
