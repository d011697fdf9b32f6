// A communicator, like NCCL's: GPUs of several processes reduce over it, through a network of its
// own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "daemon/base/dtype.h"
#include "daemon/base/status.h"
#include "daemon/gpu/batch.h"

namespace rueda::gpu {

class Stream;

// The id by which the members find each other. The first member makes it.
using CommunicatorId = std::array<std::byte, 128>;

// One member's side of a communicator. Calls return at once. Every member makes the same calls in
// the same order; work that is queued on the stream ends when all members have come so far. A
// communicator must be destroyed before its device; that does not wait for other members, whose
// work under way is then lost.
//
// After an error other than kUnavailable the communicator is of no more use: queued work may never
// be done.
class Communicator {
 public:
  virtual ~Communicator() = default;

  // Returns ok if all members are there, and kUnavailable if they are not there yet.
  virtual Status health() = 0;
  // Replaces `count` elements at the address by the reduction of all members' elements, element by
  // element, in place. kAverage, kAdasum, bool, integers of 16 bits and complex numbers are refused
  // (kInvalidArgument). After kUnavailable the call must be made again with the same arguments.
  virtual Status all_reduce(Stream& stream, DeviceAddress at, uint64_t count, DType dtype,
                            ReduceOp op) = 0;
  // Copies the root's `bytes` bytes at its address to the address of every member. After
  // kUnavailable the call must be made again.
  virtual Status broadcast(Stream& stream, DeviceAddress at, uint64_t bytes, int root) = 0;
};

}  // namespace rueda::gpu
