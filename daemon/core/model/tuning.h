// The settings that autotuning may choose (decision 51), and what it says about its search.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/clock.h"

namespace rueda::core {

// A value of cutover_log2 with which small all-reduces go round the ring, too.
inline constexpr int32_t kRingAlways = -64;

// The way in which the operations of a plan go between nodes. It is the same on all nodes, as the
// plan is.
struct DataTuning {
  uint32_t chunk_bytes = 0;  // The unit that travels round the ring; 0: as configured.
  uint32_t streams = 0;      // How many of a channel's streams are used; 0: all.
  // Small all-reduces are exchanged in pairs up to 2^cutover_log2 times the bytes that the table
  // says.
  int32_t cutover_log2 = 0;

  bool operator==(const DataTuning&) const = default;
};

struct TunedSetting {
  int64_t fusion_bytes = 0;  // Only the coordinator uses it, because it makes the plans.
  DataTuning data;

  bool operator==(const TunedSetting&) const = default;
};

// The values of each dimension, of which there is at least one; the first of each is the default.
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
  // One measurement is a window of at least so many steps, which lasts at least window_ms.
  int window_rounds = 5;
  // So many rounds of a new plan pass before its first window, because caches refill and earlier
  // operations end.
  int rounds_to_skip = 2;
  TicksMs window_ms = 200;
  size_t max_candidates = 16;
};

// One line of the log of the search.
struct TuningLine {
  uint64_t round = 0;  // How many steps in plans have been seen so far.
  std::string phase;   // The phase is "halving", "confirming" or "settled".
  TunedSetting setting;
  // The time of a round in one window, or the candidate's median over all of its windows; 0 if
  // that was not measured.
  double round_ms = 0;
  std::string verdict;  // What was decided; empty if the line only tells a measurement.
};

}  // namespace rueda::core
