#include "daemon/observe/trace.h"

#include <algorithm>
#include <cstddef>

namespace rueda::observe {

uint32_t TraceBuffer::track(const std::string& name) {
  const auto found = tracks_.find(name);
  if (found != tracks_.end()) return found->second;
  if (tracks_.size() >= max_tracks_) return kNoTrack;
  const auto added = tracks_.emplace(name, static_cast<uint32_t>(names_.size())).first;
  names_.push_back(&added->first);
  named_in_.push_back(0);
  return added->second;
}

void TraceBuffer::add(const TraceEvent& event) {
  if (event.track == kNoTrack || events_.size() >= max_events_) {
    ++dropped_;
    return;
  }
  events_.push_back(event);
}

TraceBatch TraceBuffer::take(size_t most) {
  TraceBatch batch;
  ++batches_;
  const auto end = events_.begin() + static_cast<std::ptrdiff_t>(std::min(most, events_.size()));
  batch.events.assign(events_.begin(), end);
  events_.erase(events_.begin(), end);
  for (const TraceEvent& event : batch.events) {
    if (std::exchange(named_in_[event.track], batches_) == batches_) continue;
    batch.tracks.emplace_back(event.track, *names_[event.track]);
  }
  batch.dropped = dropped_;
  return batch;
}

}  // namespace rueda::observe
