// Does what the reduction kernel does, element by element on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "daemon/gpu/batch.h"

namespace rueda::gpu::fake {

// Returns where so many bytes at an address are in this process; null: nothing is there.
using Resolve = std::function<std::byte*(DeviceAddress address, uint64_t bytes)>;

// Carries out a batch that has passed check_batch(). Returns the first address where no memory is,
// or 0; elements that were reduced before that stay reduced.
DeviceAddress reduce_batch(const Batch& batch, const Resolve& resolve);

}  // namespace rueda::gpu::fake
