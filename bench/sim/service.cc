#include "bench/sim/service.h"

#include <algorithm>
#include <cmath>

#include "bench/sim/fabric.h"

namespace rueda::scale {
namespace {

// Describes the job's control links (daemon/core/model/tree.h) as a round of the mode `cached` uses
// them: the coordinator asks, all nodes report, and it says what is next. Each child gets one
// message down; reports are passed on one by one.
struct Round {
  int children = 0;  // the coordinator's children
  int depth = 0;     // the depth of the node that is furthest away
  int64_t hops = 0;  // hops of all reports

  Round(const Parameters& p, int nodes) {
    const int64_t fan_in = nodes > p.tree_threshold ? p.tree_fan_in : nodes;
    children = static_cast<int>(std::min<int64_t>(fan_in, nodes - 1));
    int64_t left = nodes - 1;
    for (int64_t width = fan_in; left > 0; width *= fan_in) {
      hops += std::min(width, left) * ++depth;
      left -= std::min(width, left);
    }
  }
};

}  // namespace

StepTimes service_step(const RunSpec& spec, Random& random) {
  const Parameters& p = spec.parameters;
  const int nodes = spec.nodes();
  const Fabric fabric(p, nodes);
  const double alone = compute_ms(spec, images_per_gpu(spec));
  StepTimes times;
  times.compute_ms = alone * (1 + p.compute_variation * largest_normal(spec.gpus, random));
  for (const int64_t bytes : fused_bytes(*spec.network, p.fusion_bytes, true)) {
    if (spec.gpus > 1) times.data_ms += fabric.allreduce_ms(bytes, spec.gpus_per_node);
  }
  // The training processes lack the core that the daemon has.
  const double fewer = static_cast<double>(p.daemon_cores) / (p.cores - p.daemon_cores);
  const Delay own{1, p.own_core_delay_us / 1e3, p.longest_delay_ms};
  double coordination = alone * spec.lis() * fewer;
  coordination += p.wake_us / 1e3 + own.largest_of(nodes, random);
  if (spec.mode == Mode::kCached && nodes > 1) {
    const Round round(p, nodes);
    // The coordinator takes the reports one after another; down the tree each node tells one child
    // after another.
    const double handled = nodes - 1 + round.children * (1 + round.depth);
    coordination += random.uniform() * p.node_cycle_ms + p.message_us * handled / 1e3 +
                    2 * round.depth * fabric.latency_ms();
    times.order_messages = static_cast<double>(round.hops) + 2.0 * (nodes - 1);
    const double tensors = static_cast<double>(spec.network->tensors.size());
    const double report = 24 + 8 * std::ceil(tensors / 64);
    times.coordinator_bytes = (nodes - 1) * report + round.children * (16 + 40 + 4 * tensors);
  }
  times.step_ms = times.compute_ms + times.data_ms + coordination;
  return times;
}

}  // namespace rueda::scale
