// Measures whole all-reduces of the ranks of a job that share a GPU, from the client's call on,
// through daemon and worker. All functions are collective: all ranks call each of them with the
// same arguments, and all get the results. Times are those of the slowest rank.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/gpu_jobs/driver.h"
#include "bench/run/job.h"

namespace rueda::gpu::bench {

// Holds what two nodes on one GPU could reach at most: TCP over loopback both ways, and copies to
// and from pinned memory, at the same time.
struct Limit {
  double tcp_Bps = 0;   // both ways together
  double copy_Bps = 0;  // copies out of the GPU; as many bytes are copied in at the same time
  // Returns the least time of an all-reduce of `bytes` on two nodes: each node sends and gets them
  // once over TCP, and copies them out and in.
  double seconds_for(uint64_t bytes) const;
};

// Holds results by round, for all-reduces of float32 in place, several in flight. In turn with
// them, rank 0 alone measures what the limit is made of.
struct Rates {
  std::vector<double> reduce_s;  // the time of one all-reduce
  // The least time. On one node it is that of reading and writing all ranks' bytes at the rate of
  // copies on the device; on several it is Limit::seconds_for().
  std::vector<double> limit_s;
  std::vector<Limit> limits;  // on several nodes
  bool is_right = false;      // the results were right
};
Rates measure_rates(rueda::bench::Job& job, Driver& driver, uint64_t bytes, int rounds);

struct Latencies {
  std::vector<double> streamed_us;  // submits, lets the stream wait, waits for the stream
  std::vector<double> blocking_us;  // submits and waits on the host; the input is ready before
  // The rate of the load beside them: kernels that compute, each with a copy behind it, which the
  // process of the last rank gets done in a second, alone and during the two measurements. 0 means
  // that there was no load.
  double load_alone_Hz = 0;
  double load_streamed_Hz = 0;
  double load_blocking_Hz = 0;
};
// Says how librueda's cache of allocations is used: it forgets the memory before each use (as if
// there were no cache), checks it with the driver at each use, or hardly ever checks it, because
// the program announces its frees.
enum class Cache { kNone, kChecked, kAnnounced };
Latencies measure_latencies(rueda::bench::Job& job, Driver& driver, uint64_t bytes, int iterations,
                            bool has_load, Cache cache);

// Says what memory costs when it is used again and again: how much more is in use after the last
// step than after a tenth of them.
struct Growth {
  int64_t rank_bytes = 0;    // resident memory of this process that it shares with nobody
  int64_t daemon_bytes = 0;  // the same of the launcher's daemons and their GPU workers
  int daemons = 0;           // the number of those processes at the last step
  int64_t device_bytes = 0;  // memory of the GPU, whichever process has it
};
Growth measure_growth(rueda::bench::Job& job, Driver& driver, int steps);

}  // namespace rueda::gpu::bench
