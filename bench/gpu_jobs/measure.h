// What a job's ranks measure that share a GPU: whole all-reduces, from the client's call on,
// through daemon and worker. Collective: all ranks call each with the same arguments, and all get
// the results. Times are the slowest rank's.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/gpu_jobs/driver.h"
#include "bench/job.h"

namespace rueda::gpu::bench {

// float32, in place, several in flight, beside copies on the device by rank 0 alone, in turn.
struct Rates {
  std::vector<double> reduce_s;  // of one all-reduce, by round
  std::vector<double> copy_s;    // of a copy of as many bytes as one rank has
  bool is_right = false;         // what came of it
};
Rates measure_rates(rueda::bench::Job& job, Driver& driver, uint64_t bytes, int rounds);

struct Latencies {
  std::vector<double> streamed_us;  // submit, let the stream wait, until the stream is there
  std::vector<double> blocking_us;  // submit and wait on the host, input there already
  // Kernels, or copies where the driver has no modules, that the last rank's process gets done a
  // second beside: alone, and during these two. 0: there was no load.
  double load_alone_Hz = 0;
  double load_streamed_Hz = 0;
  double load_blocking_Hz = 0;
};
// Of librueda's cache of allocations: forgotten before each use (as if there were none), checked
// with the driver at each use, or hardly ever, as the program announces its frees.
enum class Cache { kNone, kChecked, kAnnounced };
Latencies measure_latencies(rueda::bench::Job& job, Driver& driver, uint64_t bytes, int iterations,
                            bool has_load, Cache cache);

// What memory costs when it is used again and again.
struct Growth {
  int64_t resident_bytes = 0;  // of this process, from a tenth of the steps to the last
  int64_t device_bytes = 0;    // of the GPU, likewise, whoever has them
};
Growth measure_growth(rueda::bench::Job& job, Driver& driver, int steps);

// What two nodes on one GPU could reach at most: TCP over loopback both ways, and copies to and
// from pinned memory, at the same time. Rank 0 alone.
struct Limit {
  double tcp_Bps = 0;  // both ways together
  double out_Bps = 0;
  double in_Bps = 0;
  // Of an all-reduce of `bytes` on two nodes: each sends and gets them once over TCP, and copies
  // them out and in.
  double seconds_for(uint64_t bytes) const;
};
Limit measure_limit(Driver& driver);

}  // namespace rueda::gpu::bench
