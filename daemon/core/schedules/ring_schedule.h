// Collectives on a ring of nodes as data. What an operation moves is cut into chunks that travel
// independently, so that receiving, adding and sending overlap; each chunk has a route: where it
// begins, how far it goes round the ring, and what is done with it on its way.
//
// The all-reduce is reduce-scatter, then all-gather (Patarasuk and Yuan 2009): its elements are cut
// into a shard for each node, and each shard into chunks. The chunk of shard j starts at node j
// with that node's partial sum, and is added to at nodes j+1, j+2, ... ; at node j-1, its owner, it
// is final, and travels on round the ring, j, j+1, ... , j-2, so that everybody has it. The order
// of additions to an element depends on its shard alone: not on the size of the chunks, nor on
// timing. A reduce-scatter is the first half of that, an all-gather the second.
//
// In an all-to-all what goes equally far is a round of its own, the farthest first. Where one rank
// is the root, there is a single chain of nodes, and one chunk a piece: a broadcast goes down it
// from the root, a reduction up to the root. In a scatter what goes farthest goes first, in a
// gather what comes from farthest. In these no link carries more than the root itself must send, or
// take.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/base/dtype.h"
#include "daemon/base/ids.h"
#include "daemon/base/parts.h"

namespace rueda::core {

using rueda::ElementRange;

// Returns the i-th of `parts` nearly equal parts; the first ones may have one element more.
ElementRange nearly_equal_part(ElementRange whole, int64_t i, int64_t parts);

// The cut of one operation. Every node computes the same one from the batch and the job's layout.
class RingCut {
 public:
  // Cuts into nearly equal shards, with elements >= 0, shards >= 1 and max_chunk_elements >= 1.
  // There is at least one piece, so that an operation without elements still goes round (a
  // barrier).
  RingCut(int64_t elements, int shards, int64_t max_chunk_elements);
  // Cuts into these shards, by round. The rounds' pieces follow each other. All rounds must have
  // the same number of shards, at least 1. Each round has at least one piece.
  RingCut(const std::vector<std::vector<ElementRange>>& rounds, int64_t max_chunk_elements);
  // Adds one more round behind the last, to a cut that was made with rounds.
  void add_round(const std::vector<ElementRange>& shards, int64_t max_chunk_elements);

  int64_t elements() const { return elements_; }
  int shards() const { return shards_; }
  int64_t pieces() const { return pieces_; }
  int64_t chunks() const { return pieces_ * shards_; }
  int round_of(int64_t piece) const;
  // Returns the elements of chunk `piece` of shard `shard`, of which there may be none.
  ElementRange chunk(int64_t piece, int shard) const;
  // Returns the elements of the chunk with number piece * shards + shard.
  ElementRange chunk_at(int64_t number) const {
    return chunk(number / shards_, static_cast<int>(number % shards_));
  }

 private:
  struct Round {
    int64_t first_piece;
    int64_t pieces;
    std::vector<ElementRange> shards;
  };

  int64_t elements_ = 0;
  int shards_;
  int64_t pieces_ = 0;
  std::vector<Round> rounds_;  // Without any, there is a single round of equal shards.
};

enum class RingPhase : uint8_t { kReduce, kGather };

// The way of a chunk round the ring.
struct Route {
  NodeIndex origin{0};
  int reduce_hops = 0;      // So many nodes behind the origin add to it; then it is final.
  int hops = 0;             // Steps from node to node, in all; 0: it never leaves.
  bool is_for_all = false;  // All nodes keep the final values; if false, the last alone.

  RingPhase first_phase() const {
    return reduce_hops > 0 ? RingPhase::kReduce : RingPhase::kGather;
  }
  NodeIndex last(int nodes) const { return NodeIndex{(origin.value + hops) % nodes}; }
};

// Returns the route of a chunk among `nodes` >= 1 nodes. `root` is a node, where the kind has one;
// `round` is of RingCut.
Route route_of(CollectiveKind kind, int nodes, NodeIndex root, int round, int shard);
// These return how many rounds and shards RingCut must have for the collective.
int rounds_of(CollectiveKind kind, int nodes);
constexpr int shards_of(CollectiveKind kind, int nodes) { return has_root(kind) ? 1 : nodes; }

// Returns how many steps a chunk has taken when it arrives at the node in this phase, or none if it
// never does.
std::optional<int> steps_taken(const Route& route, RingPhase phase, NodeIndex node, int nodes);

// The work of a node on a chunk that has arrived, in this order.
struct RingStep {
  bool adds = false;      // The node adds its own partial sum.
  bool is_final = false;  // The values are final after that.
  bool keeps = false;     // The node keeps the final values.
  bool forwards = false;  // The node sends the chunk to the next node.

  RingPhase phase() const { return is_final ? RingPhase::kGather : RingPhase::kReduce; }
};
// Returns the node's work on a chunk. It must be possible that the chunk has arrived (checked).
RingStep ring_step(const Route& route, RingPhase phase, NodeIndex node, int nodes);

}  // namespace rueda::core
