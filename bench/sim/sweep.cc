#include "bench/sim/sweep.h"

#include <optional>

#include "bench/base/parallel.h"
#include "bench/sim/paper.h"
#include "daemon/base/limits.h"

namespace rueda::scale {
namespace {

// Collects runs, and makes them all at once.
class Cells {
 public:
  // Returns the number of the cell.
  size_t add(const std::string& study, const RunSpec& spec) {
    return add(study, spec, cells_.size());
  }
  // The cell is compared with the one that has the number `baseline`.
  size_t add(const std::string& study, const RunSpec& spec, size_t baseline) {
    cells_.push_back({study, spec, baseline, true});
    return cells_.size() - 1;
  }
  // Others are compared with this one, which is itself not shown.
  size_t add_unseen(const RunSpec& spec) {
    cells_.push_back({"", spec, cells_.size(), false});
    return cells_.size() - 1;
  }

  void add_modes(RunSpec spec, const std::string& study, bool with_cached = true) {
    spec.mode = Mode::kBaseline;
    const size_t baseline = add(study, spec);
    for (const Mode mode : all_modes()) {
      if (mode == Mode::kBaseline) continue;
      // The core refuses such a job, so nothing says what its rounds would cost.
      if (mode == Mode::kCached && (!with_cached || spec.nodes() > limits::kMaxNodes)) continue;
      spec.mode = mode;
      add(study, spec, baseline);
    }
  }

  // Gives the results in the order in which the cells were added.
  void run_all(const Found& found) const {
    std::vector<std::optional<RunResult>> results(cells_.size());
    bench::in_parallel(cells_.size(), [&](size_t i) { results[i] = run(cells_[i].spec, 1); });
    for (size_t i = 0; i < cells_.size(); ++i) {
      if (!cells_[i].shown) continue;
      results[i]->vs_baseline =
          results[i]->images_per_s / results[cells_[i].baseline]->images_per_s;
      found(cells_[i].study, *results[i]);
    }
  }

 private:
  struct Cell {
    std::string study;
    RunSpec spec;
    size_t baseline;
    bool shown;
  };
  std::vector<Cell> cells_;
};

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
  Cells cells;
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
        cells.add_modes(spec, strong ? "strong" : "weak");
      }
    }
  }
  cells.run_all(found);
}

void sweep_variations(const RunSpec& base, const Found& found) {
  Cells cells;
  for (size_t i = 1; i < variations().size(); ++i) {
    const Variation& variation = variations()[i];
    for (const Network& network : networks()) {
      RunSpec spec = base;
      spec.network = &network;
      spec.lis_change = variation.lis;
      spec.parameters = variation.apply(base.parameters);
      // The core's rounds take minutes to run, and no table shows them under a variation.
      cells.add_modes(spec, variation.name, false);
    }
  }
  cells.run_all(found);
}

void sweep_undisturbed(const RunSpec& base, const Found& found) {
  Cells cells;
  RunSpec spec = base;
  spec.gpus = sizes().back();
  for (const Network& network : networks()) {
    spec.network = &network;
    spec.mode = Mode::kBaseline;
    spec.held_up = true;
    const size_t baseline = cells.add_unseen(spec);
    spec.held_up = false;
    for (const Mode mode : {Mode::kCached, Mode::kLocked}) {
      spec.mode = mode;
      cells.add("undisturbed", spec, baseline);
    }
  }
  cells.run_all(found);
}

void sweep_beyond(const RunSpec& base, const Found& found) {
  RunSpec spec = base;
  spec.gpus = 100'000;
  spec.network = find_network("resnet50");
  Cells cells;
  cells.add_modes(spec, "100,000");
  cells.run_all(found);
}

}  // namespace rueda::scale
