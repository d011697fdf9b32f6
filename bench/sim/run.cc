#include "bench/sim/run.h"

#include <algorithm>
#include <deque>

#include "bench/sim/horovod.h"
#include "bench/sim/service.h"
#include "daemon/core/messages/fusion.h"

namespace rueda::scale {
namespace {

struct Named {
  Mode mode;
  const char* name;
};
constexpr Named kModes[] = {
    {Mode::kBaseline, "baseline"},
    {Mode::kCached, "cached"},
    {Mode::kGlobalSleep, "global-sleep"},
    {Mode::kNonblocking, "nonblocking"},
    {Mode::kScp, "scp"},
    {Mode::kTopo, "topo"},
    {Mode::kLocked, "locked"},
};

// Returns a seed that depends on size, mode and network, so that each of them draws numbers of its
// own, whatever ran before.
uint64_t seed_of(const RunSpec& spec) {
  uint64_t seed = spec.seed * 0x9e3779b97f4a7c15;
  seed ^= static_cast<uint64_t>(spec.gpus) << 20;
  seed ^= static_cast<uint64_t>(spec.mode) << 8;
  return seed ^ static_cast<uint64_t>(spec.network - networks().data());
}

StepTimes mean_of_steps(const RunSpec& spec) {
  Random random(seed_of(spec));
  StepTimes sum;
  for (int step = 0; step < spec.steps; ++step) {
    const StepTimes one =
        is_service(spec.mode) ? service_step(spec, random) : horovod_step(spec, random);
    sum.step_ms += one.step_ms;
    sum.compute_ms += one.compute_ms;
    sum.data_ms += one.data_ms;
    sum.order_messages += one.order_messages;
    sum.coordinator_bytes += one.coordinator_bytes;
  }
  const double steps = spec.steps;
  return {sum.step_ms / steps, sum.compute_ms / steps, sum.data_ms / steps,
          sum.order_messages / steps, sum.coordinator_bytes / steps};
}

double images_per_s(const RunSpec& spec, const StepTimes& mean) {
  return images_per_gpu(spec) * spec.gpus / mean.step_ms * 1e3;
}

}  // namespace

const char* to_string(Mode mode) {
  for (const Named& each : kModes) {
    if (each.mode == mode) return each.name;
  }
  return "unknown";
}

std::optional<Mode> parse_mode(const std::string& name) {
  for (const Named& each : kModes) {
    if (name == each.name) return each.mode;
  }
  return std::nullopt;
}

const std::vector<Mode>& all_modes() {
  static const std::vector<Mode> all{Mode::kBaseline, Mode::kGlobalSleep, Mode::kNonblocking,
                                     Mode::kScp,      Mode::kTopo,        Mode::kCached,
                                     Mode::kLocked};
  return all;
}

bool is_service(Mode mode) { return mode == Mode::kCached || mode == Mode::kLocked; }

double images_per_gpu(const RunSpec& spec) {
  if (!spec.strong) return spec.network->batch;
  return static_cast<double>(spec.parameters.strong_global_batch) / spec.gpus;
}

double compute_ms(const RunSpec& spec, double images) {
  const Network& network = *spec.network;
  const double whole = network.batch / (network.images_per_s * spec.parameters.gpu_speed) * 1e3;
  const double fixed = spec.parameters.fixed_compute;
  return whole * (fixed + (1 - fixed) * images / network.batch);
}

std::vector<int64_t> fused_bytes(const Network& network, int64_t threshold, bool look_ahead) {
  std::deque<core::FusionUnit> queue;
  for (auto tensor = network.tensors.rbegin(); tensor != network.tensors.rend(); ++tensor) {
    core::TensorDescriptor descriptor;
    descriptor.shape = {*tensor};
    queue.push_back({{std::make_shared<const core::TensorDescriptor>(std::move(descriptor))}});
  }
  std::vector<int64_t> batches;
  while (!queue.empty()) {
    if (look_ahead) {
      int64_t bytes = 0;
      for (const auto& tensor : core::take_batch(queue, {threshold, queue.size()})) {
        bytes += tensor->bytes();
      }
      batches.push_back(bytes);
      continue;
    }
    int64_t bytes = queue.front().tensors.front()->bytes();
    queue.pop_front();
    while (!queue.empty() && bytes + queue.front().tensors.front()->bytes() <= threshold) {
      bytes += queue.front().tensors.front()->bytes();
      queue.pop_front();
    }
    batches.push_back(bytes);
  }
  return batches;
}

RunResult run(const RunSpec& spec, double baseline_images_per_s) {
  RunResult result{spec, mean_of_steps(spec)};
  result.images_per_s = images_per_s(spec, result.mean);
  const double alone = spec.network->batch / compute_ms(spec, spec.network->batch) * 1e3;
  result.vs_linear = result.images_per_s / (alone * spec.gpus);
  result.vs_baseline = result.images_per_s / baseline_images_per_s;
  return result;
}

RunResult run(const RunSpec& spec) {
  RunSpec baseline = spec;
  baseline.mode = Mode::kBaseline;
  return run(spec, images_per_s(baseline, mean_of_steps(baseline)));
}

}  // namespace rueda::scale
