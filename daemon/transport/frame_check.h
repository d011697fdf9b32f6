// The rules of frames that do not depend on what carries them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/transport/frame.h"
#include "daemon/transport/region_table.h"
#include "daemon/transport/transport.h"

namespace rueda::transport {

// Whose a slot is, as its reader sees it.
enum class SlotState : uint8_t {
  kWriters,   // free to be written by the other end
  kArriving,  // a header for it has come, its payload has not come whole
  kHeld,      // handed to on_frame, not released
  kReleased,  // released, its credit has not left yet
};
using SlotStates = std::vector<SlotState>;

inline constexpr uint32_t kMaxSlots = 1u << 16;

// "channel 0->1 stream 2 (job 00000000000000ab, epoch 3)"
std::string describe(const ChannelId& id);

// The channel is awaited or opened already: of two that want the same id the second one fails.
Status taken(const ChannelId& id);

// kInvalidArgument unless there are 1 to kMaxSlots slots.
Status check_geometry(const ChannelId& id, uint32_t slot_count);
// check_geometry(), and the slots lie in their registered region.
Status check_slots(const ChannelId& id, const SlotRegion& slots, const RegionTable& regions);

// What both ends of a channel must have alike.
struct Geometry {
  uint32_t slot_count = 0;
  uint32_t slot_bytes = 0;
  uint32_t streams = 1;
  bool operator==(const Geometry&) const = default;
};
inline Geometry geometry_of(const ConnectOptions& options) {
  return {options.slot_count, options.slot_bytes, options.streams};
}
inline Geometry geometry_of(const AcceptOptions& options) {
  return {options.slots.count, options.slots.slot_bytes, options.streams};
}
// kMismatch: they do not.
Status geometry_mismatch(const ChannelId& id, const Geometry& writers, const Geometry& readers);

// What is wrong with a header that came from the other end, `peer` in the message. kVersion for
// another version, kInternal for every other violation.
Status check_frame(const FrameHeader& header, const ChannelId& id, uint32_t slot_bytes,
                   const SlotStates& states, const std::string& peer);

// Aborts when a write() breaks the contract: that is a bug on this side.
void check_write(const FrameHeader& header, std::span<const SendBuffer> buffers,
                 uint32_t slot_bytes, const RegionTable& regions);

}  // namespace rueda::transport
