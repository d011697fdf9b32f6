// Runs a whole search on a made-up surface of costs.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "daemon/core/plan/tuner.h"

namespace rueda::core {

inline TuningOptions tuning_options() {
  TuningOptions options;
  options.is_enabled = true;
  options.space.fusion_bytes = {64 << 20, 16 << 20, 4 << 20, 1 << 20};
  options.space.chunk_bytes = {256 << 10, 64 << 10, 128 << 10, 512 << 10, 1 << 20};
  options.space.streams = {4, 1, 2};
  options.space.cutovers_log2 = {0, kRingAlways, -2, 2};
  return options;
}

using Surface = std::function<double(const TunedSetting&)>;  // milliseconds of a round

struct Searched {
  TunedSetting chosen;
  std::vector<TuningLine> lines;
  uint64_t rounds = 0;
};

// Runs rounds of a job whose steps take what the surface says, times 1 + noise, and drift by
// `drift` over the whole search.
inline Searched search(const TuningOptions& options, const Surface& surface, double noise,
                       uint64_t seed, double drift = 0) {
  Tuner tuner(options);
  std::mt19937_64 random(seed);
  std::normal_distribution<double> spread(0, noise);
  double now = 0;
  tuner.on_locked();
  Searched searched;
  while (!tuner.is_settled() && searched.rounds < 1'000'000) {
    ++searched.rounds;
    const double slower = 1 + drift * static_cast<double>(searched.rounds) / 1000;
    now += surface(tuner.setting()) * std::max(0.1, 1 + spread(random)) * slower;
    if (tuner.on_round(static_cast<TicksMs>(now))) tuner.on_locked();
  }
  searched.chosen = tuner.setting();
  searched.lines = tuner.take_lines();
  return searched;
}

// A surface on which small chunks cost system calls, large ones overlap less, and streams help
// up to 2.
inline double bowl(const TunedSetting& setting) {
  const double chunk = std::log2(setting.data.chunk_bytes / double{512 << 10});
  const double fusion = std::log2(static_cast<double>(setting.fusion_bytes) / (16 << 20));
  const double streams = setting.data.streams == 2 ? 0 : 3;
  return 50 + 4 * std::abs(chunk) + 2 * std::abs(fusion) + streams;
}

}  // namespace rueda::core
