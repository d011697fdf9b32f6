// One run of the simulator: so many GPUs, a network, a way to coordinate; and what came of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/sim/networks.h"
#include "bench/sim/parameters.h"

namespace rueda::scale {

enum class Mode : uint8_t {
  kBaseline,  // Horovod 0.16 with its response cache: one participant a rank, rounds that block
  kGlobalSleep,
  kNonblocking,
  kScp,
  kTopo,
  kCached,  // Rueda's daemons: the mode `cached`, one participant a node
  kLocked,  // likewise `locked`
};

// "baseline", "cached", "global-sleep", "nonblocking", "scp", "topo", "locked".
const char* to_string(Mode mode);
std::optional<Mode> parse_mode(const std::string& name);
const std::vector<Mode>& all_modes();
// Of a daemon a node, not of a thread a rank.
bool is_service(Mode mode);

struct RunSpec {
  int gpus = 24'576;
  int gpus_per_node = 6;
  Mode mode = Mode::kBaseline;
  const Network* network = nullptr;
  int steps = 50;
  uint64_t seed = 1;
  bool strong = false;    // the batch of all GPUs is constant, not that of one
  double lis_change = 0;  // added to the network's window
  Parameters parameters;

  double lis() const { return network->lis + lis_change; }
  int nodes() const { return (gpus + gpus_per_node - 1) / gpus_per_node; }
};

// Of one step. compute: of the slowest GPU, if nothing but its own work kept it; data: the
// all-reduces, if nothing held them up. What is left of the step is coordination: so a wait counts,
// wherever it is spent.
struct StepTimes {
  double step_ms = 0;
  double compute_ms = 0;
  double data_ms = 0;
  double order_messages = 0;
  double coordinator_bytes = 0;  // that the coordinator sends and receives

  double coordination_ms() const { return step_ms - compute_ms - data_ms; }
};

struct RunResult {
  RunSpec spec;
  StepTimes mean;  // of all steps
  double images_per_s = 0;
  double vs_linear = 0;  // of as many GPUs that each go at the pace of one alone
  double vs_baseline =
      0;  // images a second over the baseline's in a run that is otherwise the same

  double coordination_share() const { return mean.coordination_ms() / mean.step_ms; }
};

// Of one GPU that nothing disturbs, by the images that it has in a step.
double compute_ms(const RunSpec& spec, double images);
double images_per_gpu(const RunSpec& spec);
// Elements a batch of fused gradients, as the last layer's come first. `look_ahead`: past a tensor
// that does not fit.
std::vector<int64_t> fused_bytes(const Network& network, int64_t threshold, bool look_ahead);

// Repeats exactly: of equal specs, equal results.
RunResult run(const RunSpec& spec);
// The same, when the baseline's is there already.
RunResult run(const RunSpec& spec, double baseline_images_per_s);

}  // namespace rueda::scale
