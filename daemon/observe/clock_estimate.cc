#include "daemon/observe/clock_estimate.h"

#include <algorithm>
#include <cstdlib>

namespace rueda::observe {
namespace {

constexpr int64_t kMillion = 1'000'000;

}  // namespace

void ClockEstimate::add(const ClockExchange& exchange) {
  const int64_t away = exchange.answered_ns - exchange.asked_ns;
  const int64_t there = exchange.replied_ns - exchange.heard_ns;
  if (there < 0 || away < there) return;
  ++exchanges_;
  // The middle of the time away is the middle of the time there, give or take half of the way.
  const int64_t offset = (exchange.heard_ns - exchange.asked_ns) - (away - there) / 2;
  samples_.push_back({exchange.answered_ns, offset, away - there});
  if (samples_.size() > kKept) samples_.pop_front();
}

std::optional<ClockOffset> ClockEstimate::at(int64_t now_ns) const {
  const auto error = [&](const Sample& sample) {
    const int64_t age_ns = std::max<int64_t>(now_ns - sample.at_ns, 0);
    return (sample.round_trip_ns + 1) / 2 + age_ns / kMillion * kDriftPpm;
  };
  const auto best =
      std::min_element(samples_.begin(), samples_.end(),
                       [&](const Sample& a, const Sample& b) { return error(a) < error(b); });
  if (best == samples_.end()) return std::nullopt;
  return ClockOffset{best->offset_ns, error(*best)};
}

void ClockMap::set(int64_t now_ns, const ClockOffset& estimate) {
  target_ = estimate;
  if (knots_.empty()) {
    knots_.push_back({now_ns, estimate.offset_ns});
    return;
  }
  const int64_t offset_ns = offset_at(now_ns);
  if (knots_.back().offset_ns == estimate.offset_ns) return;  // The map goes there already.
  while (!knots_.empty() && knots_.back().local_ns >= now_ns) knots_.pop_back();
  knots_.push_back({now_ns, offset_ns});
  const int64_t way_ns = std::abs(estimate.offset_ns - offset_ns);
  knots_.push_back({now_ns + way_ns / kSlewPpm * kMillion + kMillion, estimate.offset_ns});
  while (knots_.size() > kKnots) knots_.pop_front();
}

ClockOffset ClockMap::at(int64_t local_ns) const {
  const int64_t offset_ns = offset_at(local_ns);
  return {offset_ns, target_.error_ns + std::abs(target_.offset_ns - offset_ns)};
}

int64_t ClockMap::offset_at(int64_t local_ns) const {
  const auto next =
      std::upper_bound(knots_.begin(), knots_.end(), local_ns,
                       [](int64_t time_ns, const Knot& knot) { return time_ns < knot.local_ns; });
  if (next == knots_.begin()) return knots_.empty() ? 0 : knots_.front().offset_ns;
  if (next == knots_.end()) return knots_.back().offset_ns;
  const Knot& before = *(next - 1);
  const double part = static_cast<double>(local_ns - before.local_ns) /
                      static_cast<double>(next->local_ns - before.local_ns);
  return before.offset_ns +
         static_cast<int64_t>(part * static_cast<double>(next->offset_ns - before.offset_ns));
}

}  // namespace rueda::observe
