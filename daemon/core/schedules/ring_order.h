// The order in which the nodes of a job stand in its ring. Nodes of a rack stand next to each
// other, so that the ring leaves each rack once; the freedom that is left is used to avoid slow
// links, where bandwidths have been measured. The result is deterministic. The coordinator decides,
// and tells the others with the start.
#pragma once

#include <string>
#include <vector>

namespace rueda::core {

// The bandwidth from each node to each other, in any unit; 0 where nothing came through. The
// diagonal is not looked at. It is empty if nothing has been measured.
using Bandwidths = std::vector<std::vector<double>>;

// Returns an order of the nodes 0 .. racks.size() - 1, of which there must be one at least; it
// begins with 0. `racks` has the name of each node's rack; a node with an empty name is in a rack
// of its own.
//
// Without bandwidths, racks are in the order of their first nodes, and nodes ascend. With them,
// that is so unless another order makes the slowest link faster by more than a quarter. Then the
// result is the cycle whose slowest link is the fastest, of these one with the largest sum, of
// these the first in lexicographic order. Up to 8 nodes it is the best there is. Up to 32 nodes it
// is a good one, found by choosing the fastest next link, and then reversing stretches and moving
// nodes; beyond that it is found by the first of these alone.
std::vector<int> ring_order(const std::vector<std::string>& racks, const Bandwidths& bandwidths);

}  // namespace rueda::core
