// DataJob under policy `shrink`: what it holds for a recovery, how it learns what is stable (R1,
// R2), and what a recovery does with it.

#include <algorithm>
#include <string>
#include <utility>

#include <boost/asio/post.hpp>

#include "daemon/engine/data/data_job.h"

namespace rueda::engine {

void DataJob::allocate_holds() {
  // Each track has its own, so that none waits for the other. Broadcasts are few and small.
  const std::array<uint64_t, core::kTracks> bounds{options_.staging_bytes / 4 * 3,
                                                   options_.staging_bytes / 4};
  for (size_t i = 0; i < bounds.size(); ++i) {
    if (held_[i]) continue;  // carried over
    Result<std::unique_ptr<HeldFinals>> held =
        HeldFinals::make(static_cast<core::Track>(i), bounds[i], metrics_);
    if (!held.is_ok()) return give_up(next(), held.status());
    held_[i] = std::move(held).value();
  }
}

int64_t DataJob::unstable_bytes(core::Track track) const {
  const HeldFinals* held = held_of(track);
  return held ? held->bytes() : 0;
}

void DataJob::note_finished(Seq seq) {
  HeldFinals* held = held_of(seq);
  if (!held || !held->holds(seq)) return;
  if (!held->is_whole(seq)) held->skip(seq);  // repeated on the one node that is left
  held->note_delivered(seq);
  if (nodes() == 1) held->note_stable(held->complete());
}

// --- Outputs that are written at the end ---------------------------------------------------------

void DataJob::hand_back(Running& running) {
  constexpr int64_t kTurnBytes = 8 << 20;
  const Operation& operation = *running.operation;
  const auto size = static_cast<int64_t>(element_bytes(operation.dtype));
  const std::byte* values = held_of(operation.seq)->values(operation.seq);
  const int64_t begin = running.elements_done;
  const int64_t end = std::min(operation.elements(), begin + kTurnBytes / size);
  {
    const StageTimer timer(operation.trace.get(), &OperationTrace::copy_out);
    kernels_.store(operation, {begin, end}, values + operation.wire_bytes(begin));
  }
  running.elements_done = end;
  if (end == operation.elements()) return finish(running);
  boost::asio::post(loop_, [this, alive = alive_, &running] {
    if (!*alive || stopped_) return;
    hand_back(running);
    settle();
  });
}

void DataJob::hand_back_carried() {
  std::vector<Running*> whole;
  for (const auto& running : completing_) {
    const Seq seq = running->operation->seq;
    if (held_of(seq)->is_whole(seq)) whole.push_back(running.get());
  }
  for (Running* running : whole) hand_back(*running);
  if (nodes() > 1) return;
  for (const auto& held : held_) {
    if (held) held->note_stable(held->complete());  // there is nobody else
  }
}

// --- R2: what is stable --------------------------------------------------------------------------

uint64_t DataJob::pass_on_stability(const transport::FrameHeader& header, bool is_final) {
  HeldFinals* held = held_of(Seq{header.seq});
  if (!held) return 0;
  Seq told{header.stable_seq};
  if (header.kind == transport::FrameKind::kReduce) {
    told = std::min(told, held->complete());
    if (!is_final) return told.value;
  }
  held->note_stable(told);
  return held->stable().value;
}

void DataJob::settle() {
  handle_parked();
  if (!held_.front() || stopped_ || !send_ || !receive_) return;
  for (const core::Track track : {core::Track::kLockable, core::Track::kDecreed}) {
    pass_acknowledgement(track);
  }
  if (!waiting_.empty()) launch_waiting();
  for (const core::Track track : {core::Track::kLockable, core::Track::kDecreed}) {
    const bool is_busy = std::any_of(running_.begin(), running_.end(), [&](const auto& running) {
      return core::track_of(running->operation->seq) == track;
    });
    if (!is_busy) acknowledge(track);
  }
}

// Traffic has stopped, and frames no longer say what is stable. Node 0 sends an acknowledgement
// round the ring twice: "operations up to seq are complete" waits at each node until that is true
// there, so behind the last one it is true everywhere; then it goes on until all know.
void DataJob::acknowledge(core::Track track) {
  const HeldFinals* held = held_of(track);
  bool& acknowledging = acknowledging_[core::index_of(track)];
  const uint32_t cookie =
      geometry_.slots() + geometry_.origin_buffers() + static_cast<uint32_t>(core::index_of(track));
  if (options_.self.value != 0 || acknowledging || outbox_.in_use(cookie)) return;
  if (held->complete() <= held->stable()) return;
  acknowledging = true;
  transport::FrameHeader header;
  header.kind = transport::FrameKind::kStable;
  header.slot = geometry_.acknowledgement_slot(track);
  header.job = job_hash_;
  header.epoch = options_.epoch.value;
  header.process_set = options_.process_set;
  header.chunk = 1;
  header.seq = held->complete().value;
  header.stable_seq = header.seq;
  outbox_.push(cookie, geometry_.all_lanes(), kAtOnce, header, {});
}

void DataJob::on_acknowledgement(const transport::FrameHeader& header) {
  const core::Track track = core::track_of(Seq{header.seq});
  const HeldFinals* held = held_of(track);
  const auto ring = static_cast<uint32_t>(nodes());
  const bool is_right = held && header.slot == geometry_.acknowledgement_slot(track) &&
                        header.payload_bytes == 0 && header.chunk >= 1 &&
                        header.chunk <= 2 * ring - 2 &&
                        header.chunk % ring == static_cast<uint32_t>(options_.self.value) &&
                        (header.chunk < ring || header.seq <= held->complete().value);
  if (!is_right) {
    return give_up(previous(),
                   Status(Code::kInternal, "it sent an acknowledgement that cannot be"));
  }
  parked_[core::index_of(track)] = header;
  settle();
}

void DataJob::pass_acknowledgement(core::Track track) {
  std::optional<transport::FrameHeader>& parked = parked_[core::index_of(track)];
  HeldFinals* held = held_of(track);
  if (!parked || held->complete().value < parked->seq) return;
  transport::FrameHeader header = *std::exchange(parked, std::nullopt);
  const auto ring = static_cast<uint32_t>(nodes());
  if (header.chunk >= ring - 1) held->note_stable(Seq{header.seq});
  if (header.chunk == ring) acknowledging_[core::index_of(track)] = false;
  if (header.chunk == 2 * ring - 2) return receive_->release(header.slot);
  ++header.chunk;
  outbox_.push(header.slot, geometry_.all_lanes(), kAtOnce, header, {});
}

void DataJob::note_stable(Seq seq) {
  if (HeldFinals* held = held_of(seq)) held->note_stable(std::min(seq, held->complete()));
  settle();
}

// --- R3, R4: from a sealed epoch into the next ---------------------------------------------------

void DataJob::seal() {
  stopped_ = true;
  progress_timer_.cancel();
  count_traffic();
  send_.reset();
  receive_.reset();
  check_quiet();
}

void DataJob::carry_over(DataJob& before, core::Track track, const core::TrackDecision& decision) {
  RUEDA_CHECK(before.stopped_ && before.held_of(track));
  auto& held = held_[core::index_of(track)];
  held = std::move(before.held_[core::index_of(track)]);
  for (size_t i = 0; i < decision.operations.size(); ++i) {
    if (decision.operations[i].verdict == core::Verdict::kRedo) continue;
    const Seq was{core::before_first_of(track).value + decision.first.value + i};
    const Seq seq{core::first_of(track).value + i};
    if (const auto awaited = before.awaited_.find(was); awaited != before.awaited_.end()) {
      awaited_[seq] = awaited->second;
    } else if (!held->was_launched(was)) {
      awaited_[seq] = before.chunk_bytes_;
    } else if (std::unique_ptr<Running> running = before.extract(was)) {
      running->operation->seq = seq;
      running->elements_done = 0;
      completing_.push_back(std::move(running));
    }
  }
  held->carry_over(decision);
}

std::unique_ptr<DataJob::Running> DataJob::extract(Seq seq) {
  for (auto* list : {&running_, &completing_}) {
    const auto found = std::find_if(list->begin(), list->end(), [&](const auto& running) {
      return running->operation->seq == seq;
    });
    if (found == list->end()) continue;
    std::unique_ptr<Running> running = std::move(*found);
    list->erase(found);
    return running;
  }
  return nullptr;  // done, and held only for the others
}

void DataJob::launch_completing(std::unique_ptr<Operation> operation, uint32_t chunk_bytes) {
  RUEDA_CHECK(operation->kind == CollectiveKind::kBroadcast);
  const auto chunk_elements = static_cast<int64_t>(chunk_bytes / element_bytes(operation->dtype));
  const core::RingCut cut(operation->elements(), 1, chunk_elements);
  completing_.push_back(std::make_unique<Running>(Running{std::move(operation), cut, {}}));
  const Operation& launched = *completing_.back()->operation;
  if (!held_of(launched.seq)->launch(launched, cut)) give_up_for_memory(launched);
}

void DataJob::give_up_for_memory(const Operation& operation) {
  give_up(next(),
          Status(Code::kResourceExhausted, "no memory to hold the values of an operation of " +
                                               std::to_string(operation.wire_bytes()) + " bytes"));
}

bool DataJob::is_completing(Seq seq) const {
  return std::any_of(completing_.begin(), completing_.end(),
                     [&](const auto& running) { return running->operation->seq == seq; });
}

Status DataJob::take_final(Seq seq, uint32_t chunk, std::span<const std::byte> values) {
  const auto found = std::find_if(completing_.begin(), completing_.end(), [&](const auto& running) {
    return running->operation->seq == seq;
  });
  const std::string name =
      "chunk " + std::to_string(chunk) + " of operation " + std::to_string(core::number_of(seq));
  if (found == completing_.end() || chunk >= (*found)->cut.chunks()) {
    return {Code::kInternal, "nobody waits for " + name};
  }
  Running& running = **found;
  const int64_t elements = running.cut.chunk_at(chunk).count();
  if (values.size() != static_cast<size_t>(running.operation->wire_bytes(elements))) {
    return {Code::kInternal, name + " came with " + std::to_string(values.size()) + " bytes"};
  }
  HeldFinals* held = held_of(seq);
  if (held->is_whole(seq)) return {Code::kInternal, name + " is there already"};
  held->keep(seq, chunk, values.data());
  if (!held->is_whole(seq)) return Status::ok();
  hand_back(running);
  settle();
  return Status::ok();
}

}  // namespace rueda::engine
