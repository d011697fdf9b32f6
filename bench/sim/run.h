// Makes one run of the simulator: a number of GPUs, a network, and a way to coordinate, with their
// results.
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
  kLocked,  // Rueda's daemons: the mode `locked`
};

// Returns "baseline", "cached", "global-sleep", "nonblocking", "scp", "topo" or "locked".
const char* to_string(Mode mode);
std::optional<Mode> parse_mode(const std::string& name);
const std::vector<Mode>& all_modes();
// Returns true for a mode of one daemon a node, false for one of a thread a rank.
bool is_service(Mode mode);

struct RunSpec {
  int gpus = 24'576;
  int gpus_per_node = 6;
  Mode mode = Mode::kBaseline;
  const Network* network = nullptr;
  int steps = 50;
  uint64_t seed = 1;
  bool strong = false;    // the batch of all GPUs together is constant, not that of one GPU
  double lis_change = 0;  // is added to the network's window
  Parameters parameters;

  double lis() const { return network->lis + lis_change; }
  int nodes() const { return (gpus + gpus_per_node - 1) / gpus_per_node; }
};

// Holds the times of one step. compute_ms is that of the slowest GPU, if nothing but its own work
// kept it; data_ms is that of the all-reduces, if nothing held them up. The rest of the step is
// coordination, so every wait counts as coordination, wherever it is spent.
struct StepTimes {
  double step_ms = 0;
  double compute_ms = 0;
  double data_ms = 0;
  double order_messages = 0;
  double coordinator_bytes = 0;  // bytes that the coordinator sends and receives

  double coordination_ms() const { return step_ms - compute_ms - data_ms; }
};

struct RunResult {
  RunSpec spec;
  StepTimes mean;  // over all steps
  double images_per_s = 0;
  double vs_linear = 0;  // relative to as many GPUs that each keep the pace of one alone
  double vs_baseline =
      0;  // images a second over the baseline's in a run that is otherwise the same

  double coordination_share() const { return mean.coordination_ms() / mean.step_ms; }
};

// Returns the time of one GPU that nothing disturbs, by the images that it has in a step.
double compute_ms(const RunSpec& spec, double images);
double images_per_gpu(const RunSpec& spec);
// Returns the sizes of the batches of fused gradients, in bytes, from the last layer's on.
// `look_ahead` says whether a batch may take a later tensor past one that does not fit.
std::vector<int64_t> fused_bytes(const Network& network, int64_t threshold, bool look_ahead);

// Runs the simulation. Equal specs give equal results.
RunResult run(const RunSpec& spec);
// Does the same when the baseline's speed is known already.
RunResult run(const RunSpec& spec, double baseline_images_per_s);

}  // namespace rueda::scale
