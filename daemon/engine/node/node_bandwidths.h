// Holds what `ruedactl probe` has measured, as a daemon keeps it for the rings of jobs to come.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "daemon/core/model/layout.h"
#include "daemon/core/schedules/ring_order.h"

namespace rueda::engine {

struct NodeBandwidths {
  std::vector<std::string> node_ids;
  core::Bandwidths bytes_per_second;  // By node, from and to; 0 where nothing came through.

  // Returns the pairs of nodes, from and to, between which nothing came through.
  std::vector<std::pair<std::string, std::string>> unreachable() const;
  // Returns the bandwidths between the nodes of a layout, in its order. The error names a node that
  // was not measured.
  Result<core::Bandwidths> of(const core::Layout& layout) const;
};

// Returns an error unless there is each node once, and a row with a number for each node, none
// below 0.
Status check(const NodeBandwidths& bandwidths);

}  // namespace rueda::engine
