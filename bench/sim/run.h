// Makes one run of the simulator: a number of GPUs, a network, and a way to coordinate, with their
// results.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/sim/networks.h"
#include "bench/sim/parameters.h"
#include "bench/sim/random.h"

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
  // Whether the input pipeline holds up graph scheduling. Without it a training process has no
  // imbalance but that of the GPUs and of the background threads.
  bool held_up = true;
  Parameters parameters;

  double lis() const { return network->lis + lis_change; }
  int nodes() const { return (gpus + gpus_per_node - 1) / gpus_per_node; }
};

// Holds the times of one step, as the mean GPU sees them: its own work, if nothing disturbs it;
// then the background thread's time, until the GPU's own data operations are launched; then copies
// into the fusion buffer and back; then the all-reduces, with the wait for GPUs that launch later.
// These four make up the step, as in figures 4, 5 and 11 of the paper.
struct StepTimes {
  double step_ms = 0;
  double compute_ms = 0;
  double background_ms = 0;
  double copy_ms = 0;
  double allreduce_ms = 0;
  double data_ms = 0;  // copies and all-reduces, if nothing holds them up
  double order_messages = 0;
  double coordinator_bytes = 0;  // bytes that the coordinator sends and receives

  // Every wait counts as coordination, wherever it is spent.
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
// Returns the time of copies into the fusion buffer and back, and of the all-reduces, if all GPUs
// launch them at once; both are 0 for one GPU.
struct DataTimes {
  double copy_ms = 0;
  double allreduce_ms = 0;
};
DataTimes data_times(const RunSpec& spec);
// Holds the work of all ranks in a step, in milliseconds of virtual time from its beginning.
struct Work {
  std::vector<double> needs_ms;  // until a rank's gradients are there, if no thread spins beside it
  double mean_own_ms = 0;        // of the GPUs' own part of it, over the ranks
  double window_ms = 0;          // how much, at the beginning, is in the window of susceptibility
};
// Draws a step's work. `longer` is how much longer work in the window takes, as a share.
Work draw_work(const RunSpec& spec, double longer, Random& random);
// Returns the sizes of the batches of fused gradients, in bytes, from the last layer's on, of
// elements that have `width` bytes (2 or 4). `look_ahead` says whether a batch may take a later
// tensor past one that does not fit.
std::vector<int64_t> fused_bytes(const Network& network, int64_t threshold, bool look_ahead,
                                 int width);

// Runs the simulation. Equal specs give equal results.
RunResult run(const RunSpec& spec);
// Does the same when the baseline's speed is known already.
RunResult run(const RunSpec& spec, double baseline_images_per_s);

}  // namespace rueda::scale
