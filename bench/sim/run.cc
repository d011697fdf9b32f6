#include "bench/sim/run.h"

#include <algorithm>
#include <deque>

#include "bench/sim/fabric.h"
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

constexpr double StepTimes::*kFields[] = {
    &StepTimes::step_ms,        &StepTimes::compute_ms,       &StepTimes::background_ms,
    &StepTimes::copy_ms,        &StepTimes::allreduce_ms,     &StepTimes::data_ms,
    &StepTimes::order_messages, &StepTimes::coordinator_bytes};

StepTimes mean_of_steps(const RunSpec& spec) {
  Random random(seed_of(spec));
  StepTimes sum;
  for (int step = 0; step < spec.steps; ++step) {
    const StepTimes one =
        is_service(spec.mode) ? service_step(spec, random) : horovod_step(spec, random);
    for (const auto field : kFields) sum.*field += one.*field;
  }
  for (const auto field : kFields) sum.*field /= spec.steps;
  return sum;
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
  if (!spec.strong) return spec.parameters.weak_batch;
  return static_cast<double>(spec.parameters.strong_global_batch) / spec.gpus;
}

double compute_ms(const RunSpec& spec, double images) {
  const Network& network = *spec.network;
  const double whole = network.batch / (network.images_per_s * spec.parameters.gpu_speed) * 1e3;
  const double fixed = spec.parameters.fixed_compute;
  return whole * (fixed + (1 - fixed) * images / network.batch);
}

DataTimes data_times(const RunSpec& spec) {
  if (spec.gpus == 1) return {};
  const Parameters& p = spec.parameters;
  const Fabric fabric(p, spec.nodes());
  DataTimes times;
  const bool look_ahead = spec.mode != Mode::kTopo;
  for (const int64_t bytes :
       fused_bytes(*spec.network, p.fusion_bytes, look_ahead, p.gradient_bytes)) {
    times.allreduce_ms += fabric.allreduce_ms(bytes, spec.gpus_per_node);
    // Into the buffer and back; each copy reads and writes.
    times.copy_ms += 4 * static_cast<double>(bytes) / 1e6 / p.memory_GBps;
  }
  times.copy_ms += 2 * static_cast<double>(spec.network->tensors.size()) * p.copy_us / 1e3;
  return times;
}

Work draw_work(const RunSpec& spec, double longer, Random& random) {
  const Parameters& p = spec.parameters;
  const double alone = compute_ms(spec, images_per_gpu(spec));
  const Delay held_up{spec.held_up ? p.held_up * spec.lis() : 0, p.held_up_ms, p.longest_delay_ms};
  Work work;
  work.window_ms = alone * spec.lis();
  work.needs_ms.reserve(static_cast<size_t>(spec.gpus));
  double sum = 0;
  for (int rank = 0; rank < spec.gpus; ++rank) {
    const double own = alone * (1 + p.compute_variation * random.normal());
    sum += own;
    // A process alone moves nothing, so there is nothing that it could be late for.
    const double late = spec.gpus > 1 ? held_up.quantile(random.uniform()) : 0;
    work.needs_ms.push_back(own + late + work.window_ms * longer);
  }
  work.mean_own_ms = sum / spec.gpus;
  return work;
}

std::vector<int64_t> fused_bytes(const Network& network, int64_t threshold, bool look_ahead,
                                 int width) {
  std::deque<core::FusionUnit> queue;
  for (auto tensor = network.tensors.rbegin(); tensor != network.tensors.rend(); ++tensor) {
    core::TensorDescriptor descriptor;
    descriptor.shape = {*tensor};
    descriptor.dtype = width == 2 ? DType::kFloat16 : DType::kFloat32;
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
  const double images = spec.parameters.weak_batch;
  const double alone = images / compute_ms(spec, images) * 1e3;
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
