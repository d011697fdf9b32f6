#include "daemon/engine/data/running_operation.h"

namespace rueda::engine {

std::unique_ptr<RunningOperation> RunningOperation::make(std::unique_ptr<Operation> launched,
                                                         int nodes_of_ring, NodeIndex self,
                                                         int64_t max_chunk_bytes) {
  std::unique_ptr<Adasum> adasum;
  if (launched->op == ReduceOp::kAdasum) {
    adasum = std::make_unique<Adasum>(*launched, nodes_of_ring, self, max_chunk_bytes);
  }
  const core::RingCut cut =
      adasum && adasum->schedule()
          ? adasum->schedule()->cut()
          : launched->cut(nodes_of_ring, max_chunk_bytes / launched->wire_bytes(1));
  auto running = std::make_unique<RunningOperation>(std::move(launched), cut, nodes_of_ring);
  running->adasum = std::move(adasum);
  return running;
}

size_t RunningOperation::chunk_bytes(int64_t chunk) const {
  const int64_t count = cut.chunk_at(chunk).count();
  if (stage_of(chunk) == core::AdasumStage::kShare) {
    return static_cast<size_t>(count) * sizeof(double);
  }
  return static_cast<size_t>(operation->wire_bytes(count));
}

bool RunningOperation::awaits_frames(NodeIndex self) const {
  for (uint32_t chunk = 0; chunk < cut.chunks(); ++chunk) {
    for (const core::RingPhase phase : {core::RingPhase::kReduce, core::RingPhase::kGather}) {
      if (!received[index_of(chunk, phase)] &&
          core::steps_taken(route(chunk), phase, self, nodes)) {
        return true;
      }
    }
  }
  return false;
}

void RunningOperation::prepare_ring(NodeIndex self) {
  due.resize(static_cast<size_t>(cut.pieces()));
  received.resize(static_cast<size_t>(cut.chunks()) * 2);
  uint16_t of_piece = 0;
  for (int64_t piece = 0; piece < cut.pieces(); ++piece) {
    if (piece == 0 || cut.round_of(piece) != cut.round_of(piece - 1)) {
      of_piece = 0;
      for (int shard = 0; shard < cut.shards(); ++shard) {
        const core::Route way = route(piece, shard);
        if (way.origin == self) ++of_piece;
        for (const core::RingPhase phase : {core::RingPhase::kReduce, core::RingPhase::kGather}) {
          if (core::steps_taken(way, phase, self, nodes)) ++of_piece;
        }
      }
    }
    due[static_cast<size_t>(piece)] = of_piece;
  }
  skip_done();
}

}  // namespace rueda::engine
