#include "daemon/engine/data/retained_results.h"

#include <algorithm>
#include <string>
#include <utility>

namespace rueda::engine {
namespace {

Status no_memory_for(const Operation& operation) {
  return {Code::kResourceExhausted, "no memory to hold the values of an operation of " +
                                        std::to_string(operation.wire_bytes()) + " bytes"};
}

}  // namespace

Status RetainedResults::allocate() {
  // Each track has memory of its own, so that none waits for the other. Broadcasts are few and
  // small.
  const std::array<uint64_t, core::kTracks> bounds{options_.staging_bytes / 4 * 3,
                                                   options_.staging_bytes / 4};
  for (size_t i = 0; i < bounds.size(); ++i) {
    if (held_[i]) continue;  // carried over
    Result<std::unique_ptr<RetainedFinals>> held =
        RetainedFinals::make(static_cast<core::Track>(i), bounds[i], metrics_);
    if (!held.is_ok()) return held.status();
    held_[i] = std::move(held).value();
  }
  return Status::ok();
}

Status RetainedResults::launch(const RunningOperation& running) {
  const Seq seq = running.operation->seq;
  RetainedFinals* held = of(seq);
  const bool keeps = held && (options_.nodes() > 1 || held->holds(seq));
  if (keeps && !held->launch(*running.operation, running.cut)) {
    return no_memory_for(*running.operation);
  }
  return Status::ok();
}

void RetainedResults::note_delivered(Seq seq) {
  RetainedFinals* held = of(seq);
  if (!held || !held->holds(seq)) return;
  if (!held->is_whole(seq)) held->skip(seq);  // repeated on the one node that is left
  held->note_delivered(seq);
  if (options_.nodes() == 1) held->note_stable(held->complete());
}

void RetainedResults::note_stable(Seq seq) {
  if (RetainedFinals* held = of(seq)) held->note_stable(std::min(seq, held->complete()));
}

void RetainedResults::note_complete_is_stable() {
  for (const auto& held : held_) {
    if (held) held->note_stable(held->complete());
  }
}

uint64_t RetainedResults::pass_on_stability(const transport::FrameHeader& header, bool is_final) {
  RetainedFinals* held = of(Seq{header.seq});
  if (!held) return 0;
  Seq told{header.stable_seq};
  if (header.kind == transport::FrameKind::kReduce) {
    told = std::min(told, held->complete());
    if (!is_final) return told.value;
  }
  held->note_stable(told);
  return held->stable().value;
}

void RetainedResults::carry_over(RetainedResults& before, OperationTable& running,
                                 core::Track track, const core::TrackDecision& decision) {
  RUEDA_CHECK(before.of(track));
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
    } else {
      std::unique_ptr<RunningOperation> left = running.extract(was);
      if (!left) left = before.extract(was);
      if (!left) continue;  // done, and held only for the others
      left->operation->seq = seq;
      left->elements_done = 0;
      completing_.push_back(std::move(left));
    }
  }
  held->carry_over(decision);
}

std::optional<uint32_t> RetainedResults::take_awaited(Seq seq) {
  const auto awaited = awaited_.extract(seq);
  return awaited ? std::optional(awaited.mapped()) : std::nullopt;
}

Status RetainedResults::launch_awaited(std::unique_ptr<Operation> operation, uint32_t chunk_bytes) {
  RUEDA_CHECK(operation->kind == CollectiveKind::kBroadcast);
  const auto chunk_elements = static_cast<int64_t>(chunk_bytes / element_bytes(operation->dtype));
  const core::RingCut cut(operation->elements(), 1, chunk_elements);
  completing_.push_back(
      std::make_unique<RunningOperation>(std::move(operation), cut, options_.nodes()));
  const Operation& launched = *completing_.back()->operation;
  return of(launched.seq)->launch(launched, cut) ? Status::ok() : no_memory_for(launched);
}

std::vector<RunningOperation*> RetainedResults::whole() const {
  std::vector<RunningOperation*> found;
  for (const auto& running : completing_) {
    const Seq seq = running->operation->seq;
    if (of(seq)->is_whole(seq)) found.push_back(running.get());
  }
  return found;
}

Result<RunningOperation*> RetainedResults::take_final(Seq seq, uint32_t chunk,
                                                      std::span<const std::byte> values) {
  const std::string name =
      "chunk " + std::to_string(chunk) + " of operation " + std::to_string(core::number_of(seq));
  RunningOperation* const running = find(seq);
  if (!running || chunk >= running->cut.chunks()) {
    return Status(Code::kInternal, "nobody waits for " + name);
  }
  const int64_t elements = running->cut.chunk_at(chunk).count();
  if (values.size() != static_cast<size_t>(running->operation->wire_bytes(elements))) {
    return Status(Code::kInternal, name + " came with " + std::to_string(values.size()) + " bytes");
  }
  RetainedFinals* held = of(seq);
  if (held->is_whole(seq)) return Status(Code::kInternal, name + " is there already");
  held->keep(seq, chunk, values.data());
  return held->is_whole(seq) ? running : nullptr;
}

void RetainedResults::erase(const RunningOperation& running) {
  std::erase_if(completing_, [&](const auto& other) { return other.get() == &running; });
}

RunningOperation* RetainedResults::find(Seq seq) const {
  const auto found = std::find_if(completing_.begin(), completing_.end(), [&](const auto& running) {
    return running->operation->seq == seq;
  });
  return found == completing_.end() ? nullptr : found->get();
}

std::unique_ptr<RunningOperation> RetainedResults::extract(Seq seq) {
  const auto found = std::find_if(completing_.begin(), completing_.end(), [&](const auto& running) {
    return running->operation->seq == seq;
  });
  if (found == completing_.end()) return nullptr;
  std::unique_ptr<RunningOperation> running = std::move(*found);
  completing_.erase(found);
  return running;
}

}  // namespace rueda::engine
