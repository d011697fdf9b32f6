// Runs the measured loop, and sums up its results: some of its work is inside the clock, and the
// rest outside.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <sys/types.h>

#include "bench/run/job.h"

namespace rueda::bench {

// Measures CPU seconds of this rank, and CPU seconds and memory of the daemons that it answers for.
// Of the ranks of a machine that know a daemon, the lowest answers for it, so that summing over the
// ranks counts each process once.
class CpuMeter {
 public:
  // The call is collective: every rank constructs a meter.
  explicit CpuMeter(Job& job);

  double cpu_s() const;
  // Returns the memory of the daemon that has most, or 0 if none is known.
  uint64_t daemon_memory_bytes() const;
  // True when every rank's daemon is counted.
  bool includes_daemons() const { return includes_daemons_; }
  // Returns true if `rank` runs on the machine of rank 0.
  bool with_rank0(int rank) const { return with_rank0_[static_cast<size_t>(rank)]; }

 private:
  std::vector<pid_t> daemons_;
  std::vector<bool> with_rank0_;
  bool includes_daemons_ = true;
};

struct LoopBody {
  std::function<void()> iterate;
  // This is called before the first and the last measured iteration, outside the clock. It may be
  // empty.
  std::function<void(uint64_t seed)> prepare;
  std::function<void(uint64_t seed)> inspect;
};

// Holds one rank's own numbers.
struct LoopTimes {
  std::vector<int64_t> times_ns;  // of each iteration
  double cpu_s = 0;               // as CpuMeter counts it, inside the clock
};

// Runs `warmup` iterations, then `iters` measured ones. The call is collective.
LoopTimes run_loop(Job& job, const CpuMeter& meter, int warmup, int iters, const LoopBody& body);

// Counts the busy CPUs that the job did not use, on rank 0's machine, from construction on.
class NoiseWindow {
 public:
  explicit NoiseWindow(const CpuMeter& meter);
  double wall_s() const;
  double busy_s() const;  // CPU seconds of this machine
  double own_s() const;   // CPU seconds that CpuMeter counts

 private:
  const CpuMeter& meter_;
  int64_t start_ns_;
  double start_busy_s_;
  double start_own_s_;
};

// Holds what all ranks know of a row once they have exchanged their numbers; it is the same on all
// ranks.
struct Summary {
  double time_us = 0;
  double time_us_p99 = 0;
  double pace_us = 0;  // the time of all iterations of the slowest rank, by their number
  double cpu_s = 0;    // CPU seconds of an iteration
  std::optional<double> noise_cores;
  uint64_t daemon_memory_bytes = 0;  // of the largest daemon that any rank answers for
  uint64_t wrong = 0;
  bool ranks_differ = false;
};

// Exchanges the ranks' numbers. The call is collective. `wrong` elements and the hash of all
// results are this rank's.
Summary summarize(Job& job, const CpuMeter& meter, const NoiseWindow& window,
                  const LoopTimes& times, uint64_t wrong, uint64_t hash);

int64_t now_ns();  // reads CLOCK_MONOTONIC

}  // namespace rueda::bench
