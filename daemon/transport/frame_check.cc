#include "daemon/transport/frame_check.h"

#include <cinttypes>
#include <cstdio>

#include "daemon/base/check.h"

namespace rueda::transport {

namespace {

Status violation(const std::string& peer, const std::string& what) {
  return {Code::kInternal, peer + " broke the frame protocol: " + what};
}

const char* what_is_wrong_with(SlotState state) {
  switch (state) {
    case SlotState::kArriving: return " is already being written";
    case SlotState::kHeld: return " still holds a frame";
    case SlotState::kReleased: return " has not been given back yet";
    case SlotState::kWriters: break;
  }
  return nullptr;
}

}  // namespace

std::string describe(const ChannelId& id) {
  char text[160];
  const std::string set =
      id.process_set == 0 ? "" : ", process set " + std::to_string(id.process_set);
  std::snprintf(text, sizeof(text),
                "channel %" PRId32 "->%" PRId32 " stream %" PRIu32 " (job %016" PRIx64
                ", epoch %" PRIu32 "%s)",
                id.from_node, id.to_node, id.stream, id.job.first, id.epoch, set.c_str());
  return text;
}

Status check_geometry(const ChannelId& id, uint32_t slot_count) {
  if (slot_count == 0 || slot_count > kMaxSlots) {
    return {Code::kInvalidArgument, describe(id) + " was given " + std::to_string(slot_count) +
                                        " slots, it takes 1 to " + std::to_string(kMaxSlots)};
  }
  return Status::ok();
}

Status check_slots(const ChannelId& id, const SlotRegion& slots, const RegionTable& regions) {
  if (Status status = check_geometry(id, slots.count); !status.is_ok()) return status;
  const size_t bytes = size_t{slots.count} * slots.slot_bytes;
  if (!regions.contains(slots.region, slots.base, bytes)) {
    return {Code::kInvalidArgument,
            "the slots of " + describe(id) + " do not lie in the region registered for them"};
  }
  return Status::ok();
}

Status geometry_mismatch(const ChannelId& id, const Geometry& writers, const Geometry& readers) {
  const auto text = [](const Geometry& geometry) {
    return std::to_string(geometry.slot_count) + " slots of " +
           std::to_string(geometry.slot_bytes) + " bytes over " + std::to_string(geometry.streams) +
           (geometry.streams == 1 ? " stream" : " streams") +
           (geometry.protection == Protection::kNone
                ? std::string()
                : std::string(" with --data-protection ") + to_string(geometry.protection));
  };
  return {Code::kMismatch, describe(id) + " has " + text(writers) + " on node " +
                               std::to_string(id.from_node) + " and " + text(readers) +
                               " on node " + std::to_string(id.to_node) +
                               "; both daemons must be configured alike"};
}

Status taken(const ChannelId& id) {
  return {Code::kUnavailable,
          describe(id) + " is awaited or opened already, by another of the same id"};
}

Status check_frame(const FrameHeader& header, const ChannelId& id, uint32_t slot_bytes,
                   const SlotStates& states, const std::string& peer) {
  if (header.magic != kFrameMagic) return violation(peer, "a frame does not begin with the magic");
  if (header.version != kWireVersion) {
    return {Code::kVersion, peer + " sent a frame of wire version " +
                                std::to_string(header.version) + ", this daemon speaks " +
                                std::to_string(kWireVersion)};
  }
  if (!is_delivered(header.kind)) {
    return violation(peer, "unknown frame kind " + std::to_string(static_cast<int>(header.kind)));
  }
  if (header.job != id.job.first)
    return violation(peer, "a frame of another job on " + describe(id));
  if (header.epoch != id.epoch) {
    return violation(peer,
                     "a frame of epoch " + std::to_string(header.epoch) + " on " + describe(id));
  }
  if (header.slot >= states.size()) {
    return violation(
        peer, "slot " + std::to_string(header.slot) + " of " + std::to_string(states.size()));
  }
  if (header.payload_bytes > slot_bytes) {
    return violation(peer, "a payload of " + std::to_string(header.payload_bytes) +
                               " bytes for slots of " + std::to_string(slot_bytes));
  }
  if (const char* wrong = what_is_wrong_with(states[header.slot])) {
    return violation(peer, "slot " + std::to_string(header.slot) + wrong);
  }
  return Status::ok();
}

Status changed_on_its_way(const std::string& peer, const ChannelId& id) {
  return violation(peer, "a frame on " + describe(id) +
                             " was changed on its way, or is not the one that belongs there");
}

void check_write(const FrameHeader& header, std::span<const SendBuffer> buffers,
                 uint32_t slot_bytes, const RegionTable& regions) {
  RUEDA_CHECK(buffers.size() <= kMaxBuffersPerWrite);
  RUEDA_CHECK(header.payload_bytes <= slot_bytes);
  size_t bytes = 0;
  for (const SendBuffer& buffer : buffers) {
    RUEDA_CHECK(regions.contains(buffer.region, buffer.data, buffer.bytes));
    bytes += buffer.bytes;
  }
  RUEDA_CHECK(bytes == header.payload_bytes);
}

}  // namespace rueda::transport
