// What the daemon and a GPU worker say to each other, over a pair of SOCK_SEQPACKET sockets: one
// message a packet, at most kMaxMessageBytes, with at most one descriptor. Both ends are one
// program.
//
// An operation is a sequence of commands for one stream: what it waits for (kWait), launches
// (kReduce) and copies (kCopy), counters (kWrite) and its end (kEnd). The counters are written
// whether the launches went well or not: who waits for them is not to wait for ever. Memory goes by
// numbers that the daemon gives out, and offsets in it.
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

// Well under what a socket takes at once (net.core.wmem_default).
inline constexpr size_t kMaxMessageBytes = 64 << 10;
inline constexpr uint32_t kMaxWorkerMemories = 16384;
// Their kernels are on the device at the same time, or two may wait for each other.
inline constexpr uint32_t kMaxCommunicators = 8;
// There when a device is open: to make one later may wait for streams that wait for a counter.
inline constexpr uint32_t kMaxWorkerStreams = 3 + kMaxCommunicators;
// Waits, launches and writes of an operation. A fused batch has a write for each tensor and rank.
inline constexpr size_t kMaxCommands = 16384;

enum class WorkerMessage : uint32_t {
  // From the daemon:
  kOpen = 1,          // OpenBody; the first, once
  kAddMemory = 2,     // AddMemoryBody; answered
  kRemoveMemory = 3,  // RemoveMemoryBody; of memory that no command names any more
  kWait = 4,          // WaitBody
  kReduce = 5,        // ReduceBody, segments
  kWrite = 6,         // WriteBody, writes
  kEnd = 7,           // EndBody; answered when all before it is done
  kCopy = 8,          // CopyBody
  kJoinMemory = 9,    // JoinMemoryBody, numbers; answered
  kMakeId = 10,       // CommunicatorBody; answered
  kConnect = 11,      // ConnectBody; the first command that needs it waits until all have come
  kDisconnect = 12,   // CommunicatorBody; of what no command names any more
  kAcross = 13,       // AcrossBody
  // From the worker:
  kReady = 16,        // ReadyBody: a device is open; for others than the first before kMemoryAdded
  kMemoryAdded = 17,  // OutcomeBody of the memory's number, text; to 2 and 9
  kEnded = 18,        // OutcomeBody of the operation's, text
  kAlive = 19,        // none; while the worker has something to do
  kLost = 20,         // OutcomeBody, text: the worker is about to end, and why
  kIdMade = 21,       // CommunicatorId, OutcomeBody of the communicator's number, text; to 10
};

enum class MemoryKind : uint32_t {
  kIpc = 0,      // device memory, by its handle
  kFd = 1,       // device memory, by a descriptor
  kHost = 2,     // a memfd that cannot shrink, which is pinned
  kScratch = 3,  // memory of the first device, which the worker allocates
  kJoined = 4,   // kJoinMemory's alone
  kMapped = 5,   // as kHost, but for kernels, as if it were device memory
};

struct OpenBody {
  std::array<uint8_t, 16> uuid{};  // of the first device
  // A batch that has begun is done by then, or the device is taken for lost. Half a second at least
  // is between two kAlive.
  int64_t timeout_ms = 0;
  uint64_t memory_limit_bytes = 0;  // of each
};

// Of kIpc and kFd, the GPU is opened, too, if it is not yet.
struct AddMemoryBody {
  uint32_t memory = 0;
  MemoryKind kind = MemoryKind::kIpc;
  uint64_t bytes = 0;
  std::array<uint8_t, 16> uuid{};  // of the GPU whose memory it is; of others: none
  std::array<std::byte, 64> ipc{};
};

// Memory of kFd and one GPU, each number once, becomes one range of addresses. It may be removed in
// any order.
struct JoinMemoryBody {
  uint32_t memory = 0;
  uint32_t pieces = 0;  // uint32_t numbers that follow
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

// Between device and host memory, in either direction.
struct CopyBody {
  uint32_t stream = 0;
  uint32_t reserved = 0;
  Place to;
  Place from;
  uint64_t bytes = 0;
};

// Of the first device. Numbers are never used again.
struct CommunicatorBody {
  uint32_t communicator = 0;
};

struct ConnectBody {
  uint32_t communicator = 0;
  int32_t rank = 0;
  int32_t size = 0;
  uint32_t reserved = 0;
  int64_t timeout_ms = 0;  // for all to come, or the worker ends
  CommunicatorId id{};
};

// What is at a place in device memory goes to all members of a communicator: reduced among them, or
// broadcast. A stream with such commands has no deadline: it is other nodes that are waited for.
struct AcrossBody {
  uint32_t stream = 0;
  uint32_t communicator = 0;
  Place at;
  uint64_t count = 0;  // elements
  int32_t root = -1;   // of a broadcast, a member; else -1
  uint8_t dtype = 0;
  uint8_t op = 0;
  uint16_t reserved = 0;
};

inline constexpr uint8_t kNoDType = 0xff;

// Segments follow: each its uint64_t count, then as many Places as the body says: the partial if
// there is one, sources, destinations.
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
  uint32_t writes = 0;  // CounterWrites that follow
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

struct OutcomeBody {
  uint64_t about = 0;
  int32_t code = 0;
  uint32_t text_bytes = 0;  // of the sentence that follows
};

// A message under construction, or taken apart. Bodies are trivially copyable.
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
  // The next Body of those added; false when fewer bytes are left.
  template <class Body>
  bool take(Body& body) {
    static_assert(std::is_trivially_copyable_v<Body>);
    return take_bytes(&body, sizeof body);
  }
  bool take_bytes(void* data, size_t bytes);
  bool is_taken() const { return at_ == bytes_.size(); }

  // Let go of when the descriptor has been closed here: who holds it closes the last one.
  std::shared_ptr<void> behind_fd;
  UniqueFd fd;

 private:
  friend class PacketSocket;
  std::vector<std::byte> bytes_;
  size_t at_ = sizeof(WorkerMessage);
};

// The last of a message.
void add_outcome(Packet& packet, uint64_t about, const Status& status);
Packet make_outcome(WorkerMessage type, uint64_t about, const Status& status);
// Empty: it is none.
struct Outcome {
  uint64_t about = 0;
  Status status;
};
std::optional<Outcome> take_outcome(Packet& packet);

// One end of the pair; never blocks.
class PacketSocket {
 public:
  explicit PacketSocket(UniqueFd fd) : fd_(std::move(fd)) {}
  int fd() const { return fd_.get(); }

  enum class Io { kDone, kWouldBlock, kClosed };
  Io send(const Packet& packet);
  // kClosed also for what is no packet of a worker's.
  Io receive(Packet& packet);

 private:
  UniqueFd fd_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kMaxMessageBytes);
};

// Both ends, closed on exec.
Result<std::pair<UniqueFd, UniqueFd>> make_packet_sockets();

}  // namespace rueda::gpu
