// Gives CPUs of their own to a node's daemon and to each of its ranks, so that neither runs on the
// other's. It is the counterpart of SCP, static CPU resource partitioning, which gives each
// component of a training process cores of its own (S. Pumma et al., "Alleviating Load Imbalance in
// Data Processing for Large-Scale Deep Learning", CCGrid 2020, IV-C); the components inside a rank
// are not told apart here. CPUs are dealt by cores, and as far as possible by NUMA node. The
// functions are pure, except for Topology::of_machine().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "daemon/base/status.h"

struct hwloc_topology;

namespace rueda::agent {

// The cores, their CPUs and the NUMA nodes, as hwloc describes them.
class Topology {
 public:
  static Result<Topology> of_machine();

  hwloc_topology* get() const { return topology_.get(); }

 private:
  struct Destroy {
    void operator()(hwloc_topology* topology) const;
  };
  using Owner = std::unique_ptr<hwloc_topology, Destroy>;

  explicit Topology(Owner topology) : topology_(std::move(topology)) {}

  Owner topology_;
};

struct Binding {
  std::vector<int> daemon;              // CPUs, like all numbers here
  std::vector<std::vector<int>> ranks;  // by local rank; whole cores
};

// Returns the number of cores for a daemon: one for each eight, at most 4.
int daemon_cores(int cores);

// Divides the CPUs in `allowed`. The daemon gets the last cores, or keeps to `daemon` if that is
// not empty; a core that the daemon uses is given to no rank. The other cores are dealt to the
// ranks evenly within a NUMA node: a rank has cores of several nodes only if there are more nodes
// than ranks. Returns kResourceExhausted when there is not at least one core for each.
Result<Binding> bind_cores(const Topology& topology, const std::vector<int>& allowed,
                           const std::vector<int>& daemon, int ranks);

}  // namespace rueda::agent
