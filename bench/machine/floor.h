// Measures the least that an all-reduce of a node service costs on this machine: the passes over
// the ranks' memory and the bytes between the nodes, all at once, by a bare program that waits for
// nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/machine/link.h"

namespace rueda::bench {

struct FloorWork {
  int nranks = 1;
  int nnodes = 1;             // is at most the number of ranks
  std::vector<Place> places;  // one for each node; if empty, loopback
  std::string congestion;     // if empty, the system's choice
  uint64_t bytes = 0;         // of each rank's buffer of float32
  int iters = 0;
};

struct FloorTime {
  double time_us = 0;                  // the median
  std::optional<double> cpu_s_per_GB;  // nullopt if there are no bytes
};

// Measures the floor. On each node, every rank's buffer is read once and the sum is written to each
// of them, in chunks that stay in cache; at the same time, 2(n-1)/n of the bytes go to the next
// node and as many come from the one before. Waiting of one part for the other is left out, so
// nothing that has to wait can be faster. Throws Failure.
FloorTime measure_floor(const FloorWork& work);

// Returns how many ranks each node has; the first nodes get one more.
std::vector<int> ranks_by_node(int nranks, int nnodes);

}  // namespace rueda::bench
