#include "daemon/observe/trace.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace rueda::observe {
namespace {

size_t records_of(const TraceOperation& operation) { return 1 + operation.ready.size(); }

}  // namespace

uint64_t TraceOperation::events() const {
  // A node's ranks join one by one, so one of those that are left has submitted all tensors.
  uint64_t marks = 0;
  uint64_t max_of_a_rank = 0;
  uint64_t of_rank = 0;
  int32_t rank = -1;
  for (const TraceReady& item : ready) {
    if (std::exchange(rank, item.rank) != item.rank) of_rank = 0;
    if (item.at_ns == TraceReady::kNever) continue;
    marks += item.tensors;
    of_rank += item.tensors;
    max_of_a_rank = std::max(max_of_a_rank, of_rank);
  }
  return 2 * tensors->size() + marks + max_of_a_rank;
}

uint32_t TraceBuffer::track(const std::string& name) {
  const auto found = tracks_.find(name);
  if (found != tracks_.end()) return found->second;
  if (tracks_.size() >= max_tracks_) return kNoTrack;
  const auto added = tracks_.emplace(name, static_cast<uint32_t>(names_.size())).first;
  names_.push_back(&added->first);
  is_named_.push_back(false);
  return added->second;
}

void TraceBuffer::add(const TraceEvent& event) {
  if (event.track == kNoTrack || is_full()) {
    ++dropped_;
    return;
  }
  events_.push_back(event);
}

void TraceBuffer::add(TraceOperation operation) {
  if (is_full()) {
    dropped_ += operation.events();
    return;
  }
  operation_records_ += records_of(operation);
  operations_.push_back(std::move(operation));
}

void TraceBuffer::name(uint32_t track, TraceBatch& batch) {
  if (track == kNoTrack || is_named_[track]) return;
  is_named_[track] = true;
  batch.tracks.emplace_back(track, *names_[track]);
}

TraceBatch TraceBuffer::take(const TraceBatchSize& most) {
  TraceBatch batch;
  const auto end =
      events_.begin() + static_cast<std::ptrdiff_t>(std::min(most.records, events_.size()));
  batch.events.assign(events_.begin(), end);
  events_.erase(events_.begin(), end);
  for (const TraceEvent& event : batch.events) name(event.track, batch);

  size_t records = batch.events.size();
  uint64_t events = records;
  // Most operations have the tensors of the operation before.
  const std::vector<uint32_t>* named = nullptr;
  while (!operations_.empty() &&
         (records == 0 || (records < most.records && events < most.events))) {
    TraceOperation& next = operations_.front();
    records += records_of(next);
    operation_records_ -= records_of(next);
    events += next.events();
    if (std::exchange(named, next.tensors.get()) != next.tensors.get()) {
      for (const uint32_t track : *next.tensors) name(track, batch);
    }
    batch.operations.push_back(std::move(next));
    operations_.pop_front();
  }
  batch.dropped = dropped_;
  return batch;
}

uint64_t count_events(const TraceBatch& batch) {
  uint64_t events = batch.events.size();
  for (const TraceOperation& operation : batch.operations) events += operation.events();
  return events;
}

}  // namespace rueda::observe
