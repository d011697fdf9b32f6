// All-reduces that do not go round the ring, as data: nodes exchange messages in pairs, in few
// steps, where a ring of n nodes takes 2(n - 1). What is to be reduced is cut into blocks; a node
// begins with the sums of its own ranks in all of them, and runs through a program.
//
// - Recursive doubling: in step k a node exchanges everything with the node whose number differs in
//   bit k. That takes log2(n) steps, each with all bytes (Thakur, Rabenseifner and Gropp 2005,
//   section 4.1).
// - Halving-doubling: in step k a node sends only the half that the other one is to own, then the
//   results go back the same way (ibid.; Rabenseifner 2004). That takes 2 log2(n) steps and
//   2 (n - 1) / n of the bytes.
//   The sums of both are those of a binary tree of nodes, the same for each element: the bits do
//   not depend on which of the two it is, nor on how an operation is cut. If n is no power of two,
//   those beyond the largest one hand their values to a node in it first, and get the result from
//   it.
// - Central: the first `servers` nodes are servers, and each owns one block. All nodes push a block
//   to its server, which adds all at once, in the order of the nodes, and they pull the result from
//   there: the parameter servers of the literature (Li et al. 2014; Awan et al. 2019, section
//   III-A), which keep sums here and no weights. That takes 2 steps.
// - Direct: every node is a server.
#pragma once

#include <vector>

#include "daemon/base/ids.h"
#include "daemon/core/schedules/algorithm.h"

namespace rueda::core {

// The program's blocks from `begin` to before `end`.
struct BlockRange {
  int begin = 0;
  int end = 0;

  bool overlaps(const BlockRange& other) const { return begin < other.end && other.begin < end; }
  bool operator==(const BlockRange&) const = default;
};

struct PairwiseSend {
  NodeIndex to;
  BlockRange blocks;
  int after = 0;          // The send goes when so many receives are done, before the next one.
  bool is_final = false;  // The values sent need no more additions.
};

// A node does its receives one after the other, in this order. A receive waits until its blocks are
// not on their way out any more.
struct PairwiseReceive {
  NodeIndex from;
  BlockRange blocks;
  bool adds = false;  // If false, the values take the place of what is there.
  // The values are added together with those of the next receive, which has the same blocks, when
  // both have come: the node's own values and theirs, in the order of the nodes.
  bool joins_next = false;
  bool becomes_final = false;
};

struct PairwiseProgram {
  int blocks = 1;
  std::vector<PairwiseSend> sends;
  std::vector<PairwiseReceive> receives;
};

// The most messages of a program that go from one node to another.
inline constexpr int kMaxMessages = 2;

// Returns the node's program for an algorithm that is not the ring, among 2 or more nodes.
// `servers` is for kCentral; of fewer nodes than servers all are servers.
PairwiseProgram make_exchange(Algorithm algorithm, int nodes, NodeIndex self, int servers = 1);

// The nodes that a node sends something to, and those it receives something from, in one of several
// algorithms; both ascend.
struct PairwisePeers {
  std::vector<NodeIndex> to;
  std::vector<NodeIndex> from;
};
PairwisePeers peers_of(const std::vector<Algorithm>& algorithms, int nodes, NodeIndex self,
                       int servers = 1);

}  // namespace rueda::core
