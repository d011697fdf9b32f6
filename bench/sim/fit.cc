#include "bench/sim/fit.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "bench/sim/paper.h"
#include "bench/sim/run.h"
#include "bench/sim/sweep.h"

namespace rueda::scale {
namespace {

constexpr int kFitSteps = 30;
constexpr int kHalvings = 10;
// The mean of an oversleep is one of these, because the gain is not monotone in it.
constexpr double kOversleeps[] = {0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 2.0, 2.4};

RunResult run_with(const Parameters& parameters, Mode mode, double baseline, int gpus = 24'576) {
  RunSpec spec;
  spec.gpus = gpus;
  spec.mode = mode;
  spec.network = find_network("resnet50");
  spec.steps = kFitSteps;
  spec.parameters = parameters;
  return run(spec, baseline);
}

// Returns the argument for which a growing function is 0.
double bisect(double low, double high, int halvings, const std::function<double(double)>& f) {
  for (int i = 0; i < halvings; ++i) {
    const double middle = (low + high) / 2;
    (f(middle) < 0 ? low : high) = middle;
  }
  return (low + high) / 2;
}

// Returns the most that `global-sleep` brings over the baseline, at any size from the paper's
// smallest on.
double best_global_sleep(const Parameters& parameters) {
  double best = -1;
  for (const int gpus : sizes()) {
    if (gpus < kStrongFrom) continue;
    const double baseline = run_with(parameters, Mode::kBaseline, 1, gpus).images_per_s;
    best = std::max(best, run_with(parameters, Mode::kGlobalSleep, baseline, gpus).vs_baseline - 1);
  }
  return best;
}

// Returns `at` with the hold-ups that make a baseline's step as long as that.
Parameters with_hold_ups(Parameters at, double step_ms) {
  at.held_up_ms = bisect(0, 20, kHalvings, [&](double value) {
    at.held_up_ms = value;
    return run_with(at, Mode::kBaseline, 1).mean.step_ms - step_ms;
  });
  return at;
}

}  // namespace

Parameters fit(Parameters at, const FitTargets& targets) {
  RunSpec spec;
  spec.network = find_network("resnet50");
  spec.parameters = at;
  const double linear_ms = compute_ms(spec, at.weak_batch);
  const double step_ms = targets.below_linear * linear_ms;
  // What a baseline's step has beside the background thread is compute and data.
  at.ring_hop_us = bisect(0, 10, 50, [&](double value) {
    spec.parameters.ring_hop_us = value;
    const DataTimes data = data_times(spec);
    return linear_ms + data.copy_ms + data.allreduce_ms - (1 - targets.background_share) * step_ms;
  });
  Parameters best = at;
  double least = std::numeric_limits<double>::infinity();
  for (const double value : kOversleeps) {
    at.oversleep_ms = value;
    at = with_hold_ups(at, step_ms);
    const double away = std::abs(best_global_sleep(at) - targets.global_sleep_speedup);
    if (away >= least) continue;
    least = away;
    best = at;
  }
  return best;
}

}  // namespace rueda::scale
