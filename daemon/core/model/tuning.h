// What autotuning may set (decision 51), and what it says about its search.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/clock.h"

namespace rueda::core {

// Of the cut-over: small all-reduces go round the ring, too.
inline constexpr int32_t kRingAlways = -64;

// How the operations of a plan go between nodes; the same on all of them, as the plan is.
struct DataTuning {
  uint32_t chunk_bytes = 0;  // the unit that travels round the ring; 0: as configured
  uint32_t streams = 0;      // of those that a channel has; 0: all
  // Small all-reduces are exchanged in pairs up to 2^this times the bytes that the table says.
  int32_t cutover_log2 = 0;

  bool operator==(const DataTuning&) const = default;
};

struct TunedSetting {
  int64_t fusion_bytes = 0;  // the coordinator's alone: it makes the plans
  DataTuning data;

  bool operator==(const TunedSetting&) const = default;
};

// The values of each dimension, none of them empty; the first of each is the default.
struct TuningSpace {
  std::vector<int64_t> fusion_bytes{int64_t{64} << 20};
  std::vector<uint32_t> chunk_bytes{0};
  std::vector<uint32_t> streams{0};
  std::vector<int32_t> cutovers_log2{0};

  TunedSetting defaults() const {
    return {fusion_bytes.front(), {chunk_bytes.front(), streams.front(), cutovers_log2.front()}};
  }
};

struct TuningOptions {
  bool is_enabled = false;
  TuningSpace space;
  // A window of steps is one measurement: so many at the least, and for so long.
  int window_rounds = 5;
  // Of a new plan, before its first window: caches refill, and what was under way ends.
  int rounds_to_skip = 2;
  TicksMs window_ms = 200;
  size_t max_candidates = 16;
};

// A line of the log of the search.
struct TuningLine {
  uint64_t round = 0;  // steps seen in plans so far
  std::string phase;   // "halving", "confirming", "settled"
  TunedSetting setting;
  double round_ms = 0;  // of one window, or the median of all of the candidate's; 0: not measured
  std::string verdict;  // empty: a measurement
};

}  // namespace rueda::core
