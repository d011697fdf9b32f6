// The messages between the daemon and a GPU worker, over a pair of SOCK_SEQPACKET sockets: each
// message is a packet of at most kMaxMessageBytes, with at most one descriptor. Both ends are the
// same program.
//
// An operation is a sequence of commands for one stream: the counters that it waits for (kWait),
// launches (kReduce) and copies (kCopy), counters that it writes (kWrite) and its end (kEnd). The
// counters are written whether or not the launches succeed, so that nobody waits for them for ever.
// Memory is named by numbers that the daemon gives out, and offsets in it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"
#include "daemon/gpu/device.h"

namespace rueda::gpu {

// This is well under what a socket takes at once (net.core.wmem_default).
inline constexpr size_t kMaxMessageBytes = 64 << 10;
inline constexpr uint32_t kMaxWorkerMemories = 16384;
// The kernels of all communicators must be on the device at the same time, or two may wait for each
// other.
inline constexpr uint32_t kMaxCommunicators = 8;
// All streams are made when a device is opened: making a stream later may wait for streams that
// wait for a counter.
inline constexpr uint32_t kMaxWorkerStreams = 3 + kMaxCommunicators;
// The most waits, launches and writes of an operation. A fused batch has a write for each tensor
// and rank.
inline constexpr size_t kMaxCommands = 16384;

enum class WorkerMessage : uint32_t {
  // These come from the daemon.
  kOpen = 1,          // OpenBody; the first message, sent once
  kAddMemory = 2,     // AddMemoryBody; answered
  kRemoveMemory = 3,  // RemoveMemoryBody; for memory that no later command names
  kWait = 4,          // WaitBody
  kReduce = 5,        // ReduceBody, segments
  kWrite = 6,         // WriteBody, writes
  kEnd = 7,           // EndBody; answered when everything before it is done
  kCopy = 8,          // CopyBody
  kJoinMemory = 9,    // JoinMemoryBody, then the numbers of the pieces; answered
  kMakeId = 10,       // CommunicatorBody; answered
  // ConnectBody; the first command that needs the communicator waits until all members have come
  kConnect = 11,
  kDisconnect = 12,  // CommunicatorBody; for a communicator that no later command names
  kAcross = 13,      // AcrossBody
  // These come from the worker. kReady has a ReadyBody: a device is open; for a device after the
  // first it comes before kMemoryAdded.
  kReady = 16,
  kMemoryAdded = 17,  // OutcomeBody about the memory's number, text; answers 2 and 9
  kEnded = 18,        // OutcomeBody about the operation's number, text
  kAlive = 19,        // No body; sent while the worker has work.
  kLost = 20,         // OutcomeBody, text: the worker is about to end, for this reason
  kIdMade = 21,  // CommunicatorId, OutcomeBody about the communicator's number, text; answers 10
  // ExportedBody, OutcomeBody about the memory's number, text, and a descriptor if the outcome is
  // good: whether a network card may read memory of kScratch by itself. It comes before the
  // kMemoryAdded of that memory, if that is good, too.
  kExported = 22,
};

enum class MemoryKind : uint32_t {
  kIpc = 0,      // Device memory, by its IPC handle.
  kFd = 1,       // Device memory, by a descriptor.
  kHost = 2,     // A memfd that cannot shrink, and is pinned.
  kScratch = 3,  // Memory of the first device, allocated by the worker.
  kJoined = 4,   // Only kJoinMemory makes it.
  kMapped = 5,   // It is like kHost, but kernels use it like device memory.
};

struct OpenBody {
  std::array<uint8_t, 16> uuid{};  // The uuid of the first device.
  // The time within which a batch that has begun must be done, or the device is taken for lost.
  // Messages kAlive are at least half a second apart.
  int64_t timeout_ms = 0;
  uint64_t memory_limit_bytes = 0;  // The limit of each device.
};

// For kIpc and kFd the memory's GPU is opened, too, if it is not open yet.
struct AddMemoryBody {
  uint32_t memory = 0;
  MemoryKind kind = MemoryKind::kIpc;
  uint64_t bytes = 0;
  std::array<uint8_t, 16> uuid{};  // The GPU that has the memory; unset for other kinds.
  std::array<std::byte, 64> ipc{};
};

// Joins memory of kFd of one GPU, each number once, into one range of addresses. Pieces and joined
// memory may be removed in any order.
struct JoinMemoryBody {
  uint32_t memory = 0;
  uint32_t pieces = 0;  // The number of uint32_t that follow.
};

struct RemoveMemoryBody {
  uint32_t memory = 0;
};

struct Place {
  uint32_t memory = 0;
  uint32_t reserved = 0;
  uint64_t offset = 0;
};

struct WaitBody {
  uint32_t stream = 0;
  uint32_t reserved = 0;
  Place counter;
  uint64_t value = 0;
};

// A copy between device and host memory, in either direction.
struct CopyBody {
  uint32_t stream = 0;
  uint32_t reserved = 0;
  Place to;
  Place from;
  uint64_t bytes = 0;
};

// A communicator of the first device. Numbers are never used again.
struct CommunicatorBody {
  uint32_t communicator = 0;
};

struct ConnectBody {
  uint32_t communicator = 0;
  int32_t rank = 0;
  int32_t size = 0;
  uint32_t reserved = 0;
  int64_t timeout_ms = 0;  // The time for all members to come; otherwise the worker ends.
  CommunicatorId id{};
};

// The data at a place in device memory are reduced among all members of a communicator, or
// broadcast to them. A stream with such commands has no deadline, because it waits for other nodes.
struct AcrossBody {
  uint32_t stream = 0;
  uint32_t communicator = 0;
  Place at;
  uint64_t count = 0;  // In elements.
  int32_t root = -1;   // For a broadcast, the member that is the root; else -1.
  uint8_t dtype = 0;
  uint8_t op = 0;
  uint16_t reserved = 0;
};

inline constexpr uint8_t kNoDType = 0xff;

// Segments follow. Each is a uint64_t count, then as many Places as the body says: the partial if
// there is one, the sources, the destinations.
struct ReduceBody {
  uint32_t stream = 0;
  uint8_t dtype = 0;
  uint8_t partial_dtype = kNoDType;
  uint8_t dst_dtype = kNoDType;
  uint8_t op = 0;
  double prescale = 1;
  double postscale = 1;
  int64_t divisor = 1;
  uint32_t segments = 0;
  uint16_t sources = 0;
  uint8_t destinations = 0;
  uint8_t has_partial = 0;
};

struct WriteBody {
  uint32_t stream = 0;
  uint32_t writes = 0;  // The number of CounterWrites that follow.
};

struct CounterWrite {
  Place counter;
  uint64_t value = 0;
};

struct EndBody {
  uint32_t stream = 0;
  uint32_t reserved = 0;
  uint64_t operation = 0;
};

struct ReadyBody {
  std::array<char, 64> name{};
  std::array<uint8_t, 16> uuid{};
  uint8_t has_mps = 0;
};

// What the descriptor of a DmaBuf stands for; 0 if there is none.
struct ExportedBody {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

struct OutcomeBody {
  uint64_t about = 0;
  int32_t code = 0;
  uint32_t text_bytes = 0;  // The length of the sentence that follows.
};

// A message that is being built, or taken apart. Bodies are trivially copyable.
class Packet {
 public:
  Packet() = default;
  explicit Packet(WorkerMessage type);

  template <class Body>
  Packet& add(const Body& body) {
    static_assert(std::is_trivially_copyable_v<Body>);
    return add_bytes(&body, sizeof body);
  }
  Packet& add_bytes(const void* data, size_t bytes);
  size_t bytes() const { return bytes_.size(); }

  WorkerMessage type() const;
  // Takes the next Body of the message; returns false when too few bytes are left.
  template <class Body>
  bool take(Body& body) {
    static_assert(std::is_trivially_copyable_v<Body>);
    return take_bytes(&body, sizeof body);
  }
  bool take_bytes(void* data, size_t bytes);
  bool is_taken() const { return at_ == bytes_.size(); }

  // It is released when the descriptor has been closed here: the pointer's last holder can then
  // close the last copy.
  std::shared_ptr<void> behind_fd;
  UniqueFd fd;

 private:
  friend class PacketSocket;
  std::vector<std::byte> bytes_;
  size_t at_ = sizeof(WorkerMessage);
};

// Adds an outcome, which must be the last part of a message.
void add_outcome(Packet& packet, uint64_t about, const Status& status);
Packet make_outcome(WorkerMessage type, uint64_t about, const Status& status);
// The outcome that a received message tells.
struct Outcome {
  uint64_t about = 0;
  Status status;
};
std::optional<Outcome> take_outcome(Packet& packet);

// One end of the socket pair; its calls never block.
class PacketSocket {
 public:
  explicit PacketSocket(UniqueFd fd) : fd_(std::move(fd)) {}
  int fd() const { return fd_.get(); }

  enum class Io { kDone, kWouldBlock, kClosed };
  Io send(const Packet& packet);
  // Receives a packet. Returns kClosed also for bytes that are no packet of a worker's.
  Io receive(Packet& packet);

 private:
  UniqueFd fd_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kMaxMessageBytes);
};

// Makes both ends, which are closed on exec.
Result<std::pair<UniqueFd, UniqueFd>> make_packet_sockets();

}  // namespace rueda::gpu
