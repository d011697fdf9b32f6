#include "daemon/engine/data/ring_path.h"

#include <algorithm>

#include <boost/asio/post.hpp>

#include "daemon/base/yielding_wait.h"

namespace rueda::engine {
namespace {

core::RingPhase phase_of(transport::FrameKind kind) {
  return kind == transport::FrameKind::kReduce ? core::RingPhase::kReduce
                                               : core::RingPhase::kGather;
}

// Returns the kind of a chunk's frame while the chunk is in this phase.
transport::FrameKind kind_of(core::RingPhase phase) {
  return phase == core::RingPhase::kReduce ? transport::FrameKind::kReduce
                                           : transport::FrameKind::kGather;
}

}  // namespace

RingPath::RingPath(boost::asio::io_context& loop, transport::Transport& transport,
                   const WayContext& context, RingLink& link, RetainedResults& retained,
                   const AlgorithmProbe& probe, observe::DaemonMetrics& metrics)
    : loop_(loop),
      options_(context.options),
      kernels_(context.kernels),
      operations_(context.operations),
      faults_(context.faults),
      watch_(context.watch),
      host_(context.host),
      turns_(context.turns),
      link_(link),
      retained_(retained),
      probe_(probe),
      metrics_(metrics),
      lent_(transport, geometry_.slots() + geometry_.origin_buffers()),
      acknowledgements_(options_.self, options_.nodes(), link) {}

void RingPath::open() {
  link_.open(send_side_, receive_side_,
             lifetime_.guard([this](NodeIndex peer, const Status& status) {
               if (!status.is_ok()) return host_.give_up(peer, status);
               host_.on_open();
             }));
}

void RingPath::go_on(RunningOperation& running) {
  originate(running);
  finish_if_done(running);
}

void RingPath::take_early(Seq seq) {
  // Handling a frame may end the operation, so each frame looks it up again.
  std::vector<transport::FrameHeader> mine;
  std::erase_if(early_, [&](const transport::FrameHeader& header) {
    if (header.seq == seq.value) mine.push_back(header);
    return header.seq == seq.value;
  });
  for (const transport::FrameHeader& header : mine) on_frame(header, link_.payload(header));
}

void RingPath::settle() {
  handle_parked();
  if (!retained_.is_on() || faults_.is_stopped() || !link_.is_open()) return;
  for (const core::Track track : {core::Track::kLockable, core::Track::kDecreed}) {
    acknowledgements_.pass(track, *retained_.of(track));
  }
  if (!operations_.waiting().empty()) host_.launch_waiting();
  for (const core::Track track : {core::Track::kLockable, core::Track::kDecreed}) {
    if (!operations_.is_busy(track)) acknowledge(track);
  }
}

void RingPath::acknowledge(core::Track track) {
  acknowledgements_.begin(track, *retained_.of(track));
}

void RingPath::drop(const RunningOperation& running) {
  for (const transport::FrameHeader& header : running.parked) link_.release(header.slot);
}

void RingPath::drop_stale() {
  std::erase_if(early_, [&](const transport::FrameHeader& header) {
    if (!operations_.is_stale(header)) return false;
    link_.release(header.slot);
    return true;
  });
}

// --- Events of the channels ----------------------------------------------------------------------

void RingPath::on_sent(uint32_t cookie) {
  HandlerWatch::note(options_.cause);
  link_.on_sent(cookie);
  watch_.note_progress();
  if (probe_.is_measuring()) return host_.on_probe_sent();
  if (cookie < geometry_.slots()) return link_.release(cookie);
  if (link_.is_acknowledgement(cookie)) return settle();
  lent_.give_back(cookie);
  // An origin buffer is free again; the operation that uses its lane may have waited for it.
  const uint32_t lane = (cookie - geometry_.slots()) / static_cast<uint32_t>(geometry_.window);
  for (const auto& running : operations_.running()) {
    if (running->is_pairwise || geometry_.lane(running->operation->seq) != lane) continue;
    go_on(*running);
    return settle();  // a lane has one operation, which may be gone now
  }
}

void RingPath::on_slot_free(uint32_t slot) {
  watch_.note_progress();
  link_.on_slot_free(slot);
  watch_.check_quiet();
}

std::byte* RingPath::place(const transport::FrameHeader& header) {
  if (faults_.is_stopped() || header.kind != transport::FrameKind::kGather) return nullptr;
  const Seq seq{header.seq};
  const RunningOperation* running = operations_.find(seq);
  if (!running || running->adasum || retained_.of(seq) ||
      !operations_.check(running, header, options_.previous()).is_ok() ||
      !check_frame(*running, header).is_ok()) {
    return nullptr;
  }
  const core::RingStep step = step_of(*running, header);
  if (step.forwards || !step.keeps) return nullptr;
  return lent_.to_receive(*running->operation, running->cut.chunk_at(header.chunk), header.slot);
}

void RingPath::on_frame(const transport::FrameHeader& header, std::span<std::byte> payload) {
  const bool was_placed = payload.data() != link_.payload(header).data();
  if (was_placed) lent_.give_back(header.slot);
  if (faults_.is_stopped()) return;
  HandlerWatch::note(options_.cause);
  watch_.note_progress();
  if (header.payload_bytes <= kSmallBytes) options_.events.on_small();
  const Admission admitted = operations_.admit(header, options_.previous());
  switch (admitted.verdict) {
    case Admission::Verdict::kRefused:
      return host_.refuse(header, options_.previous(), admitted.why);
    case Admission::Verdict::kStale: return link_.release(header.slot);
    case Admission::Verdict::kEarly:
      if (was_placed) {
        return host_.give_up(options_.previous(), broken_frame(header, "final values, and ended"));
      }
      return early_.push_back(header);  // at most one for each slot
    case Admission::Verdict::kTaken: break;
  }
  RunningOperation* const running = admitted.running;
  if (running == nullptr) return on_notice(header, payload);
  if (Status checked = check_frame(*running, header); !checked.is_ok()) {
    return host_.refuse(header, options_.previous(), checked);
  }
  running->note_received(header);
  running->launched_everywhere =
      running->launched_everywhere || shows_launch_everywhere(*running, header);
  handle_chunk(*running, header, payload);
  settle();
}

void RingPath::on_notice(const transport::FrameHeader& header, std::span<std::byte> payload) {
  if (header.kind != transport::FrameKind::kStable) return host_.on_notice(header, payload);
  if (acknowledgements_.take(header, retained_.of(Seq{header.seq}))) return settle();
  host_.give_up(options_.previous(),
                Status(Code::kInternal, "it sent an acknowledgement that cannot be"));
}

void RingPath::on_next_closed(const Status& status) {
  link_.on_send_closed();
  on_closed(options_.next(), status, false);
}

void RingPath::on_previous_closed(const Status& status) {
  // What every node has launched, and none can cancel, cannot end without its frames.
  const auto& running = operations_.running();
  const bool is_missed = std::any_of(running.begin(), running.end(), [&](const auto& item) {
    return !item->is_pairwise && item->launched_everywhere && item->awaits_frames(options_.self);
  });
  on_closed(options_.previous(), status, is_missed);
}

void RingPath::on_closed(NodeIndex peer, const Status& status, bool is_missed) {
  faults_.note_closed_peer();
  // The channel breaks, too, if a rank's memory that it sends from, or receives into, can no longer
  // be had.
  lent_.touch();
  for (const auto& running : operations_.running()) {
    if (!faults_.inputs_hold(*running->operation)) return watch_.check_quiet();
  }
  faults_.report_loss(peer, status, is_missed);
  watch_.check_quiet();
}

// --- What begins here ----------------------------------------------------------------------------

void RingPath::originate(RunningOperation& running) {
  const Operation& operation = *running.operation;
  const int shard = running.is_chain() ? 0 : options_.self.value;
  for (; running.next_origin < running.cut.pieces() && !faults_.is_stopped();
       ++running.next_origin) {
    const int64_t piece = running.next_origin;
    if (!running.is_chain() && piece >= running.first_incomplete + geometry_.window) return;
    if (!running.may_begin(piece)) return;
    const core::Route way = running.route(piece, shard);
    if (way.origin != options_.self) continue;
    const core::ElementRange range = running.cut.chunk(piece, shard);
    if (way.hops == 0) {
      if (running.awaits_turn || !turns_.may_work()) return originate_later(running);
      turns_.charge(range.count() * static_cast<int64_t>(element_bytes(operation.dtype)));
      watch_.note_progress();
      {
        const StageTimer timer(operation.trace.get(), &OperationTrace::local_reduce);
        kernels_.run_on_one_node(operation, range);
      }
      if (!faults_.inputs_hold(*running.operation)) return;
      note_done(running, piece);
      continue;
    }
    const uint32_t buffer = geometry_.origin_buffer(operation.seq, piece);
    const uint32_t cookie = link_.origin_cookie(buffer);
    if (link_.in_use(cookie)) return;  // on_sent comes back here
    const auto chunk = static_cast<uint32_t>(piece * running.cut.shards() + shard);
    const transport::SendBuffer values = running.adasum ? begin_adasum_chunk(running, chunk, buffer)
                                                        : take_input(operation, way, range, buffer);
    if (!faults_.inputs_hold(*running.operation)) return;
    if (way.reduce_hops == 0 && way.is_for_all && !running.adasum) {
      hold_values(running, chunk, values.data);
      if (!running.stores_late) store(running, chunk, values.data);
    }
    push(cookie, running, header_for(running, way.first_phase(), chunk, values.bytes), values);
    note_done(running, piece);
  }
}

transport::SendBuffer RingPath::take_input(const Operation& operation, const core::Route& way,
                                           core::ElementRange range, uint32_t buffer) {
  std::byte* const values = link_.origin_buffer(buffer);
  const auto bytes = static_cast<size_t>(operation.wire_bytes(range.count()));
  if (operation.device_input) {
    if (const auto lent = take_device_input(operation, range, buffer)) return *lent;
    // Only a channel that has gone does not send any more from where it did, and nothing is sent
    // over it.
    if (operation.device_input->is_alone) return {values, bytes, link_.region()};
  }
  if (const auto lent = lent_.to_send(operation, range, link_.origin_cookie(buffer))) {
    if (operation.check) operation.check->look(lent->data, lent->bytes);
    metrics_.inputs_from_arenas.Increment(static_cast<double>(lent->bytes));
    return *lent;
  }
  const StageTimer timer(operation.trace.get(), &OperationTrace::local_reduce);
  if (way.reduce_hops > 0) {
    kernels_.reduce_local(operation, range, nullptr, false, values);
  } else {
    kernels_.read(operation, range, values);
  }
  metrics_.inputs_from_buffers.Increment(static_cast<double>(bytes));
  return {values, bytes, link_.region()};
}

std::optional<transport::SendBuffer> RingPath::take_device_input(const Operation& operation,
                                                                 core::ElementRange range,
                                                                 uint32_t buffer) {
  const transport::SendChannel* const channel = link_.outlet();
  if (channel == nullptr) return std::nullopt;
  const auto lent =
      lent_.to_send_from_device(operation, range, link_.origin_cookie(buffer), *channel);
  if (lent) {
    metrics_.inputs_from_gpus.Increment(static_cast<double>(lent->bytes));
  } else if (operation.device_input->is_alone) {
    faults_.fail(operation.seq, {Code::kInternal,
                                 "the network card does not read the GPU's memory "
                                 "any more, as it did before"});
  }
  return lent;
}

void RingPath::originate_later(RunningOperation& running) {
  if (std::exchange(running.awaits_turn, true)) return;
  turns_.wait(lifetime_.guard([this, seq = running.operation->seq] {
    HandlerWatch::note(options_.cause);
    RunningOperation* const found = faults_.is_stopped() ? nullptr : operations_.find(seq);
    if (!found) return;
    found->awaits_turn = false;
    go_on(*found);
    settle();
  }));
}

transport::SendBuffer RingPath::begin_adasum_chunk(const RunningOperation& running, int64_t chunk,
                                                   uint32_t buffer) {
  const Operation& operation = *running.operation;
  const core::ElementRange range = running.cut.chunk_at(chunk);
  const StageTimer timer(operation.trace.get(), &OperationTrace::local_reduce);
  std::byte* const values = link_.origin_buffer(buffer);
  if (running.stage_of(chunk) == core::AdasumStage::kShare) {
    running.adasum->add_products(range, nullptr, values);
  } else {
    kernels_.reduce_local(operation, range, nullptr, false, values);
  }
  return {values, running.chunk_bytes(chunk), link_.region()};
}

transport::FrameHeader RingPath::header_for(const RunningOperation& running, core::RingPhase phase,
                                            uint32_t chunk, size_t bytes) const {
  transport::FrameHeader header = link_.stamp().header(kind_of(phase), *running.operation);
  header.slot = slot(running, chunk, phase);
  header.chunk = chunk;
  if (const RetainedFinals* held = retained_.of(running.operation->seq)) {
    const bool collects = phase == core::RingPhase::kReduce;
    header.stable_seq = (collects ? held->complete() : held->stable()).value;
  }
  header.payload_bytes = static_cast<uint32_t>(bytes);
  return header;
}

// --- What comes from the previous node -----------------------------------------------------------

// An operation whose chunk has gone through every node, this one the last, was launched by every
// node.
bool RingPath::shows_launch_everywhere(const RunningOperation& running,
                                       const transport::FrameHeader& header) const {
  const std::optional<int> steps = core::steps_taken(
      running.route(header.chunk), phase_of(header.kind), options_.self, options_.nodes());
  return steps >= options_.nodes() - 1;
}

core::RingStep RingPath::step_of(const RunningOperation& running,
                                 const transport::FrameHeader& header) const {
  return core::ring_step(running.route(header.chunk), phase_of(header.kind), options_.self,
                         options_.nodes());
}

Status RingPath::check_frame(const RunningOperation& running,
                             const transport::FrameHeader& header) const {
  const Operation& operation = *running.operation;
  const auto broken = [&](const std::string& what) { return broken_frame(header, what); };
  if (running.is_pairwise) return broken("a way that it does not go");
  if (header.chunk >= running.cut.chunks()) {
    return broken("chunk " + std::to_string(header.chunk));
  }
  if (header.payload_bytes != running.chunk_bytes(header.chunk)) {
    return broken(std::to_string(header.payload_bytes) + " bytes in chunk " +
                  std::to_string(header.chunk));
  }
  if (running.has_received(header)) {
    return broken("chunk " + std::to_string(header.chunk) + " again");
  }
  const RetainedFinals* held = retained_.of(operation.seq);
  const bool collects = header.kind == transport::FrameKind::kReduce;
  // All nodes cannot have completed what this one has not.
  if (held && (core::track_of(Seq{header.stable_seq}) != core::track_of(operation.seq) ||
               (!collects && header.stable_seq > held->complete().value))) {
    return broken("a stability that cannot be");
  }
  if (!core::steps_taken(running.route(header.chunk), phase_of(header.kind), options_.self,
                         options_.nodes())) {
    return broken("a phase that node has no part in");
  }
  return Status::ok();
}

void RingPath::handle_chunk(RunningOperation& running, const transport::FrameHeader& header,
                            std::span<std::byte> payload) {
  if (!running.may_begin(running.piece_of(header.chunk))) {
    return running.parked.push_back(header);
  }
  const Operation& operation = *running.operation;
  if (operation.trace) operation.trace->note_received(header.chunk);
  const core::RingStep step = step_of(running, header);
  const uint64_t stable = retained_.pass_on_stability(header, step.is_final);
  const bool is_of_sum = running.stage_of(header.chunk) == core::AdasumStage::kSum;
  const bool stores = step.keeps && is_of_sum && !running.stores_late;
  if (!is_of_sum) {
    take_products(running, header.chunk, step, payload.data());
  } else if (step.adds && operation.gpu_reduce) {
    return gpu_reduce(running, header, stable);
  } else if (step.adds) {
    const core::ElementRange range = running.cut.chunk_at(header.chunk);
    if (stores) {
      kernels_.reduce_and_store(operation, range, payload.data(), payload.data());
    } else {
      kernels_.reduce_local(operation, range, payload.data(), step.is_final, payload.data());
    }
    if (!faults_.inputs_hold(*running.operation)) return;
  }
  hand_on(running, header, payload, stable, step.adds);
}

void RingPath::hand_on(RunningOperation& running, const transport::FrameHeader& header,
                       std::span<std::byte> payload, uint64_t stable_seq, bool is_stored) {
  const core::RingStep step = step_of(running, header);
  const bool is_of_sum = running.stage_of(header.chunk) == core::AdasumStage::kSum;
  if (step.forwards) forward(running, header, step.phase(), payload, stable_seq);
  if (step.keeps && is_of_sum) {
    hold_values(running, header.chunk, payload.data());
    if (!is_stored && !running.stores_late) store(running, header.chunk, payload.data());
  }
  if (!step.forwards) link_.release(header.slot);
  note_done(running, running.piece_of(header.chunk));
  go_on(running);
}

void RingPath::gpu_reduce(const RunningOperation& running, const transport::FrameHeader& header,
                          uint64_t stable_seq) {
  const Operation& operation = *running.operation;
  auto added = lifetime_.guard(
      [this, header, stable_seq](const Status& status) { on_added(header, stable_seq, status); });
  operation.gpu_reduce({.range = running.cut.chunk_at(header.chunk),
                        .staging = link_.file(),
                        .offset = uint64_t{header.slot} * geometry_.slot_bytes,
                        .is_final = step_of(running, header).is_final},
                       [&loop = loop_, added = std::move(added)](const Status& status) {
                         boost::asio::post(loop, [added, status]() mutable { added(status); });
                       });
}

void RingPath::on_added(const transport::FrameHeader& header, uint64_t stable_seq,
                        const Status& status) {
  if (faults_.is_stopped()) return;
  watch_.note_progress();
  RunningOperation* const running = operations_.find(Seq{header.seq});
  if (!running || running->operation->generation != header.lock_generation) {
    return link_.release(header.slot);  // it has been cancelled
  }
  if (!status.is_ok()) return faults_.fail(running->operation->seq, status);
  hand_on(*running, header, link_.payload(header), stable_seq, false);
  settle();
}

void RingPath::handle_parked() {
  const auto next =
      [this]() -> std::optional<std::pair<RunningOperation*, transport::FrameHeader>> {
    for (const auto& running : operations_.running()) {
      auto& parked = running->parked;
      const auto found = std::find_if(parked.begin(), parked.end(), [&](const auto& header) {
        return running->may_begin(running->piece_of(header.chunk));
      });
      if (found == parked.end()) continue;
      const transport::FrameHeader header = *found;
      parked.erase(found);
      return std::pair(running.get(), header);
    }
    return std::nullopt;
  };
  while (!faults_.is_stopped()) {
    const auto found = next();
    if (!found) return;
    handle_chunk(*found->first, found->second, link_.payload(found->second));
  }
}

void RingPath::take_products(RunningOperation& running, int64_t chunk, const core::RingStep& step,
                             std::byte* values) {
  if (running.stage_of(chunk) == core::AdasumStage::kMeet) {
    return running.adasum->meet(kernels_, chunk, values);
  }
  const core::ElementRange range = running.cut.chunk_at(chunk);
  if (step.adds) running.adasum->add_products(range, values, values);
  if (step.keeps) running.adasum->take_products(range, values);
}

void RingPath::forward(const RunningOperation& running, const transport::FrameHeader& received,
                       core::RingPhase phase, std::span<std::byte> payload, uint64_t stable_seq) {
  transport::FrameHeader header = received;
  header.kind = kind_of(phase);
  header.slot = slot(running, received.chunk, phase);
  header.stable_seq = stable_seq;
  push(received.slot, running, header, {payload.data(), payload.size(), link_.region()});
}

// --- Both ----------------------------------------------------------------------------------------

uint32_t RingPath::slot(const RunningOperation& running, uint32_t chunk,
                        core::RingPhase phase) const {
  const Operation& operation = *running.operation;
  const int64_t piece = running.piece_of(chunk);
  if (running.is_chain()) return geometry_.chain_slot(operation.seq, piece);
  return geometry_.ring_slot(operation.seq, piece, static_cast<int>(chunk % running.cut.shards()),
                             phase);
}

void RingPath::push(uint32_t cookie, const RunningOperation& running,
                    const transport::FrameHeader& header, transport::SendBuffer buffer) {
  const Operation& operation = *running.operation;
  if (operation.trace) operation.trace->note_sent();
  link_.push(cookie, geometry_.lane(operation.seq), operation.urgency, header, buffer);
}

void RingPath::hold_values(const RunningOperation& running, uint32_t chunk,
                           const std::byte* values) {
  const Seq seq = running.operation->seq;
  if (RetainedFinals* held = retained_.of(seq)) held->keep(seq, chunk, values);
}

void RingPath::store(const RunningOperation& running, uint32_t chunk, const std::byte* values) {
  const Operation& operation = *running.operation;
  const StageTimer timer(operation.trace.get(), &OperationTrace::copy_out);
  kernels_.store(operation, running.cut.chunk_at(chunk), values);
}

void RingPath::note_done(RunningOperation& running, int64_t piece) {
  running.note_done(piece);
  const Operation& operation = *running.operation;
  if (!operation.rounds_here || running.is_complete()) return;
  const int done = running.cut.round_of(running.first_incomplete);
  if (done == std::exchange(running.rounds_done, done)) return;
  options_.events.on_rounds_done(operation.seq, operation.generation, options_.part,
                                 operation.share.index, done);
}

void RingPath::finish_if_done(RunningOperation& running) {
  if (running.is_complete()) host_.complete(running);
}

}  // namespace rueda::engine
