// The header of every frame on the data plane, and the hello that opens a channel.
// Format: docs/protocol.md, "Frames". Little-endian, fixed layout, on every transport.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>

#include "daemon/base/limits.h"

namespace rueda::transport {

inline constexpr uint16_t kFrameMagic = 0x4452;  // "RD"
inline constexpr uint8_t kWireVersion = 5;

enum class FrameKind : uint8_t {
  kReduce = 1,  // a partial sum on its way to where it becomes final
  kGather = 2,  // final values on their way to those who keep them
  kCredit = 3,  // no payload: `slot` is free again (transports use it among themselves)
  kStable = 4,  // no payload: R2's trailing acknowledgement
  // Round the ring before the first operation: a message that is timed, and which algorithm takes
  // how many bytes.
  kProbe = 5,
  kTable = 6,
};

// A chunk or a message of an operation; not of the transports' or the nodes' own business.
constexpr bool is_of_operation(FrameKind kind) {
  return kind == FrameKind::kReduce || kind == FrameKind::kGather;
}
// What a channel delivers.
constexpr bool is_delivered(FrameKind kind) {
  return is_of_operation(kind) || kind == FrameKind::kStable || kind == FrameKind::kProbe ||
         kind == FrameKind::kTable;
}

// What PROTOCOL L3 asks every frame to carry, and where its payload goes.
struct FrameHeader {
  uint16_t magic = kFrameMagic;
  uint8_t version = kWireVersion;
  FrameKind kind = FrameKind::kReduce;
  uint32_t slot = 0;  // slot of the receiver that the payload is written into
  uint64_t job = 0;   // hash of the job id
  uint32_t epoch = 0;
  uint32_t lock_generation = 0;  // 0: decreed, not locked
  uint32_t process_set = 0;
  // Round the ring: piece * shards + shard (core/schedules/ring_schedule.h). Over the mesh: piece *
  // 2 + which message of the piece it is on this channel. kStable: hops so far; kProbe: which one
  // it is.
  uint32_t chunk = 0;
  uint64_t seq = 0;        // operation number in (job, epoch)
  uint64_t plan_hash = 0;  // hash of the batch; both sides must mean the same one
  // R2, of the operation's track; 0 where nothing is held. kReduce: operations up to here are
  // complete on every node that the frame has passed. Else: on all nodes.
  uint64_t stable_seq = 0;
  uint32_t payload_bytes = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(FrameHeader) == 64);
static_assert(offsetof(FrameHeader, job) == 8 && offsetof(FrameHeader, chunk) == 28 &&
              offsetof(FrameHeader, seq) == 32 && offsetof(FrameHeader, payload_bytes) == 56);

using JobToken = std::array<std::byte, limits::kTokenBytes>;

// Which channel a connection wants to be. Sent first by the connecting side, with a MAC over it.
struct ChannelId {
  uint64_t job = 0;
  uint32_t epoch = 0;
  int32_t from_node = 0;  // NodeIndex of the writing side
  int32_t to_node = 0;    // NodeIndex of the reading side
  uint32_t stream = 0;    // of the channel's streams
  uint32_t process_set = 0;
  uint32_t reserved = 0;
  auto operator<=>(const ChannelId&) const = default;
};
static_assert(sizeof(ChannelId) == 32);

}  // namespace rueda::transport
