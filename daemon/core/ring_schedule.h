// The ring all-reduce as data: reduce-scatter, then all-gather (Patarasuk and Yuan 2009), cut in
// chunks that travel independently, so that receiving, adding and sending overlap.
//
// The elements of an operation are cut into `nodes` shards, and each shard into `pieces` chunks.
// The chunk of shard j starts at node j with that node's partial sum (distance 0), and is added to
// at nodes j+1, j+2, ... ; at node j-1 (distance nodes-1), its owner, it is final, and travels on
// round the ring, j, j+1, ... , j-2, so that everybody has it. The order of additions to an element
// depends on its shard alone: not on the size of the chunks, nor on timing.
#pragma once

#include <cstdint>

#include "daemon/base/check.h"
#include "daemon/base/ids.h"

namespace rueda::core {

struct ElementRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t count() const { return end - begin; }
};

// How one operation is cut. Every node computes the same one from the batch and the job's layout.
class RingCut {
 public:
  // elements >= 0, nodes >= 1, max_chunk_elements >= 1. There is at least one piece, so that an
  // operation without elements still goes round (a barrier).
  RingCut(int64_t elements, int nodes, int64_t max_chunk_elements);

  int64_t elements() const { return elements_; }
  int nodes() const { return nodes_; }
  int64_t pieces() const { return pieces_; }
  int64_t chunks() const { return pieces_ * nodes_; }
  // The elements of chunk `piece` of shard `shard`; may be empty.
  ElementRange chunk(int64_t piece, int shard) const;
  // The same, of the chunk with number piece * nodes + shard.
  ElementRange chunk_at(int64_t number) const {
    return chunk(number / nodes_, static_cast<int>(number % nodes_));
  }

 private:
  int64_t elements_;
  int nodes_;
  int64_t pieces_;
};

enum class RingPhase : uint8_t { kReduce, kGather };

// What a node does with a frame of a chunk.
enum class RingAction : uint8_t {
  kAddAndForward,    // add my partial sum, send on as kReduce
  kAddAndFinish,     // add mine: it is final; keep it, send on as kGather
  kStoreAndForward,  // it is final: keep it, send on
  kStore,            // it is final: keep it; the next node has it already
};

// Steps from the shard's origin to the node, 0 to nodes - 1.
constexpr int ring_distance(int shard, NodeIndex node, int nodes) {
  return (node.value - shard + nodes) % nodes;
}

// Whether the node starts the chunks of this shard. nodes >= 2.
constexpr bool ring_originates(int shard, NodeIndex node) { return node.value == shard; }

// A node never receives kReduce for a shard that it originates, nor kGather for one that it owns.
constexpr bool ring_may_receive(RingPhase phase, int shard, NodeIndex node, int nodes) {
  const int distance = ring_distance(shard, node, nodes);
  return phase == RingPhase::kReduce ? distance > 0 : distance < nodes - 1;
}

// nodes >= 2, and ring_may_receive() holds (checked).
RingAction ring_on_receive(RingPhase phase, int shard, NodeIndex node, int nodes);

// A broadcast is a chain from the root round the ring: whether the node passes a chunk on.
constexpr bool chain_forwards(NodeIndex root, NodeIndex node, int nodes) {
  return (node.value + 1) % nodes != root.value;
}

}  // namespace rueda::core
