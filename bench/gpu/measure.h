// Measures how fast a device reduces, beside how fast it copies: the two alternate in one run,
// because what counts is their ratio.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "daemon/gpu/device.h"

namespace rueda::gpu::bench {

struct Workload {
  uint64_t bytes = 0;   // size of one source
  size_t ranks = 2;     // number of sources, and of destinations
  size_t segments = 1;  // number of nearly equal segments of a source
  DType dtype = DType::kFloat32;
  uint32_t rounds = 5;  // number of rounds, each of copies and then reductions
  double round_seconds = 0.05;
};

// Holds results, each list by round.
struct Measured {
  std::vector<double> copy_bytes_per_s;    // bytes read and written
  std::vector<double> reduce_bytes_per_s;  // bytes read and written: 2 * ranks * bytes a reduction
  std::vector<double> ratio;
  // The time from a call to the counter that says that the work is done; calls are made one after
  // the other.
  std::vector<double> latency_us;
};

// Measures a workload. The limit of the device's memory must leave room for 2 * ranks * bytes, and
// for 2 * bytes at least.
Result<Measured> measure(Device& device, const Workload& workload);

}  // namespace rueda::gpu::bench
