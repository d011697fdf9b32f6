// From what the core launches to what a GPU worker carries out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "daemon/base/ids.h"
#include "daemon/core/job_events.h"
#include "daemon/gpu/worker/commands.h"

namespace rueda::engine {

// Of one rank's submission, in the worker's numbers.
struct DevicePlaces {
  gpu::Place input;
  gpu::Place output;
  gpu::Place ready;    // the counter that says when the input is there
  gpu::Place done;     // the counter that is to say when the output is
  uint64_t value = 0;  // of both
};
// By the rank's place among those of the node in the process set.
using FindDevicePlaces = std::function<DevicePlaces(size_t place, Ticket)>;

struct DeviceLaunch {
  int64_t divisor = 1;  // what makes a sum an average
  size_t root = 0;      // of a broadcast: its place
};

// In the order in which a stream is to carry them out; each but the last has as many tensors as a
// worker takes in one. None when nobody has anything to give. Operations have no numbers yet.
std::vector<gpu::WorkerOperation> build_device_operations(const core::Launch& launch,
                                                          const DeviceLaunch& how,
                                                          const FindDevicePlaces& find);

}  // namespace rueda::engine
