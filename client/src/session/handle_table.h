// The table of a session's handles, and of its operations in flight by ticket. It belongs to the
// session, and its mutex guards it.
//
// Neither a submission nor a completion allocates memory here once the table has grown to what a
// training step uses.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "client/include/rueda/rueda.h"
#include "client/src/request/tensor.h"
#include "client/src/session/operation.h"
#include "client/src/session/session_mutex.h"
#include "daemon/base/mutex.h"

namespace rueda::client {

class HandleTable {
 public:
  // There are places for `capacity` operations in flight, a power of two.
  explicit HandleTable(uint32_t capacity) : in_flight_(capacity), capacity_(capacity) {}
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;

  // Returns the most operations that may be in flight.
  uint32_t capacity() const { return capacity_; }

  // Takes a handle for so many new operations, and gives it an id that no handle had before.
  Handle& take(size_t operations) RUEDA_REQUIRES(session_mutex);
  // Frees a handle that has ended, or that was never submitted.
  void give(Handle& handle) RUEDA_REQUIRES(session_mutex);
  // Returns null if the handle is unknown or has ended.
  Handle* find(rueda_handle id) RUEDA_REQUIRES(session_mutex);
  // Returns all handles, free ones among them (their id is 0).
  std::span<const std::unique_ptr<Handle>> all() const RUEDA_REQUIRES(session_mutex) {
    return handles_;
  }
  // Returns a copy of the characters that lives as long as an operation of a handle uses it. Equal
  // names have the same characters.
  std::string_view kept_name(std::string_view name) RUEDA_REQUIRES(session_mutex);

  // Puts the handle's operations in flight: each gets the next ticket whose place is free, and for
  // which is_barred(ticket) returns false. There must be room for them.
  template <class IsBarred>
  void take_tickets(Handle& handle, const IsBarred& is_barred) RUEDA_REQUIRES(session_mutex);
  // Takes the operation with this ticket out of flight, and returns it, or null if there is none
  // such: a completion may come of an operation that ended earlier for another reason.
  Operation* end(uint64_t ticket) RUEDA_REQUIRES(session_mutex);
  // Takes all operations out of flight, and calls ended(operation) for each.
  template <class Ended>
  void end_all(const Ended& ended) RUEDA_REQUIRES(session_mutex);
  // Returns true if so many more operations may be in flight.
  bool has_room(size_t operations) const RUEDA_REQUIRES(session_mutex) {
    return in_flight_count_ + operations <= capacity_;
  }
  size_t in_flight_count() const RUEDA_REQUIRES(session_mutex) { return in_flight_count_; }
  // Returns the places of operations in flight; free ones are null.
  std::span<Operation* const> in_flight() const RUEDA_REQUIRES(session_mutex) {
    return std::span(in_flight_).first(places_used_);
  }
  // Some operation must be in flight.
  const Operation& first_in_flight() const RUEDA_REQUIRES(session_mutex);

 private:
  // The low bits of a handle are its place in the table; the bits above count how often places had
  // been taken before.
  static constexpr int kPlaceBits = 24;
  static constexpr rueda_handle kPlaceMask = (rueda_handle{1} << kPlaceBits) - 1;

  Operation*& place_of(uint64_t ticket) RUEDA_REQUIRES(session_mutex) {
    return in_flight_[ticket & (capacity_ - 1)];
  }

  std::vector<std::unique_ptr<Handle>> handles_ RUEDA_GUARDED_BY(session_mutex);
  std::vector<Handle*> free_handles_ RUEDA_GUARDED_BY(session_mutex);
  uint64_t handles_taken_ RUEDA_GUARDED_BY(session_mutex) = 0;
  // Operations by ticket modulo capacity; the handles own them.
  std::vector<Operation*> in_flight_ RUEDA_GUARDED_BY(session_mutex);
  const uint32_t capacity_;
  // Counts the places ever used: none behind them was.
  size_t places_used_ RUEDA_GUARDED_BY(session_mutex) = 0;
  size_t in_flight_count_ RUEDA_GUARDED_BY(session_mutex) = 0;
  uint64_t last_ticket_ RUEDA_GUARDED_BY(session_mutex) = 0;
  // Holds names of submissions that were no repetition.
  std::unordered_set<std::string> names_ RUEDA_GUARDED_BY(session_mutex);
  size_t names_swept_at_ RUEDA_GUARDED_BY(session_mutex) = InternCache::kMost;
};

// A training step begins with nothing in flight, and then starts at the first place again: the
// daemon's memory for places that were used lately is in its cache.
template <class IsBarred>
void HandleTable::take_tickets(Handle& handle, const IsBarred& is_barred) {
  for (Operation& operation : handle.operations) {
    last_ticket_ =
        in_flight_count_ > 0 ? last_ticket_ + 1 : (last_ticket_ / capacity_ + 1) * capacity_;
    while (place_of(last_ticket_) != nullptr || is_barred(last_ticket_)) ++last_ticket_;
    places_used_ = std::max(places_used_, (last_ticket_ & (capacity_ - 1)) + 1);
    operation.record.ticket = last_ticket_;
    place_of(last_ticket_) = &operation;
    ++in_flight_count_;
  }
}

inline void HandleTable::give(Handle& handle) {
  handle.id = 0;
  free_handles_.push_back(&handle);
}

inline Handle* HandleTable::find(rueda_handle id) {
  const size_t place = id & kPlaceMask;
  if (id == 0 || place >= handles_.size() || handles_[place]->id != id) return nullptr;
  return handles_[place].get();
}

inline Operation* HandleTable::end(uint64_t ticket) {
  Operation*& place = place_of(ticket);
  if (place == nullptr || place->record.ticket != ticket) return nullptr;
  Operation* const ended = std::exchange(place, nullptr);
  // Completions come mostly in the order of tickets, and a step has more operations than fit the
  // cache.
  if (const Operation* soon = place_of(ticket + 8)) __builtin_prefetch(soon);
  if (const Operation* next = place_of(ticket + 4)) __builtin_prefetch(next->handle);
  --in_flight_count_;
  return ended;
}

template <class Ended>
void HandleTable::end_all(const Ended& ended) {
  for (Operation*& place : in_flight_) {
    if (place != nullptr) ended(*std::exchange(place, nullptr));
  }
  in_flight_count_ = 0;
}

}  // namespace rueda::client
