#include "bench/sim/sweep.h"

namespace rueda::scale {
namespace {

void run_modes(RunSpec spec, const std::string& study, const Found& found) {
  double baseline = 1;
  for (const Mode mode : all_modes()) {
    spec.mode = mode;
    // The baseline is the first of all modes.
    RunResult result = mode == Mode::kBaseline ? run(spec) : run(spec, baseline);
    if (mode == Mode::kBaseline) baseline = result.images_per_s;
    found(study, result);
  }
}

}  // namespace

Parameters Variation::apply(Parameters parameters) const {
  parameters.spun_delay_ms *= jitter;
  parameters.slept_delay_ms *= jitter;
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
  static const std::vector<int> all{6, 24, 96, 384, 1536, 6144, 24'576};
  return all;
}

void sweep_sizes(const RunSpec& base, const Found& found) {
  for (const bool strong : {false, true}) {
    for (const Network& network : networks()) {
      for (const int gpus : sizes()) {
        RunSpec spec = base;
        spec.strong = strong;
        spec.network = &network;
        spec.gpus = gpus;
        // A GPU has no memory for more than the usual batch.
        if (strong && images_per_gpu(spec) > network.batch) continue;
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
      spec.gpus = sizes().back();
      spec.network = &network;
      spec.lis_change = variation.lis;
      spec.parameters = variation.apply(base.parameters);
      run_modes(spec, variation.name, found);
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
