// CPUs of its own for a node's daemon and for each of its ranks, so that neither runs where the
// other does (what S. Pumma et al., "Alleviating Load Imbalance in Data Processing for Large-Scale
// Deep Learning", CCGrid 2020, call CPU partitioning, SCP). By cores, and as far as it can be by
// NUMA node. Pure but for Topology::of_machine().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "daemon/base/status.h"

struct hwloc_topology;

namespace rueda::agent {

// Cores, their CPUs and NUMA nodes, as hwloc knows them.
class Topology {
 public:
  static Result<Topology> of_machine();
  // In hwloc's words, such as "numa:2 core:4 pu:2".
  static Result<Topology> synthetic(const std::string& description);

  hwloc_topology* get() const { return topology_.get(); }

 private:
  struct Destroy {
    void operator()(hwloc_topology* topology) const;
  };
  using Owner = std::unique_ptr<hwloc_topology, Destroy>;

  static Result<Topology> load(const char* description);
  explicit Topology(Owner topology) : topology_(std::move(topology)) {}

  Owner topology_;
};

struct Binding {
  std::vector<int> daemon;              // CPUs, as all here
  std::vector<std::vector<int>> ranks;  // by local rank; whole cores
};

// How many cores a daemon is given: one for each eight, 4 at most.
int daemon_cores(int cores);

// What of the CPUs in `allowed` belongs to whom. The daemon gets the last cores, or keeps to
// `daemon` if that is not empty; of a core that it uses no rank gets anything. The others are dealt
// to the ranks evenly within a NUMA node: a rank has cores of several only if there are more of
// them than ranks. kResourceExhausted when there are too few cores for one each.
Result<Binding> bind_cores(const Topology& topology, const std::vector<int>& allowed,
                           const std::vector<int>& daemon, int ranks);

}  // namespace rueda::agent
