// What the reduction kernel does, element by element on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "daemon/gpu/batch.h"

namespace rueda::gpu::fake {

// Where so many bytes at an address are in this process; null: nothing is there.
using Resolve = std::function<std::byte*(DeviceAddress address, uint64_t bytes)>;

// Carries out a batch that has passed check_batch(). Returns the first address where nothing is, or
// 0; what was done before that stays done.
DeviceAddress reduce_batch(const Batch& batch, const Resolve& resolve);

}  // namespace rueda::gpu::fake
