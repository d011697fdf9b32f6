#include "bench/sim/fabric.h"

#include <bit>

namespace rueda::scale {

int rounds_of_tree(int64_t n) { return n <= 1 ? 0 : std::bit_width(static_cast<uint64_t>(n - 1)); }

Fabric::Fabric(const Parameters& parameters, int nodes) : parameters_(parameters), nodes_(nodes) {
  int levels = 1;
  for (int64_t reach = parameters.switch_ports_down; reach < nodes;
       reach *= parameters.switch_ports_down) {
    ++levels;
  }
  latency_ms_ = (parameters.nic_us + (2 * levels - 1) * parameters.switch_us) / 1e3;
}

double Fabric::synchronisation_ms(int64_t participants) const {
  return 2 * rounds_of_tree(participants) * latency_ms_;
}

double Fabric::allreduce_ms(int64_t bytes, int gpus_per_node) const {
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  double ms = 0;
  if (gpus_per_node > 1) {
    const double share = 2.0 * (gpus_per_node - 1) / gpus_per_node;
    ms += share * gigabytes / parameters_.local_bandwidth_GBps * 1e3;
  }
  if (nodes_ == 1) return ms;
  const double once_ms = gigabytes / parameters_.bandwidth_GBps * 1e3;
  const double software_ms = parameters_.ring_hop_us / 1e3;
  if (bytes <= parameters_.short_bytes) {
    return ms + rounds_of_tree(nodes_) * (latency_ms_ + software_ms + once_ms);
  }
  // Nodes that are neighbours in the ring are neighbours in the tree, with one switch between them.
  const double hop_ms = (parameters_.nic_us + parameters_.switch_us) / 1e3 + software_ms;
  const double hops = 2.0 * (nodes_ - 1);
  return ms + hops * hop_ms + hops / nodes_ * once_ms;
}

}  // namespace rueda::scale
