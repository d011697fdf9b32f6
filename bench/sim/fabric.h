// Says how long messages take between nodes when nothing holds them up: a fat tree of switches
// (Leiserson 1985), and all-reduces by Hockney's model over it.
#pragma once

#include <cstdint>

#include "bench/sim/parameters.h"

namespace rueda::scale {

class Fabric {
 public:
  Fabric(const Parameters& parameters, int nodes);

  // Returns the time of a small message, one way, between nodes that have only the tree's root in
  // common.
  double latency_ms() const { return latency_ms_; }
  // Returns the time for a few bytes to go from all of `participants` to one, and back to all,
  // along a binomial tree.
  double synchronisation_ms(int64_t participants) const;
  // Returns the time of an all-reduce: within the nodes, then round a ring of the nodes (Patarasuk
  // and Yuan 2009), then within the nodes again. Short ones use recursive doubling (Thakur,
  // Rabenseifner and Gropp 2005, section 4.1).
  double allreduce_ms(int64_t bytes, int gpus_per_node) const;

 private:
  const Parameters parameters_;
  const int nodes_;
  double latency_ms_ = 0;
};

// Returns ceil(log2 n), the rounds of a binomial tree; n >= 1.
int rounds_of_tree(int64_t n);

}  // namespace rueda::scale
