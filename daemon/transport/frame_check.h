// The rules of frames that do not depend on what carries the frames.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/transport/frame.h"
#include "daemon/transport/region_table.h"
#include "daemon/transport/seal.h"
#include "daemon/transport/transport.h"

namespace rueda::transport {

// The states of a slot, as its reader sees them.
enum class SlotState : uint8_t {
  kWriters,   // The other end may write the slot.
  kArriving,  // A header for the slot has come, and its payload not yet as a whole.
  kHeld,      // A frame was handed to on_frame and has not been released.
  kReleased,  // The frame was released, and the credit has not left yet.
};
using SlotStates = std::vector<SlotState>;

inline constexpr uint32_t kMaxSlots = 1u << 16;

// Returns a text such as "channel 0->1 stream 2 (job 00000000000000ab, epoch 3)".
std::string describe(const ChannelId& id);

// Returns the kUnavailable of a channel that is awaited or opened already: of two attempts at the
// same id the second one fails.
Status taken(const ChannelId& id);

// Returns kInvalidArgument unless there are 1 to kMaxSlots slots.
Status check_geometry(const ChannelId& id, uint32_t slot_count);
// Checks the geometry, and that the slots lie in their registered region.
Status check_slots(const ChannelId& id, const SlotRegion& slots, const RegionTable& regions);

// The properties that both ends of a channel must have alike.
struct Geometry {
  uint32_t slot_count = 0;
  uint32_t slot_bytes = 0;
  uint32_t streams = 1;
  Protection protection = Protection::kNone;
  bool operator==(const Geometry&) const = default;
};
inline Geometry geometry_of(const ConnectOptions& options, Protection protection) {
  return {options.slot_count, options.slot_bytes, options.streams, protection};
}
inline Geometry geometry_of(const AcceptOptions& options, Protection protection) {
  return {options.slots.count, options.slots.slot_bytes, options.streams, protection};
}
// Returns the kMismatch that names both geometries.
Status geometry_mismatch(const ChannelId& id, const Geometry& writers, const Geometry& readers);

// Returns an error if a header from the other end, which `peer` names, breaks a rule: kVersion for
// another version, kInternal for every other violation.
Status check_frame(const FrameHeader& header, const ChannelId& id, uint32_t slot_bytes,
                   const SlotStates& states, const std::string& peer);

// Returns the kInternal of a sealed frame that did not open.
Status changed_on_its_way(const std::string& peer, const ChannelId& id);

// Aborts if a write() breaks the contract, which is a bug on this side.
void check_write(const FrameHeader& header, std::span<const SendBuffer> buffers,
                 uint32_t slot_bytes, const RegionTable& regions);

}  // namespace rueda::transport
