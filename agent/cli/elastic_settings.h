// What the command line says of an elastic job, whose ranks may die and be replaced.
#pragma once

#include <cstdint>

namespace rueda::agent {

struct ElasticSettings {
  int min_ranks = 1;             // The number of ranks without which the job does not go on.
  int max_ranks = 0;             // The most that it may have; 0: those that are started.
  int64_t timeout_ms = 600'000;  // How long it waits for them.
  // A rank for which others have waited so long ends the generation, and is killed if it has not
  // come back after as long again; 0: never.
  int64_t rank_timeout_ms = 0;
  // How often a rank, or a daemon, is started again within kRestartWindowMs, before it is given up.
  int max_restarts = 3;
};

inline constexpr int64_t kRestartWindowMs = 600'000;
// The time before a rank is started again; it doubles each time, up to the longest.
inline constexpr int64_t kFirstBackoffMs = 1'000;
inline constexpr int64_t kLongestBackoffMs = 60'000;
// The time between two attempts to find the daemon of a node again; it doubles, up to
// kFirstBackoffMs.
inline constexpr int64_t kFirstRevivalMs = 100;

}  // namespace rueda::agent
