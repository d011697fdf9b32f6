// Host memory that is in no arena, which the daemon cannot reach: it is copied through a block of
// the allocator. Copies happen in the calling thread, without the session's mutex; only that thread
// has the handle then.
#pragma once

#include <cstdint>

#include "client/src/request/tensor.h"
#include "client/src/session/operation.h"
#include "client/src/wire/allocator.h"
#include "daemon/base/status.h"

namespace rueda::client {

// Says in the operation's record where the daemon finds the request's memory. What is in no arena
// is staged: the operation gets a block, and the input is copied there.
Status place_in_host_memory(ArenaAllocator& allocator, const TensorRequest& request,
                            Operation& operation);

// Copies the handle's staged results, of operations that ended well, to the caller's memory.
// Returns how many bytes were copied.
uint64_t copy_out_of_staging(const Handle& handle);

}  // namespace rueda::client
