// An operation as the daemon gives it to a GPU worker, and the messages that it is.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/base/dtype.h"
#include "daemon/gpu/batch.h"
#include "daemon/gpu/worker/wire.h"

namespace rueda::gpu {

// As batch.h has it, but with Places.
struct PlacedSegment {
  uint64_t count = 0;
  std::optional<Place> partial;
  std::vector<Place> sources;
  std::vector<Place> destinations;
};

// Between device and host memory, in either direction.
struct PlacedCopy {
  Place to;
  Place from;
  uint64_t bytes = 0;
};

// Through a communicator (AcrossBody).
struct PlacedAcross {
  uint32_t communicator = 0;
  Place at;
  uint64_t count = 0;  // elements
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::optional<int> root;
};

struct CounterWait {
  Place counter;
  uint64_t value = 0;
};

// Operations of a stream are carried out in turn, each once its counters have their values. Then
// its writes are made, whether it went well or not.
struct WorkerOperation {
  uint64_t number = 0;  // told when it has ended
  uint32_t stream = 0;
  std::vector<CounterWait> waits;
  std::vector<PlacedCopy> copies_before;  // the launches
  std::optional<PlacedAcross> across;     // likewise
  // Its segments are those below.
  Batch batch;
  std::vector<PlacedSegment> segments;
  std::vector<PlacedCopy> copies_after;
  std::vector<CounterWrite> writes;
};

// kInvalidArgument: it has more sources or destinations than a device takes, or too many commands.
Result<std::vector<Packet>> make_packets(const WorkerOperation& operation);

}  // namespace rueda::gpu
