#include "bench/base/stats.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace rueda::bench {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double percentile(std::vector<double> values, double percent) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  const double place = std::clamp(std::ceil(percent / 100 * count), 1.0, count);
  return values[static_cast<size_t>(place) - 1];
}

std::vector<double> slowest_of_ranks(const std::vector<std::vector<double>>& times_by_rank) {
  std::vector<double> slowest;
  for (const auto& times : times_by_rank) {
    slowest.resize(std::max(slowest.size(), times.size()));
    for (size_t i = 0; i < times.size(); ++i) slowest[i] = std::max(slowest[i], times[i]);
  }
  return slowest;
}

double slowest_pace(const std::vector<std::vector<double>>& times_by_rank) {
  double slowest = 0;
  for (const auto& times : times_by_rank) {
    if (times.empty()) continue;
    const double sum = std::accumulate(times.begin(), times.end(), 0.0);
    slowest = std::max(slowest, sum / static_cast<double>(times.size()));
  }
  return slowest;
}

double algbw_GBps(uint64_t bytes, double time_us) {
  return time_us > 0 ? static_cast<double>(bytes) / time_us / 1e3 : 0;
}

}  // namespace rueda::bench
