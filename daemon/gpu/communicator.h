// What GPUs of several processes reduce over, with a network of its own: a communicator as NCCL has
// them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "daemon/base/dtype.h"
#include "daemon/base/status.h"
#include "daemon/gpu/batch.h"

namespace rueda::gpu {

class Stream;

// By which the members find each other; made by one of them, which is the first.
using CommunicatorId = std::array<std::byte, 128>;

// One member's side. Calls return at once. Every member makes the same calls in the same order;
// what is queued on the stream ends when all have come so far. It goes before its device, and does
// not wait for other members: what they have under way then is lost.
//
// An error other than kUnavailable is the end: what is queued may never be done.
class Communicator {
 public:
  virtual ~Communicator() = default;

  // Ok: all are there. kUnavailable: not yet.
  virtual Status health() = 0;
  // `count` elements at the address become what all members' come to, element by element, in place.
  // Not kAverage, kAdasum or bool (kInvalidArgument). kUnavailable: once more, with the same.
  virtual Status all_reduce(Stream& stream, DeviceAddress at, uint64_t count, DType dtype,
                            ReduceOp op) = 0;
  // Likewise: what the root has at the address is at that of all.
  virtual Status broadcast(Stream& stream, DeviceAddress at, uint64_t bytes, int root) = 0;
};

}  // namespace rueda::gpu
