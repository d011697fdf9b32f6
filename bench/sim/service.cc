#include "bench/sim/service.h"

#include <cmath>

#include "bench/sim/fabric.h"

namespace rueda::scale {
namespace {

// Of the tree of control links: from the coordinator to the node that is furthest away.
int depth_of_tree(const Parameters& p, int nodes) {
  if (nodes <= 1) return 0;
  if (nodes <= p.tree_threshold) return 1;
  int depth = 0;
  for (int64_t reach = 1; reach < nodes; reach = reach * p.tree_fan_in + 1) ++depth;
  return depth;
}

// Mode `cached`: reports are not combined on their way, so the coordinator handles one of each
// node; what it says goes down the tree, a message a child.
double round_ms(const RunSpec& spec, const Fabric& fabric) {
  const Parameters& p = spec.parameters;
  const int nodes = spec.nodes();
  const int depth = depth_of_tree(p, nodes);
  const int children = nodes <= p.tree_threshold ? nodes - 1 : p.tree_fan_in;
  const double handled_us = p.message_us * (nodes - 1 + depth * children);
  return handled_us / 1e3 + 2 * depth * fabric.latency_ms();
}

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
  // The daemon's core is one that the training processes do not have.
  const double fewer = static_cast<double>(p.daemon_cores) / (p.cores - p.daemon_cores);
  const Delay own{1, p.own_core_delay_us / 1e3, p.longest_delay_ms};
  double coordination = alone * spec.lis() * fewer;
  coordination += p.wake_us / 1e3 + own.largest_of(nodes, random);
  if (spec.mode == Mode::kCached && nodes > 1) {
    const double bits = static_cast<double>(spec.network->tensors.size());
    coordination += random.uniform() * p.node_cycle_ms + round_ms(spec, fabric);
    times.order_messages = 2.0 * (nodes - 1);
    times.coordinator_bytes = 2.0 * (nodes - 1) * 8 * std::ceil(bits / 64);
  }
  times.step_ms = times.compute_ms + times.data_ms + coordination;
  return times;
}

}  // namespace rueda::scale
