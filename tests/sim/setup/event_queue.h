// Holds what is still to happen, by time. Ties are broken by insertion, so that a run repeats
// exactly.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "daemon/core/job/job.h"

namespace rueda::sim {

// Describes one thing that happens.
struct SimEvent {
  enum class Kind : uint8_t { kEvent, kRankActs, kFaultBegins, kFaultEnds, kLinkTimesOut };
  Kind kind = Kind::kEvent;
  int subject = 0;     // a node, a rank, or the index of the fault
  uint32_t epoch = 0;  // for an event of this epoch's data plane; 0: another event
  core::Event event = core::TimePassed{};
  uint32_t generation = 0;   // of an operation that is done
  uint64_t plan_hash = 0;    // of an operation that is done
  uint32_t incarnation = 0;  // for a message of this incarnation of its link; 0: no message
};

class EventQueue {
 public:
  TicksMs now() const { return now_; }
  bool empty() const { return heap_.empty(); }

  void at(TicksMs time, SimEvent event);
  void at(TicksMs time, int node, core::Event event) {
    at(time, {SimEvent::Kind::kEvent, node, 0, std::move(event)});
  }
  // Adds an event of an epoch's data plane, which is forgotten if the epoch is over by then.
  void at(TicksMs time, int node, uint32_t epoch, core::Event event) {
    at(time, {SimEvent::Kind::kEvent, node, epoch, std::move(event)});
  }
  // Removes the next one and moves the clock to it.
  SimEvent take();

 private:
  // Events are large and stay where they are; the heap moves these entries.
  struct Entry {
    TicksMs time;
    uint64_t order;
    uint32_t slot;
    bool operator>(const Entry& other) const {
      return time != other.time ? time > other.time : order > other.order;
    }
  };

  TicksMs now_ = 0;
  uint64_t order_ = 0;
  std::vector<Entry> heap_;
  std::vector<SimEvent> slots_;
  std::vector<uint32_t> free_;
};

inline void EventQueue::at(TicksMs time, SimEvent event) {
  uint32_t slot = static_cast<uint32_t>(slots_.size());
  if (free_.empty()) {
    slots_.push_back(std::move(event));
  } else {
    slot = free_.back();
    free_.pop_back();
    slots_[slot] = std::move(event);
  }
  heap_.push_back({time, order_++, slot});
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

inline SimEvent EventQueue::take() {
  std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
  const Entry entry = heap_.back();
  heap_.pop_back();
  free_.push_back(entry.slot);
  now_ = entry.time;
  return std::move(slots_[entry.slot]);
}

}  // namespace rueda::sim
