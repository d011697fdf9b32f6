// An operation that a data job has launched, and how far it has come on this node. It belongs to
// its data loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/base/yielding_wait.h"
#include "daemon/core/schedules/adasum_schedule.h"
#include "daemon/core/schedules/ring_schedule.h"
#include "daemon/engine/operation/adasum.h"
#include "daemon/engine/operation/operation.h"
#include "daemon/transport/frame.h"

namespace rueda::engine {

struct RunningOperation {
  // The ring has so many nodes.
  RunningOperation(std::unique_ptr<Operation> launched, core::RingCut cut_into, int nodes_of_ring)
      : operation(std::move(launched)), cut(std::move(cut_into)), nodes(nodes_of_ring) {}

  // Cuts the operation as a ring of so many nodes carries it out; `self` is this node. Its chunks
  // have so many bytes at most.
  static std::unique_ptr<RunningOperation> make(std::unique_ptr<Operation> launched,
                                                int nodes_of_ring, NodeIndex self,
                                                int64_t max_chunk_bytes);

  const std::unique_ptr<Operation> operation;
  const core::RingCut cut;
  const int nodes;                 // of the ring
  std::unique_ptr<Adasum> adasum;  // null for another operator
  double started_s = 0;
  int64_t elements_done = 0;         // on one node, or handed back at the end
  bool stores_late = false;          // its inputs are P: outputs are written when all of F is here
  bool is_diverged = false;          // the owner has been told that a neighbour means another batch
  bool launched_everywhere = false;  // the others have deadlines to keep only from then on
  bool awaits_turn = false;          // it goes round the ring, and on in one of the job's turns
  bool is_pairwise = false;          // it goes over the mesh, and what follows means nothing

  std::vector<uint16_t> due;   // by piece: the chunks that this node has yet to start or to receive
  std::vector<bool> received;  // by chunk, reduced then final: whether its frame has come
  std::vector<transport::FrameHeader> parked;  // frames whose round may not begin yet
  int64_t first_incomplete = 0;                // the first piece with a chunk that is due
  int64_t next_origin = 0;  // the piece that this node starts next, if it starts its chunk
  int rounds_done = 0;      // as the owner has been told

  // Returns whether one rank is the root, so that chunks go down a chain of nodes.
  bool is_chain() const { return has_root(operation->kind); }
  bool is_small() const { return operation->bytes() <= static_cast<int64_t>(kSmallBytes); }
  bool is_complete() const { return first_incomplete >= cut.pieces(); }
  int64_t piece_of(int64_t chunk) const { return chunk / cut.shards(); }
  core::Route route(int64_t piece, int shard) const {
    if (adasum) return adasum->schedule()->route(piece, shard);
    return core::route_of(operation->kind, nodes, operation->root_node, cut.round_of(piece), shard);
  }
  core::Route route(uint32_t chunk) const {
    return route(piece_of(chunk), static_cast<int>(chunk % static_cast<uint32_t>(cut.shards())));
  }
  // Returns which stage of an Adasum the chunk belongs to; kSum for any other operator.
  core::AdasumStage stage_of(int64_t chunk) const {
    if (!adasum) return core::AdasumStage::kSum;
    return adasum->schedule()->stage_of(piece_of(chunk));
  }
  // Returns the bytes of a chunk as it goes between nodes.
  size_t chunk_bytes(int64_t chunk) const;
  // Returns whether the piece's round may begin: the stage of an Adasum has come, or the round's
  // inputs are here.
  bool may_begin(int64_t piece) const {
    if (operation->rounds_here) {
      return cut.round_of(piece) < operation->rounds_here->load(std::memory_order_acquire);
    }
    return !adasum || adasum->may_begin(piece, first_incomplete);
  }
  // Returns whether a frame of the ring is due here that has not come. `self` is this node.
  bool awaits_frames(NodeIndex self) const;

  // Works out what is due on `self`, this node, before the first frame goes round the ring.
  void prepare_ring(NodeIndex self);
  // This node's part in one of the piece's chunks is done.
  void note_done(int64_t piece) {
    --due[static_cast<size_t>(piece)];
    skip_done();
  }
  // Notes that the frame has come.
  void note_received(const transport::FrameHeader& header) { received[index_of(header)] = true; }
  bool has_received(const transport::FrameHeader& header) const {
    return received[index_of(header)];
  }

 private:
  static size_t index_of(uint32_t chunk, core::RingPhase phase) {
    return size_t{chunk} * 2 + (phase == core::RingPhase::kReduce ? 0 : 1);
  }
  static size_t index_of(const transport::FrameHeader& header) {
    return size_t{header.chunk} * 2 + (header.kind == transport::FrameKind::kReduce ? 0 : 1);
  }
  void skip_done() {
    while (first_incomplete < cut.pieces() && due[static_cast<size_t>(first_incomplete)] == 0) {
      ++first_incomplete;
    }
  }
};

}  // namespace rueda::engine
