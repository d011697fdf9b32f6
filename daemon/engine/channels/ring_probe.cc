#include "daemon/engine/channels/ring_probe.h"

#include <algorithm>
#include <array>

#include "daemon/base/check.h"
#include "daemon/base/clock.h"
#include "daemon/reduce/kernels.h"

namespace rueda::engine {
namespace {

// The first ones find cold caches and small congestion windows: medians leave them out.
constexpr size_t kSmallRounds = 9;
constexpr size_t kLargeRounds = 5;

double median(std::vector<double> values) {
  RUEDA_CHECK(!values.empty());
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::optional<uint32_t> RingProbe::next_bytes() const {
  if (small_s_.size() < kSmallRounds) return 0;
  if (large_s_.size() < kLargeRounds) return large_bytes_;
  return std::nullopt;
}

void RingProbe::note_round_trip(double seconds) {
  (small_s_.size() < kSmallRounds ? small_s_ : large_s_).push_back(seconds);
}

core::TransferCosts RingProbe::costs(double add_s_per_byte) const {
  core::TransferCosts costs;
  costs.latency_s = median(small_s_) / nodes_;
  costs.s_per_byte = std::max(0.0, median(large_s_) / nodes_ - costs.latency_s) / large_bytes_;
  costs.add_s_per_byte = add_s_per_byte;
  return costs;
}

double measure_additions() {
  constexpr size_t kElements = 16 << 10;
  std::vector<float> sum(kElements, 1.0F);
  const std::vector<float> other(kElements, 1.0F);
  const std::array<const void*, 1> sources{other.data()};
  double best_s = 1;
  for (int i = 0; i < 5; ++i) {
    reduce::ReduceArgs args;
    args.dst = sum.data();
    args.partial = sum.data();
    args.sources = sources;
    args.count = kElements;
    const double begin_s = steady_now_s();
    reduce::reduce(args);
    best_s = std::min(best_s, steady_now_s() - begin_s);
  }
  return best_s / (kElements * sizeof(float));
}

}  // namespace rueda::engine
