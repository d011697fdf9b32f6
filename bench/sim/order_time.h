// Holds what is still to happen in a run of order traffic, by time. Ties are broken by insertion,
// so that a run repeats exactly.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "daemon/core/job/job_events.h"

namespace rueda::scale {

using Micros = int64_t;  // virtual time, from 0

inline Micros to_micros(double ms) { return std::llround(ms * 1e3); }
inline double to_ms(Micros us) { return static_cast<double>(us) / 1e3; }

struct Moment {
  enum class Kind : uint8_t { kEvent, kTurn, kSubmits, kDies };
  Kind kind = Kind::kEvent;
  int node = 0;
  uint32_t slot = 0;  // the place of the event
};

class TimeLine {
 public:
  Micros now() const { return now_; }
  TicksMs now_ms() const { return now_ / 1000; }
  bool empty() const { return heap_.empty(); }

  void at(Micros time, int node, Moment::Kind kind) { push(time, {kind, node, 0}); }
  void at(Micros time, int node, core::Event event) {
    uint32_t slot = static_cast<uint32_t>(events_.size());
    if (free_.empty()) {
      events_.push_back(std::move(event));
    } else {
      slot = free_.back();
      free_.pop_back();
      events_[slot] = std::move(event);
    }
    push(time, {Moment::Kind::kEvent, node, slot});
  }
  // Removes the next one and moves the clock to it. Of an event, event_of() must follow.
  Moment take() {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const Entry entry = heap_.back();
    heap_.pop_back();
    now_ = std::max(now_, entry.time);
    return entry.moment;
  }
  core::Event event_of(const Moment& moment) {
    free_.push_back(moment.slot);
    return std::move(events_[moment.slot]);
  }

 private:
  struct Entry {
    Micros time;
    uint64_t order;
    Moment moment;
    bool operator>(const Entry& other) const {
      return time != other.time ? time > other.time : order > other.order;
    }
  };

  void push(Micros time, Moment moment) {
    heap_.push_back({time, order_++, moment});
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  Micros now_ = 0;
  uint64_t order_ = 0;
  std::vector<Entry> heap_;
  std::vector<core::Event> events_;
  std::vector<uint32_t> free_;
};

}  // namespace rueda::scale
