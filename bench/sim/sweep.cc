#include "bench/sim/sweep.h"

#include "bench/sim/paper.h"
#include "daemon/base/limits.h"

namespace rueda::scale {
namespace {

void run_modes(RunSpec spec, const std::string& study, const Found& found,
               bool with_cached = true) {
  double baseline = 1;
  for (const Mode mode : all_modes()) {
    // The core refuses such a job, so nothing says what its rounds would cost.
    if (mode == Mode::kCached && (!with_cached || spec.nodes() > limits::kMaxNodes)) continue;
    spec.mode = mode;
    // The baseline is the first of all modes.
    RunResult result = mode == Mode::kBaseline ? run(spec) : run(spec, baseline);
    if (mode == Mode::kBaseline) baseline = result.images_per_s;
    found(study, result);
  }
}

}  // namespace

Parameters Variation::apply(Parameters parameters) const {
  parameters.oversleep_ms *= jitter;
  parameters.held_up_ms *= jitter;
  parameters.own_core_delay_us *= jitter;
  parameters.longest_delay_ms *= jitter;
  parameters.compute_variation *= jitter;
  parameters.nic_us *= latency;
  parameters.switch_us *= latency;
  parameters.ring_hop_us *= latency;
  return parameters;
}

const std::vector<Variation>& variations() {
  static const std::vector<Variation> all{
      {"as it is", 1, 1, 0},       {"jitter x0.5", 0.5, 1, 0}, {"jitter x2", 2, 1, 0},
      {"latency x0.5", 1, 0.5, 0}, {"latency x2", 1, 2, 0},    {"LIS -10", 1, 1, -0.1},
      {"LIS +10", 1, 1, 0.1},
  };
  return all;
}

const std::vector<int>& sizes() {
  static const std::vector<int> all{6, 24, 96, 384, 1536, 6144, 12'288, 24'576};
  return all;
}

void sweep_sizes(const RunSpec& base, const Found& found) {
  for (const bool strong : {false, true}) {
    for (const Network& network : networks()) {
      if (strong && network.name != "resnet50") continue;
      for (const int gpus : sizes()) {
        RunSpec spec = base;
        spec.strong = strong;
        spec.network = &network;
        spec.gpus = gpus;
        // The paper does not begin below, where a GPU has no memory for its share.
        if (strong && gpus < kStrongFrom) continue;
        run_modes(spec, strong ? "strong" : "weak", found);
      }
    }
  }
}

void sweep_variations(const RunSpec& base, const Found& found) {
  for (size_t i = 1; i < variations().size(); ++i) {
    const Variation& variation = variations()[i];
    for (const Network& network : networks()) {
      RunSpec spec = base;
      spec.network = &network;
      spec.lis_change = variation.lis;
      spec.parameters = variation.apply(base.parameters);
      // The core's rounds take minutes to run, and no table shows them under a variation.
      run_modes(spec, variation.name, found, false);
    }
  }
}

void sweep_undisturbed(const RunSpec& base, const Found& found) {
  RunSpec spec = base;
  spec.gpus = sizes().back();
  for (const Network& network : networks()) {
    spec.network = &network;
    spec.mode = Mode::kBaseline;
    spec.held_up = true;
    const double baseline = run(spec, 1).images_per_s;
    spec.held_up = false;
    for (const Mode mode : {Mode::kCached, Mode::kLocked}) {
      spec.mode = mode;
      found("undisturbed", run(spec, baseline));
    }
  }
}

void sweep_beyond(const RunSpec& base, const Found& found) {
  RunSpec spec = base;
  spec.gpus = 100'000;
  spec.network = find_network("resnet50");
  run_modes(spec, "100,000", found);
}

}  // namespace rueda::scale
