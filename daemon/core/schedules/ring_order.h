// In which order the nodes of a job stand in its ring. Nodes of a rack stand next to each other, so
// that the ring leaves each rack once; what freedom that leaves is used to avoid slow links, where
// bandwidths have been measured. Deterministic. The coordinator decides, and tells the others with
// the start.
#pragma once

#include <string>
#include <vector>

namespace rueda::core {

// By node, from and to: in any unit, 0 where nothing came through; the diagonal is not looked at.
// Empty: nothing has been measured.
using Bandwidths = std::vector<std::vector<double>>;

// An order of the nodes 0 .. racks.size() - 1, of which there is one at least; begins with 0.
// `racks`: by node, a name; empty: the node is in a rack of its own.
//
// Without bandwidths, racks in the order of their first nodes, and nodes ascending. With them, if
// that makes the slowest link faster by more than a quarter: the cycle whose slowest link is the
// fastest, of these one with the largest sum, of these the first in lexicographic order: up to 8
// nodes the best there is; up to 32 a good one, found by choosing the fastest next link, and then
// reversing stretches and moving nodes; beyond that by the first of these alone.
std::vector<int> ring_order(const std::vector<std::string>& racks, const Bandwidths& bandwidths);

}  // namespace rueda::core
