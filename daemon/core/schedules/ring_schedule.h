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
// from the root, a reduction up to the root; in a scatter what goes farthest goes first, in a
// gather what comes from farthest. There no link carries more than the root itself must send, or
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

// The i-th of `parts` nearly equal parts; the first ones may have one element more.
ElementRange nearly_equal_part(ElementRange whole, int64_t i, int64_t parts);

// How one operation is cut. Every node computes the same one from the batch and the job's layout.
class RingCut {
 public:
  // Into nearly equal shards. elements >= 0, shards >= 1, max_chunk_elements >= 1. There is at
  // least one piece, so that an operation without elements still goes round (a barrier).
  RingCut(int64_t elements, int shards, int64_t max_chunk_elements);
  // Into these, by round. The rounds' pieces follow each other; each round has as many shards, 1 or
  // more, and likewise at least one piece.
  RingCut(const std::vector<std::vector<ElementRange>>& rounds, int64_t max_chunk_elements);
  // One more round, behind the last, of a cut that was made with rounds.
  void add_round(const std::vector<ElementRange>& shards, int64_t max_chunk_elements);

  int64_t elements() const { return elements_; }
  int shards() const { return shards_; }
  int64_t pieces() const { return pieces_; }
  int64_t chunks() const { return pieces_ * shards_; }
  int round_of(int64_t piece) const;
  // The elements of chunk `piece` of shard `shard`; may be empty.
  ElementRange chunk(int64_t piece, int shard) const;
  // The same, of the chunk with number piece * shards + shard.
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
  std::vector<Round> rounds_;  // none: a single one, of equal shards
};

enum class RingPhase : uint8_t { kReduce, kGather };

// The way of a chunk.
struct Route {
  NodeIndex origin{0};
  int reduce_hops = 0;      // so many nodes behind the origin add theirs; then it is final
  int hops = 0;             // steps from node to node, in all; 0: it never leaves
  bool is_for_all = false;  // whoever has the final values keeps them; else the last node alone

  RingPhase first_phase() const {
    return reduce_hops > 0 ? RingPhase::kReduce : RingPhase::kGather;
  }
  NodeIndex last(int nodes) const { return NodeIndex{(origin.value + hops) % nodes}; }
};

// nodes >= 1; `root`, a node, where the kind has one; `round` of RingCut.
Route route_of(CollectiveKind kind, int nodes, NodeIndex root, int round, int shard);
// What RingCut must have of it.
int rounds_of(CollectiveKind kind, int nodes);
constexpr int shards_of(CollectiveKind kind, int nodes) { return has_root(kind) ? 1 : nodes; }

// How many steps a chunk has taken when it arrives at the node in this phase; none: it never does.
std::optional<int> steps_taken(const Route& route, RingPhase phase, NodeIndex node, int nodes);

// What a node does with a chunk that has arrived.
struct RingStep {
  bool adds = false;      // its own partial sum, first
  bool is_final = false;  // then
  bool keeps = false;     // the final values
  bool forwards = false;  // to the next node

  RingPhase phase() const { return is_final ? RingPhase::kGather : RingPhase::kReduce; }
};
// It can have arrived (checked).
RingStep ring_step(const Route& route, RingPhase phase, NodeIndex node, int nodes);

}  // namespace rueda::core
