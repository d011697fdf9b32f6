// What a job's ranks measure that share a GPU: whole all-reduces, from the client's call on,
// through daemon and worker. Collective: all ranks call each with the same arguments, and all get
// the results. Times are the slowest rank's.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/gpu_jobs/driver.h"
#include "bench/run/job.h"

namespace rueda::gpu::bench {

// What two nodes on one GPU could reach at most: TCP over loopback both ways, and copies to and
// from pinned memory, at the same time.
struct Limit {
  double tcp_Bps = 0;   // both ways together
  double copy_Bps = 0;  // out, and as much in
  // Of an all-reduce of `bytes` on two nodes: each sends and gets them once over TCP, and copies
  // them out and in.
  double seconds_for(uint64_t bytes) const;
};

// float32, in place, several in flight; in turn with that, rank 0 alone measures what the limit is
// made of. By round.
struct Rates {
  std::vector<double> reduce_s;  // of one all-reduce
  // One node: of its ranks' bytes, read and written at the rate of copies on the device. Several:
  // Limit::seconds_for().
  std::vector<double> limit_s;
  std::vector<Limit> limits;  // several nodes
  bool is_right = false;      // what came of it
};
Rates measure_rates(rueda::bench::Job& job, Driver& driver, uint64_t bytes, int rounds);

struct Latencies {
  std::vector<double> streamed_us;  // submit, let the stream wait, until the stream is there
  std::vector<double> blocking_us;  // submit and wait on the host, input there already
  // Kernels that compute, each with a copy behind it, that the last rank's process gets done a
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

// What memory costs when it is used again and again: how much more of it is there after the last
// step than after a tenth of them.
struct Growth {
  int64_t rank_bytes = 0;    // resident and not shared, of this process
  int64_t daemon_bytes = 0;  // likewise, of all daemons that this rank's launcher has started, and
                             // of their GPU workers
  int daemons = 0;           // so many processes, at the last step
  int64_t device_bytes = 0;  // of the GPU, whoever has them
};
Growth measure_growth(rueda::bench::Job& job, Driver& driver, int steps);

}  // namespace rueda::gpu::bench
