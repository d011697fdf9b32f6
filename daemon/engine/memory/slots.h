// Decides which slot of the neighbour a chunk is written into. Every chunk that can be under way
// has a slot of its own, so that no chunk ever waits for a later one: the ring cannot deadlock.
//
// A lane serves one operation at a time (operation s has lane s mod lanes). Within it the pieces of
// the window have a slot for each shard and phase. An operation with a root goes down a chain of
// nodes, has lanes of its own (core/model/track.h), and uses the slots of its lane one after the
// other.
#pragma once

#include <algorithm>
#include <cstdint>

#include "daemon/core/model/track.h"
#include "daemon/core/schedules/ring_schedule.h"

namespace rueda::engine {

struct SlotGeometry {
  int lanes = 4;   // The lockable operations under way: core's max_launched_operations.
  int window = 4;  // The pieces of one operation under way.
  int nodes = 2;
  uint32_t slot_bytes = 256 * 1024;
  bool acknowledges = false;  // R2: there is a slot for the trailing acknowledgement of each track.

  // Returns the geometry of a ring. Chunks stay in cache (docs/architecture.md), and shrink where
  // many nodes would exceed `budget_bytes`.
  static SlotGeometry make(int nodes, int lanes, uint64_t chunk_bytes, uint64_t budget_bytes,
                           bool acknowledges = false) {
    SlotGeometry geometry;
    geometry.nodes = nodes;
    geometry.lanes = lanes;
    geometry.acknowledges = acknowledges;
    const uint64_t fair = budget_bytes / (geometry.slots() + geometry.origin_buffers());
    const uint64_t bytes = std::clamp<uint64_t>(std::min(chunk_bytes, fair), 4096, 4u << 20);
    geometry.slot_bytes = static_cast<uint32_t>(bytes / 4096 * 4096);
    return geometry;
  }

  uint32_t slots_per_lane() const { return static_cast<uint32_t>(window * nodes * 2); }
  uint32_t slots_per_chain() const { return static_cast<uint32_t>(window * 2); }
  // Returns the number of slots for chunks. The slots for acknowledgements come behind them.
  uint32_t chunk_slots() const {
    return static_cast<uint32_t>(lanes) * slots_per_lane() +
           core::kDecreedWindow * slots_per_chain();
  }
  uint32_t slots() const { return chunk_slots() + (acknowledges ? core::kTracks : 0); }
  uint32_t origin_buffers() const {
    return static_cast<uint32_t>((lanes + core::kDecreedWindow) * window);
  }
  uint64_t total_bytes() const { return uint64_t{slots() + origin_buffers()} * slot_bytes; }

  uint32_t all_lanes() const { return static_cast<uint32_t>(lanes + core::kDecreedWindow); }
  uint32_t lane(Seq seq) const {
    const uint64_t number = core::number_of(seq);
    if (core::track_of(seq) == core::Track::kLockable) {
      return static_cast<uint32_t>(number % static_cast<uint64_t>(lanes));
    }
    return static_cast<uint32_t>(lanes) + static_cast<uint32_t>(number % core::kDecreedWindow);
  }

  // Returns how many operations the lane has had before this one.
  int64_t turn(Seq seq) const { return static_cast<int64_t>(core::number_of(seq)) / lanes; }

  uint32_t ring_slot(Seq seq, int64_t piece, int shard, core::RingPhase phase) const {
    const auto in_window = static_cast<uint32_t>(piece % window);
    return lane(seq) * slots_per_lane() +
           (in_window * static_cast<uint32_t>(nodes) + static_cast<uint32_t>(shard)) * 2 +
           (phase == core::RingPhase::kGather ? 1 : 0);
  }
  uint32_t chain_slot(Seq seq, int64_t piece) const {
    const uint32_t before = static_cast<uint32_t>(lanes) * slots_per_lane();
    return before + (lane(seq) - static_cast<uint32_t>(lanes)) * slots_per_chain() +
           static_cast<uint32_t>(piece % slots_per_chain());
  }
  uint32_t acknowledgement_slot(core::Track track) const {
    return chunk_slots() + static_cast<uint32_t>(core::index_of(track));
  }
  // Returns the buffer in which this node keeps a chunk that it starts itself until it is sent.
  uint32_t origin_buffer(Seq seq, int64_t piece) const {
    return lane(seq) * static_cast<uint32_t>(window) + static_cast<uint32_t>(piece % window);
  }
};

}  // namespace rueda::engine
