#include "daemon/core/plan/tuner.h"

#include <algorithm>
#include <utility>

#include "daemon/base/hash.h"
#include "daemon/core/model/mutants.h"

namespace rueda::core {
namespace {

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const size_t middle = values.size() / 2;
  std::sort(values.begin(), values.end());
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Returns a point of the grid of all settings by its number; 0 is the defaults.
TunedSetting point(const TuningSpace& space, uint64_t number) {
  const auto take = [&](const auto& values) {
    const auto value = values[number % values.size()];
    number /= values.size();
    return value;
  };
  TunedSetting setting;
  setting.fusion_bytes = take(space.fusion_bytes);
  setting.data.chunk_bytes = take(space.chunk_bytes);
  setting.data.streams = take(space.streams);
  setting.data.cutover_log2 = take(space.cutovers_log2);
  return setting;
}

}  // namespace

std::vector<TunedSetting> candidates_of(const TuningSpace& space, size_t most) {
  std::vector<TunedSetting> candidates{space.defaults()};
  const auto add = [&](const TunedSetting& setting) {
    const bool is_new =
        std::find(candidates.begin(), candidates.end(), setting) == candidates.end();
    if (is_new && candidates.size() < most) candidates.push_back(setting);
  };
  uint64_t stride = 1;
  for (const size_t values : {space.fusion_bytes.size(), space.chunk_bytes.size(),
                              space.streams.size(), space.cutovers_log2.size()}) {
    for (uint64_t i = 1; i < values; ++i) add(point(space, i * stride));
    stride *= values;
  }
  // The order of these looks random, and is the same everywhere.
  for (uint64_t i = 0; i < 8 * stride && candidates.size() < std::min<uint64_t>(most, stride);
       ++i) {
    add(point(space, (Fnv1a().add(i).value() >> 20) % stride));
  }
  return candidates;
}

Tuner::Tuner(const TuningOptions& options)
    : options_(options),
      settings_(candidates_of(options.space, options.max_candidates)),
      times_(settings_.size()) {
  for (size_t i = 0; i < settings_.size(); ++i) left_.push_back(i);
  if (settings_.size() == 1) {
    settle(0, "nothing to search, defaults kept");
  } else {
    begin_rung();
  }
}

void Tuner::on_locked() {
  since_.reset();
  skip_ = options_.rounds_to_skip;
}

bool Tuner::on_round(TicksMs now) {
  ++rounds_;
  if (is_settled_) return false;
  if (skip_ > 0) {
    --skip_;
    return false;
  }
  if (!since_) {
    since_ = now;
    window_rounds_ = 0;
    return false;
  }
  ++window_rounds_;
  const TicksMs took = now - *since_;
  if (window_rounds_ < options_.window_rounds || took < options_.window_ms) return false;
  since_.reset();
  const TunedSetting before = setting();
  finish_window(static_cast<double>(took) / window_rounds_);
  return setting() != before;
}

void Tuner::on_lost() {
  since_.reset();
  if (!is_settled_ && ++lost_ >= kMaxLost) {
    keep_defaults("the schedule does not hold, defaults kept");
  }
}

void Tuner::finish_window(double round_ms) {
  times_[current_].push_back(round_ms);
  say(is_confirming_ ? "confirming" : "halving", current_, round_ms, "");
  turns_.erase(turns_.begin());
  next_window();
}

void Tuner::next_window() {
  if (!turns_.empty()) {
    current_ = turns_.front();
  } else if (is_confirming_) {
    finish_confirming();
  } else {
    finish_rung();
  }
}

void Tuner::begin_rung() {
  for (int i = 0; i < repetitions_; ++i) {
    const bool is_back = turns_.size() / left_.size() % 2 == 1;
    std::vector<size_t> pass = left_;
    if (is_back) std::reverse(pass.begin(), pass.end());
    turns_.insert(turns_.end(), pass.begin(), pass.end());
  }
  current_ = turns_.front();
}

void Tuner::finish_rung() {
  std::vector<size_t> ranking = left_;
  std::stable_sort(ranking.begin(), ranking.end(), [&](size_t a, size_t b) {
    return RUEDA_MUTANT(kSlowerHalfKept) ? median_ms(b) < median_ms(a)
                                         : median_ms(a) < median_ms(b);
  });
  const size_t kept = (ranking.size() + 1) / 2;
  for (size_t i = 0; i < ranking.size(); ++i) {
    say("halving", ranking[i], median_ms(ranking[i]), i < kept ? "kept" : "dropped");
  }
  ranking.resize(kept);
  if (repetitions_ == 1) {
    if (const std::optional<size_t> crossed = cross()) ranking.push_back(*crossed);
  }
  if (ranking.size() == 1) return begin_confirming(ranking.front());
  left_ = std::move(ranking);
  std::sort(left_.begin(), left_.end());
  repetitions_ *= 2;
  begin_rung();
}

// Adds a candidate that has, in each dimension, the value that by itself took least time, if that
// was less than the defaults took. Returns none if there is such a candidate already.
std::optional<size_t> Tuner::cross() {
  const TunedSetting defaults = settings_.front();
  TunedSetting best = defaults;
  const auto take = [&](auto value_of) {
    double least = median_ms(0);
    for (size_t i = 1; i < settings_.size(); ++i) {
      TunedSetting back = settings_[i];
      value_of(back) = value_of(settings_.front());
      if (back != defaults || median_ms(i) >= least) continue;
      least = median_ms(i);
      value_of(best) = value_of(settings_[i]);
    }
  };
  take([](TunedSetting& of) -> int64_t& { return of.fusion_bytes; });
  take([](TunedSetting& of) -> uint32_t& { return of.data.chunk_bytes; });
  take([](TunedSetting& of) -> uint32_t& { return of.data.streams; });
  take([](TunedSetting& of) -> int32_t& { return of.data.cutover_log2; });
  if (std::find(settings_.begin(), settings_.end(), best) != settings_.end()) return std::nullopt;
  settings_.push_back(best);
  times_.emplace_back();
  return settings_.size() - 1;
}

void Tuner::begin_confirming(size_t best) {
  if (best == 0) return settle(0, "no gain, defaults kept");
  is_confirming_ = true;
  left_ = {0, best};
  times_[0].clear();
  times_[best].clear();
  repetitions_ = kPairs;
  begin_rung();
}

// Window i of the best was measured next to window i of the defaults, so they make a pair.
void Tuner::finish_confirming() {
  const size_t best = left_.back();
  int wins = 0;
  for (size_t i = 0; i < times_[0].size(); ++i) {
    if (times_[best][i] < times_[0][i]) ++wins;
  }
  const double gain = 1 - median_ms(best) / median_ms(0);
  const bool is_better = (gain >= kLeastGain && wins >= kLeastWins) || RUEDA_MUTANT(kNoiseTaken);
  for (const size_t candidate : left_) {
    say("confirming", candidate, median_ms(candidate),
        candidate == 0 ? "defaults"
                       : "wins " + std::to_string(wins) + " of " + std::to_string(kPairs));
  }
  settle(is_better ? best : 0, is_better ? "chosen" : "no gain, defaults kept");
}

void Tuner::settle(size_t chosen, const std::string& verdict) {
  is_settled_ = true;
  current_ = chosen;
  turns_.clear();
  say("settled", chosen, median_ms(chosen), verdict);
}

void Tuner::keep_defaults(const std::string& why) {
  if (!is_settled_) settle(0, why);
}

double Tuner::median_ms(size_t candidate) const { return median_of(times_[candidate]); }

void Tuner::say(const std::string& phase, size_t candidate, double round_ms, std::string verdict) {
  lines_.push_back({rounds_, phase, settings_[candidate], round_ms, std::move(verdict)});
}

std::vector<TuningLine> Tuner::take_lines() { return std::exchange(lines_, {}); }

}  // namespace rueda::core
