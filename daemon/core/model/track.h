// A job has two orders of operations that do not wait for each other (docs/protocol.md, rules L1
// and L2). An operation that needs every member before it can end on any is lockable. An operation
// that may end on one member before another has begun could not be cancelled, so it is always
// decreed, and so is what NCCL carries (core/model/descriptor.h). A join is lockable, because its
// place is behind everything that its ranks have submitted.
//
// Both orders live in one number: the top bit of a Seq says which order it belongs to.
#pragma once

#include <cstdint>

#include "daemon/base/dtype.h"
#include "daemon/base/ids.h"

namespace rueda::core {

enum class Track : uint8_t { kLockable = 0, kDecreed = 1 };
inline constexpr int kTracks = 2;

inline constexpr uint64_t kDecreedBit = uint64_t{1} << 63;

constexpr Track track_of(CollectiveKind kind) {
  if (kind == CollectiveKind::kJoin) return Track::kLockable;
  return has_root(kind) || !moves_data(kind) ? Track::kDecreed : Track::kLockable;
}
constexpr Track track_of(Seq seq) {
  return (seq.value & kDecreedBit) ? Track::kDecreed : Track::kLockable;
}
// The first number of the track. Numbers count from 1 in each track; 0 is before the first.
constexpr Seq first_of(Track track) {
  return Seq{(track == Track::kDecreed ? kDecreedBit : 0) + 1};
}
constexpr Seq before_first_of(Track track) { return Seq{first_of(track).value - 1}; }
// The number within the track, which is what people are shown.
constexpr uint64_t number_of(Seq seq) { return seq.value & ~kDecreedBit; }
constexpr size_t index_of(Track track) { return static_cast<size_t>(track); }

// The window of the decreed track, in operations. It is short, because what is decreed is small and
// has few lanes.
inline constexpr int kDecreedWindow = 2;
constexpr int window_of(Track track, int lockable_window) {
  return track == Track::kDecreed ? kDecreedWindow : lockable_window;
}

}  // namespace rueda::core
