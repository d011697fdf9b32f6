// The header of every frame on the data plane, and the id of the channel that it travels on. The
// format is in docs/protocol.md, "Frames": little-endian, with a fixed layout, on every transport.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>

#include "daemon/base/limits.h"

namespace rueda::transport {

inline constexpr uint16_t kFrameMagic = 0x4452;  // "RD"
inline constexpr uint8_t kWireVersion = 7;

enum class FrameKind : uint8_t {
  kReduce = 1,  // A partial sum on its way to where it becomes final.
  kGather = 2,  // Final values on their way to those who keep them.
  kCredit = 3,  // No payload: `slot` is free again. Transports use it among themselves.
  kStable = 4,  // No payload: it carries R2's trailing acknowledgement.
  // These two go round the ring before the first operation: a message that is timed, and the table
  // that says which algorithm takes messages of how many bytes.
  kProbe = 5,
  kTable = 6,
  kCredits = 7,  // No frame, but what sealed credits begin with (tcp/credit.h).
  // A part of what one rank sends to another (core/job/transfers.h): `seq` is the transfer's
  // number, and `chunk` the part's.
  kTransfer = 8,
  // A message about transfers (core/messages/transfer_messages.h), beside their data. An offer may
  // have the data with it.
  kTransferMessage = 9,
};

// Returns true for a chunk or a message of an operation; the other kinds are the transports' or the
// nodes' own business.
constexpr bool is_of_operation(FrameKind kind) {
  return kind == FrameKind::kReduce || kind == FrameKind::kGather;
}
// Returns true for the kinds that a channel delivers to its reader.
constexpr bool is_delivered(FrameKind kind) {
  return is_of_operation(kind) || kind == FrameKind::kStable || kind == FrameKind::kProbe ||
         kind == FrameKind::kTable || kind == FrameKind::kTransfer ||
         kind == FrameKind::kTransferMessage;
}

// The header has what PROTOCOL L3 asks every frame to carry, and says where the payload goes.
struct FrameHeader {
  uint16_t magic = kFrameMagic;
  uint8_t version = kWireVersion;
  FrameKind kind = FrameKind::kReduce;
  uint32_t slot = 0;  // The receiver's slot that the payload is written into.
  uint64_t job = 0;   // The first half of the job's key.
  uint32_t epoch = 0;
  uint32_t lock_generation = 0;  // It is 0 if the operation was decreed, not locked.
  uint32_t process_set = 0;
  // On the ring it is piece * shards + shard (core/schedules/ring_schedule.h). On the mesh it is
  // piece * 2 + the number of the piece's message on this channel. In kStable it is the number of
  // hops so far, in kProbe the number of the probe.
  uint32_t chunk = 0;
  uint64_t seq = 0;        // The operation's number in (job, epoch).
  uint64_t plan_hash = 0;  // A hash of the batch, which must be equal on both sides.
  // R2's number for the operation's track; 0 if nothing is held. In kReduce, operations up to this
  // number are complete on every node that the frame has passed; in the other kinds, on all nodes.
  uint64_t stable_seq = 0;
  uint32_t payload_bytes = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(FrameHeader) == 64);
static_assert(offsetof(FrameHeader, job) == 8 && offsetof(FrameHeader, chunk) == 28 &&
              offsetof(FrameHeader, seq) == 32 && offsetof(FrameHeader, payload_bytes) == 56);

using JobToken = std::array<std::byte, limits::kTokenBytes>;

// Names a job on the data plane. It is derived from the job's token and its id, so nobody finds two
// jobs with the same, or one with that of a job whose token he does not have.
struct JobKey {
  constexpr JobKey() = default;
  constexpr explicit JobKey(uint64_t first_half, uint64_t second_half = 0)
      : first(first_half), second(second_half) {}

  uint64_t first = 0;
  uint64_t second = 0;
  auto operator<=>(const JobKey&) const = default;
};

// Names a channel. The connecting side sends it in its hello, under a MAC, to say which channel the
// connection is to be.
struct ChannelId {
  JobKey job;
  uint32_t epoch = 0;
  int32_t from_node = 0;  // The NodeIndex of the writing side.
  int32_t to_node = 0;    // The NodeIndex of the reading side.
  uint32_t stream = 0;    // The number of the stream among the channel's streams.
  uint32_t process_set = 0;
  uint32_t reserved = 0;
  auto operator<=>(const ChannelId&) const = default;
};
static_assert(sizeof(ChannelId) == 40);

}  // namespace rueda::transport
