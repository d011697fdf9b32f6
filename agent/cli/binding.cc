#include "agent/cli/binding.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include <hwloc.h>

namespace rueda::agent {
namespace {

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

struct Core {
  int numa_node = 0;  // hwloc's logical number of the node
  std::vector<int> cpus;
};

std::vector<int> cpus_of(hwloc_const_bitmap_t bitmap) {
  std::vector<int> cpus;
  for (int cpu = hwloc_bitmap_first(bitmap); cpu >= 0; cpu = hwloc_bitmap_next(bitmap, cpu)) {
    cpus.push_back(cpu);
  }
  return cpus;
}

// Returns the machine's cores in hwloc's logical order, where neighbours are near each other. A
// core has only those of its CPUs that are in `allowed`, and is left out if none is.
std::vector<Core> cores_of(hwloc_topology_t topology, const std::set<int>& allowed) {
  std::vector<Core> cores;
  for (hwloc_obj_t object = nullptr;
       (object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, object)) != nullptr;) {
    Core core;
    for (const int cpu : cpus_of(object->cpuset)) {
      if (allowed.contains(cpu)) core.cpus.push_back(cpu);
    }
    if (core.cpus.empty()) continue;
    const int numa_node = hwloc_bitmap_first(object->nodeset);
    core.numa_node = std::max(numa_node, 0);
    cores.push_back(std::move(core));
  }
  return cores;
}

void append(std::vector<int>& into, const Core& core) {
  into.insert(into.end(), core.cpus.begin(), core.cpus.end());
}

// Returns how many of `ranks` each NUMA node gets: in proportion to its number of cores, and never
// more ranks than cores.
std::vector<int> deal_to_nodes(const std::vector<std::vector<Core>>& nodes, int ranks) {
  std::vector<int> out(nodes.size(), 0);
  for (int rank = 0; rank < ranks; ++rank) {
    size_t best = 0;
    for (size_t i = 1; i < nodes.size(); ++i) {
      // Returns the number of cores for each rank if the node got one more rank.
      const auto share = [&](size_t node) {
        return static_cast<double>(nodes[node].size()) / (out[node] + 1);
      };
      if (share(i) > share(best)) best = i;
    }
    ++out[best];
  }
  return out;
}

std::vector<std::vector<Core>> by_numa_node(const std::vector<Core>& cores) {
  std::vector<std::vector<Core>> nodes;
  for (const Core& core : cores) {
    if (nodes.empty() || nodes.back().front().numa_node != core.numa_node) nodes.emplace_back();
    nodes.back().push_back(core);
  }
  return nodes;
}

// Deals `groups` to `ranks` further ranks of `out`: each rank gets neighbouring groups, and nearly
// as many of them as every other rank.
void deal(const std::vector<std::vector<Core>>& groups, int ranks, Binding& out) {
  const auto count = static_cast<size_t>(ranks);
  for (size_t rank = 0; rank < count; ++rank) {
    std::vector<int>& cpus = out.ranks.emplace_back();
    for (size_t i = groups.size() * rank / count; i < groups.size() * (rank + 1) / count; ++i) {
      for (const Core& core : groups[i]) append(cpus, core);
    }
    std::sort(cpus.begin(), cpus.end());
  }
}

}  // namespace

void Topology::Destroy::operator()(hwloc_topology* topology) const {
  hwloc_topology_destroy(topology);
}

Result<Topology> Topology::of_machine() {
  hwloc_topology_t made = nullptr;
  if (hwloc_topology_init(&made) != 0) {
    return Status(Code::kResourceExhausted, "hwloc cannot begin: " + std::string(strerror(errno)));
  }
  Owner topology(made);
  if (hwloc_topology_load(made) != 0) {
    return Status(Code::kUnavailable,
                  "hwloc cannot tell what cores there are: " + std::string(strerror(errno)));
  }
  return Topology(std::move(topology));
}

int daemon_cores(int cores) { return std::clamp(cores / 8, 1, 4); }

Result<Binding> bind_cores(const Topology& topology, const std::vector<int>& allowed,
                           const std::vector<int>& daemon, int ranks) {
  std::vector<Core> cores = cores_of(topology.get(), {allowed.begin(), allowed.end()});
  const auto all_cores = static_cast<int>(cores.size());
  Binding out;
  out.daemon = daemon;
  if (daemon.empty()) {
    const int count = std::min(daemon_cores(all_cores), all_cores);
    for (auto core = cores.end() - count; core != cores.end(); ++core) append(out.daemon, *core);
    std::sort(out.daemon.begin(), out.daemon.end());
    cores.resize(static_cast<size_t>(all_cores - count));
  } else {
    const std::set<int> taken(daemon.begin(), daemon.end());
    std::erase_if(cores, [&](const Core& core) {
      return std::any_of(core.cpus.begin(), core.cpus.end(),
                         [&](int cpu) { return taken.contains(cpu); });
    });
  }
  if (static_cast<int>(cores.size()) < ranks) {
    return Status(Code::kResourceExhausted,
                  std::to_string(all_cores) + (all_cores == 1 ? " core is" : " cores are") +
                      " too few for a daemon and " + std::to_string(ranks) +
                      (ranks == 1 ? " rank" : " ranks") + " with one each");
  }
  const std::vector<std::vector<Core>> nodes = by_numa_node(cores);
  if (ranks < static_cast<int>(nodes.size())) {
    deal(nodes, ranks, out);
    return out;
  }
  const std::vector<int> ranks_of = deal_to_nodes(nodes, ranks);
  for (size_t i = 0; i < nodes.size(); ++i) {
    std::vector<std::vector<Core>> single;
    for (const Core& core : nodes[i]) single.push_back({core});
    deal(single, ranks_of[i], out);
  }
  return out;
}

}  // namespace rueda::agent
