// The least that an all-reduce of a node service costs on this machine: the passes over the ranks'
// memory and the bytes between the nodes, all at once, by a bare program that waits for nothing
// else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/machine/link.h"

namespace rueda::bench {

struct FloorWork {
  int nranks = 1;
  int nnodes = 1;             // at most as many as ranks
  std::vector<Place> places;  // one a node; empty: loopback
  std::string congestion;     // empty: the system's
  uint64_t bytes = 0;         // of each rank's buffer of float32
  int iters = 0;
};

struct FloorTime {
  double time_us = 0;                  // median
  std::optional<double> cpu_s_per_GB;  // nothing for no bytes
};

// On each node: every rank's buffer is read once and the sum is written to each of them, in chunks
// that stay in cache; and, at the same time, 2(n-1)/n of the bytes go to the next node and as many
// come from the one before. What must wait for what is left out, so nothing that must wait is
// faster. Throws Failure.
FloorTime measure_floor(const FloorWork& work);

// How many ranks each node has: the first nodes get one more.
std::vector<int> ranks_by_node(int nranks, int nnodes);

}  // namespace rueda::bench
