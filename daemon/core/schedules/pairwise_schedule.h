// All-reduces that do not go round the ring, as data: nodes exchange messages in pairs, in few
// steps, where a ring of n nodes takes 2(n - 1). What is to be reduced is cut into blocks; a node
// begins with the sums of its own ranks in all of them, and runs through a program.
//
// - Recursive doubling: in step k with the node whose number differs in bit k, everything. log2(n)
//   steps, each with all bytes (Thakur, Rabenseifner and Gropp 2005, section 4.1).
// - Halving-doubling: in step k only the half that the other one is to own, then back the same way
//   (ibid.; Rabenseifner 2004). 2 log2(n) steps, 2 (n - 1) / n of the bytes.
//   The sums of both are those of a binary tree of nodes, the same for each element: the bits do
//   not depend on which of the two it is, nor on how an operation is cut. With n that is no power
//   of two, those beyond the largest one hand theirs to a node in it first, and get the result from
//   it.
// - Direct: each block to the node that owns it, which adds all at once, in the order of the nodes;
//   then from it to all. 2 steps, with messages to all others in each.
// - Central: all to node 0, and back, as to a parameter server: the baseline of the literature.
#pragma once

#include <vector>

#include "daemon/base/ids.h"
#include "daemon/core/schedules/algorithm.h"

namespace rueda::core {

// [begin, end) of the program's blocks.
struct BlockRange {
  int begin = 0;
  int end = 0;

  bool overlaps(const BlockRange& other) const { return begin < other.end && other.begin < end; }
  bool operator==(const BlockRange&) const = default;
};

struct PairwiseSend {
  NodeIndex to;
  BlockRange blocks;
  int after = 0;          // goes when so many of the node's receives are done, before the next
  bool is_final = false;  // values that need no more additions
};

// Done one after the other, in this order. The blocks must not be on their way out any more.
struct PairwiseReceive {
  NodeIndex from;
  BlockRange blocks;
  bool adds = false;  // else they take the place of what is there
  // Added together with the next one, of the same blocks, when both have come: the node's own
  // values and theirs in the order of the nodes.
  bool joins_next = false;
  bool becomes_final = false;
};

struct PairwiseProgram {
  int blocks = 1;
  std::vector<PairwiseSend> sends;
  std::vector<PairwiseReceive> receives;
};

// From one node to another go at most so many messages of a program.
inline constexpr int kMaxMessages = 2;

// Not of the ring. nodes >= 2.
PairwiseProgram make_exchange(Algorithm algorithm, int nodes, NodeIndex self);

// Whom the node sends something, and whom it receives something from, in one of these; ascending.
struct PairwisePeers {
  std::vector<NodeIndex> to;
  std::vector<NodeIndex> from;
};
PairwisePeers peers_of(const std::vector<Algorithm>& algorithms, int nodes, NodeIndex self);

}  // namespace rueda::core
