// DataJob's answers to what arrives from the neighbours.

#include <string>
#include <utility>

#include "daemon/base/yielding_wait.h"
#include "daemon/engine/data_job.h"

namespace rueda::engine {
namespace {

core::RingPhase phase_of(transport::FrameKind kind) {
  return kind == transport::FrameKind::kReduce ? core::RingPhase::kReduce
                                               : core::RingPhase::kGather;
}

size_t received_index(const transport::FrameHeader& header) {
  return size_t{header.chunk} * 2 + (header.kind == transport::FrameKind::kReduce ? 0 : 1);
}

}  // namespace

void DataJob::on_sent(uint32_t cookie) {
  outbox_.on_sent(cookie);
  last_progress_ms_ = steady_now_ms();
  if (cookie < geometry_.slots()) {
    if (receive_) receive_->release(cookie);
    return;
  }
  if (cookie >= geometry_.slots() + geometry_.origin_buffers()) return settle();
  // An origin buffer is free again; whoever uses its lane may have waited for it.
  const uint32_t lane = (cookie - geometry_.slots()) / static_cast<uint32_t>(geometry_.window);
  for (const auto& running : running_) {
    const Operation& operation = *running->operation;
    if (geometry_.lane(operation.seq) != lane) continue;
    if (operation.kind != CollectiveKind::kBroadcast) {
      originate(*running);
    } else if (operation.root_node == options_.self) {
      originate_broadcast(*running);
    }
    return settle();  // one operation a lane; it may be gone now
  }
}

void DataJob::on_slot_free(uint32_t slot) {
  last_progress_ms_ = steady_now_ms();
  outbox_.on_slot_free(slot);
  check_quiet();
}

void DataJob::on_frame(const transport::FrameHeader& header, std::span<std::byte> payload) {
  if (stopped_) return;
  last_progress_ms_ = steady_now_ms();
  if (header.payload_bytes <= kSmallBytes) options_.events.on_small();
  if (header.process_set != options_.process_set) {
    give_up(previous(), Status(Code::kInternal, "it sent a frame of process set " +
                                                    std::to_string(header.process_set)));
    return;
  }
  if (header.kind == transport::FrameKind::kStable) return on_acknowledgement(header);
  if (is_stale(header)) return receive_->release(header.slot);
  Running* running = find(Seq{header.seq});
  const bool is_newer = running && header.lock_generation > running->operation->generation;
  if (is_newer || (!running && header.seq > last_launched(Seq{header.seq}))) {
    early_.push_back(header);  // at most one for each slot
    return;
  }
  if (running && is_of_another_way(*running, header)) {
    early_.push_back(header);  // until the operation is cancelled, and its frames with it
    if (!std::exchange(running->is_diverged, true)) {
      options_.events.on_diverged(Seq{header.seq}, header.lock_generation, previous());
    }
    return;
  }
  Status checked =
      running ? check_frame(*running, header)
              : Status(Code::kInternal, "it sent a frame of operation " +
                                            std::to_string(core::number_of(Seq{header.seq})) +
                                            ", which is complete here");
  if (!checked.is_ok()) {
    if (checked.code() == Code::kMismatch) {
      options_.events.on_failed(Seq{header.seq}, checked);
    } else {
      give_up(previous(), checked);
    }
    return;
  }
  running->received[received_index(header)] = true;
  running->launched_everywhere = running->launched_everywhere || shows_launch_everywhere(header);
  if (running->operation->kind == CollectiveKind::kBroadcast) {
    handle_broadcast_frame(*running, header, payload);
  } else {
    handle_ring_frame(*running, header, payload);
  }
  settle();
}

bool DataJob::is_of_another_way(const Running& running,
                                const transport::FrameHeader& header) const {
  const Operation& operation = *running.operation;
  return operation.locked && header.lock_generation == operation.generation &&
         header.plan_hash != operation.plan_hash;
}

// What has gone through every node, this one the last, was launched by every node.
bool DataJob::shows_launch_everywhere(const transport::FrameHeader& header) const {
  const int shard = static_cast<int>(header.chunk % static_cast<uint32_t>(nodes()));
  return header.kind == transport::FrameKind::kGather ||
         core::ring_distance(shard, options_.self, nodes()) == nodes() - 1;
}

Status DataJob::check_frame(const Running& running, const transport::FrameHeader& header) const {
  const Operation& operation = *running.operation;
  const auto broken = [&](const std::string& what) {
    return Status(Code::kInternal, "it sent a frame of operation " +
                                       std::to_string(core::number_of(Seq{header.seq})) + " with " +
                                       what);
  };
  if (header.lock_generation != operation.generation) {
    return broken("lock generation " + std::to_string(header.lock_generation));
  }
  if (header.plan_hash != operation.plan_hash) {
    const std::string& peer = options_.node_ids[static_cast<size_t>(previous().value)];
    return Status(Code::kMismatch,
                  "node " + peer + " means another batch by operation " +
                      std::to_string(core::number_of(Seq{header.seq})) + " than this node",
                  Origin{peer, {}});
  }
  if (header.chunk >= running.cut.chunks()) {
    return broken("chunk " + std::to_string(header.chunk));
  }
  const core::ElementRange range = running.cut.chunk_at(header.chunk);
  if (header.payload_bytes != static_cast<size_t>(range.count()) * element_bytes(operation.dtype)) {
    return broken(std::to_string(header.payload_bytes) + " bytes in chunk " +
                  std::to_string(header.chunk));
  }
  if (running.received[received_index(header)]) {
    return broken("chunk " + std::to_string(header.chunk) + " again");
  }
  const HeldFinals* held = held_of(operation.seq);
  const bool collects = header.kind == transport::FrameKind::kReduce;
  // All nodes cannot have completed what this one has not.
  if (held && (core::track_of(Seq{header.stable_seq}) != core::track_of(operation.seq) ||
               (!collects && header.stable_seq > held->complete().value))) {
    return broken("a stability that cannot be");
  }
  const bool is_broadcast = operation.kind == CollectiveKind::kBroadcast;
  if (is_broadcast != (header.kind == transport::FrameKind::kBroadcast)) {
    return broken("the wrong kind");
  }
  if (is_broadcast) {
    return operation.root_node == options_.self ? broken("values for the root") : Status::ok();
  }
  const int shard = static_cast<int>(header.chunk % running.cut.nodes());
  if (!core::ring_may_receive(phase_of(header.kind), shard, options_.self, nodes())) {
    return broken("a phase that node has no part in");
  }
  return Status::ok();
}

void DataJob::handle_ring_frame(Running& running, const transport::FrameHeader& header,
                                std::span<std::byte> payload) {
  const Operation& operation = *running.operation;
  const int64_t piece = header.chunk / nodes();
  const int shard = static_cast<int>(header.chunk % nodes());
  const core::ElementRange range = running.cut.chunk(piece, shard);
  const auto slot = [&](core::RingPhase phase) {
    return geometry_.ring_slot(operation.seq, piece, shard, phase);
  };
  const uint64_t stable = pass_on_stability(header);
  switch (core::ring_on_receive(phase_of(header.kind), shard, options_.self, nodes())) {
    case core::RingAction::kAddAndForward:
      kernels_.reduce_local(operation, range, payload.data(), false, payload.data());
      if (!inputs_hold(running)) return;
      forward(running, header, transport::FrameKind::kReduce, slot(core::RingPhase::kReduce),
              payload, stable);
      return;
    case core::RingAction::kAddAndFinish:
      kernels_.reduce_local(operation, range, payload.data(), true, payload.data());
      if (!inputs_hold(running)) return;
      [[fallthrough]];
    case core::RingAction::kStoreAndForward:
      forward(running, header, transport::FrameKind::kGather, slot(core::RingPhase::kGather),
              payload, stable);
      take_values(running, piece, shard, payload.data());
      break;
    case core::RingAction::kStore:
      take_values(running, piece, shard, payload.data());
      receive_->release(header.slot);
      break;
  }
  originate(running);
  finish_if_done(running);
}

void DataJob::handle_broadcast_frame(Running& running, const transport::FrameHeader& header,
                                     std::span<std::byte> payload) {
  const Operation& operation = *running.operation;
  const int64_t piece = header.chunk;
  const uint64_t stable = pass_on_stability(header);
  const bool passes_on = core::chain_forwards(operation.root_node, options_.self, nodes());
  if (passes_on) {
    forward(running, header, transport::FrameKind::kBroadcast,
            geometry_.broadcast_slot(operation.seq, piece), payload, stable);
  }
  take_values(running, piece, 0, payload.data());
  if (!passes_on) receive_->release(header.slot);
  finish_if_done(running);
}

void DataJob::forward(const Running& running, const transport::FrameHeader& received,
                      transport::FrameKind kind, uint32_t to_slot, std::span<std::byte> payload,
                      uint64_t stable_seq) {
  transport::FrameHeader header = received;
  header.kind = kind;
  header.slot = to_slot;
  header.stable_seq = stable_seq;
  push(received.slot, running, header, {payload.data(), payload.size(), region_});
}

}  // namespace rueda::engine
