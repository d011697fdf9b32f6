#include "daemon/engine/data/operation_table.h"

namespace rueda::engine {
namespace {

// A frame that is older than so many unlocks has long been read.
constexpr size_t kMaxCancelsRemembered = 64;

}  // namespace

Status broken_frame(const transport::FrameHeader& header, const std::string& what) {
  return {Code::kInternal, "it sent a frame of operation " +
                               std::to_string(core::number_of(Seq{header.seq})) + " with " + what};
}

bool OperationTable::erase(const RunningOperation& running) {
  return std::erase_if(running_, [&](const auto& other) { return other.get() == &running; }) > 0;
}

std::unique_ptr<RunningOperation> OperationTable::extract(Seq seq) {
  const auto found = std::find_if(running_.begin(), running_.end(), [&](const auto& running) {
    return running->operation->seq == seq;
  });
  if (found == running_.end()) return nullptr;
  std::unique_ptr<RunningOperation> running = std::move(*found);
  running_.erase(found);
  return running;
}

bool OperationTable::is_busy(core::Track track) const {
  return std::any_of(running_.begin(), running_.end(), [&](const auto& running) {
    return core::track_of(running->operation->seq) == track;
  });
}

bool OperationTable::is_any_launched_everywhere() const {
  return std::any_of(running_.begin(), running_.end(),
                     [](const auto& running) { return running->launched_everywhere; });
}

void OperationTable::remember(const core::Cancel& cancelled) {
  while (!cancels_.empty() && cancels_.back().first >= cancelled.first) cancels_.pop_back();
  cancels_.push_back(cancelled);
  if (cancels_.size() > kMaxCancelsRemembered) cancels_.erase(cancels_.begin());
  uint64_t& last = last_launched(cancelled.first);
  last = std::min(last, cancelled.first.value - 1);
}

void OperationTable::note_launched_everywhere(uint32_t generation) {
  for (const auto& running : running_) {
    const Operation& operation = *running->operation;
    if (core::track_of(operation.seq) == core::Track::kLockable &&
        operation.generation < generation) {
      running->launched_everywhere = true;
    }
  }
}

Admission OperationTable::admit(const transport::FrameHeader& header, NodeIndex from) {
  using Verdict = Admission::Verdict;
  if (header.process_set != options_.process_set) {
    return {Verdict::kRefused, nullptr,
            Status(Code::kInternal,
                   "it sent a frame of process set " + std::to_string(header.process_set))};
  }
  if (!transport::is_of_operation(header.kind)) return {Verdict::kTaken};
  if (is_stale(header)) return {Verdict::kStale};
  RunningOperation* const running = find(Seq{header.seq});
  const bool is_newer = running && header.lock_generation > running->operation->generation;
  if (is_newer || (!running && header.seq > last_launched(Seq{header.seq}))) {
    return {Verdict::kEarly, running};
  }
  if (running && is_of_another_way(*running, header)) {
    // The frame waits until the operation is cancelled, and its frames with it.
    if (!std::exchange(running->is_diverged, true)) {
      options_.events.on_diverged(Seq{header.seq}, header.lock_generation, from);
    }
    return {Verdict::kEarly, running};
  }
  Status checked = check(running, header, from);
  const Verdict verdict = checked.is_ok() ? Verdict::kTaken : Verdict::kRefused;
  return {verdict, running, std::move(checked)};
}

bool OperationTable::is_stale(const transport::FrameHeader& header) const {
  if (core::track_of(Seq{header.seq}) != core::Track::kLockable) return false;
  return std::any_of(cancels_.begin(), cancels_.end(), [&](const core::Cancel& cancelled) {
    return header.seq >= cancelled.first.value && header.lock_generation < cancelled.generation;
  });
}

bool OperationTable::is_of_another_way(const RunningOperation& running,
                                       const transport::FrameHeader& header) {
  const Operation& operation = *running.operation;
  return operation.locked && header.lock_generation == operation.generation &&
         header.plan_hash != operation.plan_hash;
}

Status OperationTable::check(const RunningOperation* running, const transport::FrameHeader& header,
                             NodeIndex from) const {
  const auto number = [&] { return std::to_string(core::number_of(Seq{header.seq})); };
  if (!running) {
    return {Code::kInternal,
            "it sent a frame of operation " + number() + ", which is complete here"};
  }
  if (header.lock_generation != running->operation->generation) {
    return broken_frame(header, "lock generation " + std::to_string(header.lock_generation));
  }
  if (header.plan_hash != running->operation->plan_hash) {
    const std::string& peer = options_.id(from);
    return {Code::kMismatch,
            "node " + peer + " means another batch by operation " + number() + " than this node",
            Origin{peer, {}}};
  }
  return Status::ok();
}

}  // namespace rueda::engine
