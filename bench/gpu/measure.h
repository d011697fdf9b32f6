// How fast a device reduces, beside how fast it copies: the two alternate in one run, because what
// counts is their ratio.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "daemon/gpu/device.h"

namespace rueda::gpu::bench {

struct Workload {
  uint64_t bytes = 0;   // of one source
  size_t ranks = 2;     // as many sources, and as many destinations
  size_t segments = 1;  // that a source is cut into, nearly equal
  DType dtype = DType::kFloat32;
  uint32_t rounds = 5;  // in each, copies and then reductions
  double round_seconds = 0.05;
};

// By round.
struct Measured {
  std::vector<double> copy_bytes_per_s;    // read and written
  std::vector<double> reduce_bytes_per_s;  // likewise: 2 * ranks * bytes each
  std::vector<double> ratio;
  // From the call to the counter that says that it is done, one after the other.
  std::vector<double> latency_us;
};

// The limit of the device's memory must leave room for 2 * ranks * bytes, and 2 * bytes at least.
Result<Measured> measure(Device& device, const Workload& workload);

}  // namespace rueda::gpu::bench
