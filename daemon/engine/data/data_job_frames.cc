// DataJob's answers to what arrives from the neighbours.

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/post.hpp>

#include "daemon/base/yielding_wait.h"
#include "daemon/engine/data/data_job.h"

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

Status broken_frame(const transport::FrameHeader& header, const std::string& what) {
  return {Code::kInternal, "it sent a frame of operation " +
                               std::to_string(core::number_of(Seq{header.seq})) + " with " + what};
}

void DataJob::on_sent(uint32_t cookie) {
  outbox_.on_sent(cookie);
  last_progress_ms_ = steady_now_ms();
  if (probe_) return send_probe();
  if (cookie < geometry_.slots()) {
    if (receive_) receive_->release(cookie);
    return;
  }
  if (cookie >= geometry_.slots() + geometry_.origin_buffers()) return settle();
  lent_.give_back(cookie);
  // An origin buffer is free again; whoever uses its lane may have waited for it.
  const uint32_t lane = (cookie - geometry_.slots()) / static_cast<uint32_t>(geometry_.window);
  for (const auto& running : running_) {
    if (running->is_exchanged || geometry_.lane(running->operation->seq) != lane) continue;
    originate(*running);
    finish_if_done(*running);
    return settle();  // one operation a lane; it may be gone now
  }
}

void DataJob::on_slot_free(uint32_t slot) {
  last_progress_ms_ = steady_now_ms();
  outbox_.on_slot_free(slot);
  check_quiet();
}

std::byte* DataJob::place(const transport::FrameHeader& header) {
  if (stopped_ || header.kind != transport::FrameKind::kGather) return nullptr;
  const Seq seq{header.seq};
  const Running* running = find(seq);
  if (!running || running->adasum || held_of(seq) ||
      !check_operation(running, header, previous()).is_ok() ||
      !check_frame(*running, header).is_ok()) {
    return nullptr;
  }
  const core::RingStep step =
      core::ring_step(route(*running, header.chunk), phase_of(header.kind), options_.self, nodes());
  if (step.forwards || !step.keeps) return nullptr;
  return lent_.to_receive(*running->operation, running->cut.chunk_at(header.chunk), header.slot);
}

void DataJob::on_frame(const transport::FrameHeader& header, std::span<std::byte> payload) {
  const bool was_placed = payload.data() != slot_payload(header).data();
  if (was_placed) lent_.give_back(header.slot);
  Running* running = nullptr;
  switch (admit(header, previous(), running)) {
    case Admission::kRefused: return;
    case Admission::kStale: return receive_->release(header.slot);
    case Admission::kEarly:
      if (was_placed) return give_up(previous(), broken_frame(header, "final values, and ended"));
      return early_.push_back(header);  // at most one for each slot
    case Admission::kTaken: break;
  }
  if (running == nullptr) return on_notice(header, payload);
  if (Status checked = check_frame(*running, header); !checked.is_ok()) {
    return refuse(header, previous(), checked);
  }
  running->received[received_index(header)] = true;
  running->launched_everywhere =
      running->launched_everywhere || shows_launch_everywhere(*running, header);
  handle_chunk(*running, header, payload);
  settle();
}

void DataJob::on_notice(const transport::FrameHeader& header, std::span<std::byte> payload) {
  switch (header.kind) {
    case transport::FrameKind::kStable: return on_acknowledgement(header);
    case transport::FrameKind::kProbe: return on_probe(header, payload);
    default: return on_table(header, payload);
  }
}

DataJob::Admission DataJob::admit(const transport::FrameHeader& header, NodeIndex from,
                                  Running*& running) {
  if (stopped_) return Admission::kRefused;
  last_progress_ms_ = steady_now_ms();
  if (header.payload_bytes <= kSmallBytes) options_.events.on_small();
  if (header.process_set != options_.process_set) {
    give_up(from, Status(Code::kInternal,
                         "it sent a frame of process set " + std::to_string(header.process_set)));
    return Admission::kRefused;
  }
  if (!transport::is_of_operation(header.kind)) return Admission::kTaken;
  if (is_stale(header)) return Admission::kStale;
  running = find(Seq{header.seq});
  const bool is_newer = running && header.lock_generation > running->operation->generation;
  if (is_newer || (!running && header.seq > last_launched(Seq{header.seq}))) {
    return Admission::kEarly;
  }
  if (running && is_of_another_way(*running, header)) {
    // It waits until the operation is cancelled, and its frames with it.
    if (!std::exchange(running->is_diverged, true)) {
      options_.events.on_diverged(Seq{header.seq}, header.lock_generation, from);
    }
    return Admission::kEarly;
  }
  const Status checked = check_operation(running, header, from);
  if (checked.is_ok()) return Admission::kTaken;
  refuse(header, from, checked);
  return Admission::kRefused;
}

Status DataJob::check_operation(const Running* running, const transport::FrameHeader& header,
                                NodeIndex from) const {
  const std::string number = std::to_string(core::number_of(Seq{header.seq}));
  if (!running) {
    return {Code::kInternal, "it sent a frame of operation " + number + ", which is complete here"};
  }
  if (header.lock_generation != running->operation->generation) {
    return broken_frame(header, "lock generation " + std::to_string(header.lock_generation));
  }
  if (header.plan_hash != running->operation->plan_hash) {
    const std::string& peer = options_.node_ids[static_cast<size_t>(from.value)];
    return {Code::kMismatch,
            "node " + peer + " means another batch by operation " + number + " than this node",
            Origin{peer, {}}};
  }
  return Status::ok();
}

void DataJob::refuse(const transport::FrameHeader& header, NodeIndex from, const Status& status) {
  if (status.code() == Code::kMismatch) {
    options_.events.on_failed(Seq{header.seq}, status);
  } else {
    give_up(from, status);
  }
}

bool DataJob::is_of_another_way(const Running& running, const transport::FrameHeader& header) {
  const Operation& operation = *running.operation;
  return operation.locked && header.lock_generation == operation.generation &&
         header.plan_hash != operation.plan_hash;
}

// What has gone through every node, this one the last, was launched by every node.
bool DataJob::shows_launch_everywhere(const Running& running,
                                      const transport::FrameHeader& header) const {
  const std::optional<int> steps = core::steps_taken(route(running, header.chunk),
                                                     phase_of(header.kind), options_.self, nodes());
  return steps >= nodes() - 1;
}

Status DataJob::check_frame(const Running& running, const transport::FrameHeader& header) const {
  const Operation& operation = *running.operation;
  const auto broken = [&](const std::string& what) { return broken_frame(header, what); };
  if (running.is_exchanged) return broken("a way that it does not go");
  if (header.chunk >= running.cut.chunks()) {
    return broken("chunk " + std::to_string(header.chunk));
  }
  if (header.payload_bytes != chunk_bytes(running, header.chunk)) {
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
  if (!core::steps_taken(route(running, header.chunk), phase_of(header.kind), options_.self,
                         nodes())) {
    return broken("a phase that node has no part in");
  }
  return Status::ok();
}

void DataJob::handle_chunk(Running& running, const transport::FrameHeader& header,
                           std::span<std::byte> payload) {
  if (!may_begin(running, header.chunk / running.cut.shards())) {
    return running.parked.push_back(header);
  }
  const Operation& operation = *running.operation;
  if (operation.trace) operation.trace->note_received(header.chunk);
  const core::RingStep step =
      core::ring_step(route(running, header.chunk), phase_of(header.kind), options_.self, nodes());
  const uint64_t stable = pass_on_stability(header, step.is_final);
  const bool is_of_sum = stage_of(running, header.chunk) == core::AdasumStage::kSum;
  const bool stores = step.keeps && is_of_sum && !running.stores_late;
  if (!is_of_sum) {
    take_products(running, header.chunk, step, payload.data());
  } else if (step.adds && operation.add_elsewhere) {
    return add_elsewhere(running, header, stable);
  } else if (step.adds) {
    const core::ElementRange range = running.cut.chunk_at(header.chunk);
    if (stores) {
      kernels_.reduce_and_store(operation, range, payload.data(), payload.data());
    } else {
      kernels_.reduce_local(operation, range, payload.data(), step.is_final, payload.data());
    }
    if (!inputs_hold(running)) return;
  }
  hand_on(running, header, payload, stable, step.adds);
}

void DataJob::hand_on(Running& running, const transport::FrameHeader& header,
                      std::span<std::byte> payload, uint64_t stable_seq, bool is_stored) {
  const core::RingStep step =
      core::ring_step(route(running, header.chunk), phase_of(header.kind), options_.self, nodes());
  const bool is_of_sum = stage_of(running, header.chunk) == core::AdasumStage::kSum;
  if (step.forwards) forward(running, header, step.phase(), payload, stable_seq);
  if (step.keeps && is_of_sum) {
    hold_values(running, header.chunk, payload.data());
    if (!is_stored && !running.stores_late) store(running, header.chunk, payload.data());
  }
  if (!step.forwards) receive_->release(header.slot);
  note_done(running, header.chunk / running.cut.shards());
  originate(running);
  finish_if_done(running);
}

// The chunk's slot stays taken meanwhile, whatever becomes of the operation.
void DataJob::add_elsewhere(const Running& running, const transport::FrameHeader& header,
                            uint64_t stable_seq) {
  const core::RingStep step =
      core::ring_step(route(running, header.chunk), phase_of(header.kind), options_.self, nodes());
  const Operation& operation = *running.operation;
  operation.add_elsewhere(
      {running.cut.chunk_at(header.chunk), staging_->file(),
       uint64_t{header.slot} * geometry_.slot_bytes, step.is_final},
      [this, alive = alive_, &loop = loop_, header, stable_seq](const Status& status) {
        boost::asio::post(loop, [this, alive, header, stable_seq, status] {
          if (*alive) on_added(header, stable_seq, status);
        });
      });
}

void DataJob::on_added(const transport::FrameHeader& header, uint64_t stable_seq,
                       const Status& status) {
  if (stopped_) return;
  last_progress_ms_ = steady_now_ms();
  Running* const running = find(Seq{header.seq});
  if (!running || running->operation->generation != header.lock_generation) {
    return receive_->release(header.slot);  // it has been cancelled
  }
  if (!status.is_ok()) {
    stopped_ = true;
    return options_.events.on_failed(running->operation->seq, status);
  }
  hand_on(*running, header, slot_payload(header), stable_seq, false);
  settle();
}

// Frames that came before their rounds may begin wait in their slots. Those of earlier rounds never
// wait for them: they have slots of their own, or the slot before it.
void DataJob::handle_parked() {
  const auto next = [this]() -> std::optional<std::pair<Running*, transport::FrameHeader>> {
    for (const auto& running : running_) {
      auto& parked = running->parked;
      const auto found = std::find_if(parked.begin(), parked.end(), [&](const auto& header) {
        return may_begin(*running, header.chunk / running->cut.shards());
      });
      if (found == parked.end()) continue;
      const transport::FrameHeader header = *found;
      parked.erase(found);
      return std::pair(running.get(), header);
    }
    return std::nullopt;
  };
  while (!stopped_) {
    const auto found = next();
    if (!found) return;
    handle_chunk(*found->first, found->second, slot_payload(found->second));
  }
}

void DataJob::release_parked(const Running& running) {
  for (const transport::FrameHeader& header : running.parked) receive_->release(header.slot);
}

void DataJob::rounds_came(Seq seq) {
  Running* const running = find(seq);
  if (stopped_ || !running) return;
  last_progress_ms_ = steady_now_ms();
  originate(*running);
  finish_if_done(*running);
  settle();
}

void DataJob::forward(const Running& running, const transport::FrameHeader& received,
                      core::RingPhase phase, std::span<std::byte> payload, uint64_t stable_seq) {
  transport::FrameHeader header = received;
  header.kind = kind_of(phase);
  header.slot = slot(running, received.chunk, phase);
  header.stable_seq = stable_seq;
  push(received.slot, running, header, {payload.data(), payload.size(), staging_->region()});
}

}  // namespace rueda::engine
