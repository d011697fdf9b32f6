#include "bench/sim/fit.h"

#include <functional>

#include "bench/sim/run.h"

namespace rueda::scale {
namespace {

constexpr int kSteps = 200;
constexpr int kHalvings = 50;

RunResult run_with(const Parameters& parameters, Mode mode, double baseline) {
  RunSpec spec;
  spec.mode = mode;
  spec.network = find_network("resnet50");
  spec.steps = kSteps;
  spec.parameters = parameters;
  return run(spec, baseline);
}

// Returns the argument for which a growing function is 0.
double bisect(double low, double high, const std::function<double(double)>& f) {
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (f(middle) < 0 ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace

Parameters fit(Parameters at, const FitTargets& targets) {
  RunSpec spec;
  spec.network = find_network("resnet50");
  spec.parameters = at;
  const double linear_ms = compute_ms(spec, spec.network->batch);
  const double step_ms = targets.below_linear * linear_ms;
  // The share of the baseline's step that is not coordination is compute and data.
  at.ring_hop_us = bisect(0, 100, [&](double value) {
    at.ring_hop_us = value;
    const StepTimes mean = run_with(at, Mode::kBaseline, 1).mean;
    return mean.compute_ms + mean.data_ms - (1 - targets.coordination_share) * step_ms;
  });
  at.mover_slowdown = bisect(0, 10, [&](double value) {
    at.mover_slowdown = value;
    return run_with(at, Mode::kBaseline, 1).mean.step_ms - step_ms;
  });
  const double baseline = run_with(at, Mode::kBaseline, 1).images_per_s;
  at.slept_delay_ms = bisect(0, 10, [&](double value) {
    at.slept_delay_ms = value;
    const double gain = run_with(at, Mode::kGlobalSleep, baseline).vs_baseline - 1;
    return targets.global_sleep_speedup - gain;  // the gain falls the later threads wake
  });
  return at;
}

}  // namespace rueda::scale
