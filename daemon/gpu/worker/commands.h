// An operation as the daemon gives it to a GPU worker, and its conversion to messages.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/base/dtype.h"
#include "daemon/gpu/batch.h"
#include "daemon/gpu/worker/wire.h"

namespace rueda::gpu {

// A segment of a batch (batch.h) whose addresses are Places.
struct PlacedSegment {
  uint64_t count = 0;
  std::optional<Place> partial;
  std::vector<Place> sources;
  std::vector<Place> destinations;
};

// A copy between device and host memory, in either direction.
struct PlacedCopy {
  Place to;
  Place from;
  uint64_t bytes = 0;
};

// An operation through a communicator (AcrossBody).
struct PlacedAcross {
  uint32_t communicator = 0;
  Place at;
  uint64_t count = 0;  // In elements.
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::optional<int> root;
};

struct CounterWait {
  Place counter;
  uint64_t value = 0;
};

// The operations of a stream are carried out in turn, each once its counters have their values. Its
// writes are made at the end, whether or not it has failed.
struct WorkerOperation {
  uint64_t number = 0;  // It is reported when the operation has ended.
  uint32_t stream = 0;
  std::vector<CounterWait> waits;
  std::vector<PlacedCopy> copies_before;  // They are done before the launch.
  std::optional<PlacedAcross> across;     // It is done before the launch.
  // The batch's segments are those below.
  Batch batch;
  std::vector<PlacedSegment> segments;
  std::vector<PlacedCopy> copies_after;
  std::vector<CounterWrite> writes;
};

// Converts an operation to messages. Returns kInvalidArgument if it has more sources or
// destinations than a device takes, or too many commands.
Result<std::vector<Packet>> make_packets(const WorkerOperation& operation);

}  // namespace rueda::gpu
