// A GPU worker takes commands from its socket, queues them on streams of the job's GPUs, and
// reports what has ended. It is the process that loses its contexts when something goes wrong
// (docs/decisions/0044-gpus.md).
//
// A stream takes the commands of its operations in turn. Commands that the device does not take
// yet, because a stream has much queued, wait in the worker, up to a bound. If an operation that
// has begun does not end within the timeout, the worker ends: such a device cannot be waited for.
// Waiting for a counter has no deadline, because it is a wait for the application's work.
//
// Each stream of commands has a stream on the first device, and one on every other device that
// takes part in its launches (docs/decisions/0058-several-gpus-of-a-node.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/gpu/device.h"
#include "daemon/gpu/worker/devices.h"
#include "daemon/gpu/worker/wire.h"

namespace rueda::gpu {

// A worker belongs to one thread.
class Worker {
 public:
  Worker(UniqueFd socket, OpenDevice open);
  // The destructor may wait as Device::free() does: a process that ends should not call it.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Takes the messages that have come, and does what can be done. Returns false if the worker is
  // over: why() has the reason, which the daemon has been told if it is still there.
  bool turn(TicksMs now);
  const Status& why() const { return over_; }
  int fd() const { return socket_.fd(); }
  // Returns true if turn() has something to do even if no message comes.
  bool is_busy() const { return under_way_ > 0 || !outgoing_.empty(); }
  // Returns true if something has come, begun or ended in the last turn.
  bool has_moved() const { return has_moved_; }

 private:
  struct Memory {
    MemoryKind kind = MemoryKind::kIpc;
    Devices::MemoryId id = 0;   // It names the memory that kernels use.
    std::byte* host = nullptr;  // It is set for host memory.
    uint64_t bytes = 0;
    std::array<std::byte, 64> ipc{};
    std::vector<Devices::MemoryId> pieces;  // They are set for joined memory.
  };
  struct UnderWay {
    uint64_t operation = 0;
    Status status;
  };
  // Memory that could not be opened while other memory had yet to be closed.
  struct ToBeAdded {
    AddMemoryBody wanted;
    UniqueFd fd;
    Status why;
    TicksMs since = 0;
  };
  // A call of the device, which is made again as long as it returns kUnavailable.
  using Call = std::function<Status(Stream&)>;
  // The work of a line on one GPU.
  struct Track {
    std::unique_ptr<Stream> stream;
    std::deque<Call> calls;
    // A counter in pinned memory: the last shared launch of which this GPU has done its part.
    // `told` is the last shared launch that the GPU has been given.
    uint64_t* done = nullptr;
    uint64_t told = 0;
  };
  struct Line {
    // The index is the open GPU; the first GPU's track leads.
    std::vector<std::unique_ptr<Track>> tracks;
    // Counters in pinned memory: how many operations have begun, and have ended, on the first
    // device, and the last launch that is shared out to the other GPUs, which wait for it.
    uint64_t* begun = nullptr;
    uint64_t* ended = nullptr;
    uint64_t* shared_out = nullptr;
    uint64_t launches = 0;           // Shared launches that have been read.
    uint64_t told = 0;               // Shared launches that the first device has been given.
    uint64_t queued = 0;             // Operations whose end has been read.
    bool is_open = false;            // Some command of the next operation has been read.
    bool has_begun = false;          // The beginning of the open operation is among the calls.
    Status failed;                   // The error of the operation whose calls are being made.
    std::deque<UnderWay> under_way;  // They are in the order in which they end.
    uint64_t seen_begun = 0;
    uint64_t seen_ended = 0;
    TicksMs seen_at = 0;
    bool goes_across = false;  // The line waits for other nodes, so it has no deadline.
  };
  struct Member {
    std::unique_ptr<Communicator> communicator;  // If it is null, `failed` says why.
    Status failed;
    int size = 0;
    TicksMs timeout_ms = 0;
    std::optional<TicksMs> since;  // Set while other members are waited for.
    bool is_there = false;         // All members have come.
  };
  // A place in device memory that exists.
  struct Target {
    Devices::MemoryId memory = 0;
    uint64_t offset = 0;
  };
  // --- Launches: a batch as it came, and one GPU's part of it.
  struct Received;
  struct Launch;
  struct Part {
    size_t gpu = 0;
    std::shared_ptr<const Launch> launch;
  };

  // Each of these handles a message. An error says what is wrong with the message, and is the end
  // of the worker.
  static Status broken(const std::string& what);
  Status take(Packet& packet);
  Status open(Packet& packet);
  // --- Memory
  Status add_memory(Packet& packet);
  Status join_memory(Packet& packet);
  Status remove_memory(Packet& packet);
  // --- Communicators
  Status make_id(Packet& packet);
  Status connect(Packet& packet);
  Status disconnect(Packet& packet);
  Status across(Packet& packet);
  void look_at_communicators(TicksMs now);
  // --- Launches
  Status reduce(Packet& packet);
  Status wait(Packet& packet);
  Status copy(Packet& packet);
  Status write(Packet& packet);
  Status end(Packet& packet);

  Status open_device(const OpenBody& wanted);
  // Makes the streams of all lines on the GPU that was opened last.
  Status make_streams(size_t gpu);
  void say_ready(const DeviceFacts& facts);
  uint64_t* word(uint32_t stream, size_t gpu, size_t index) const;
  Result<Memory> make(const AddMemoryBody& wanted, int fd);
  static Status cannot_open(const Status& why);
  Result<Memory> map_host(const AddMemoryBody& wanted, int fd);
  Result<Memory> make_joined(std::span<const uint32_t> numbers);
  Status check_room() const;
  // Answers a request to add or join memory with its result.
  Status answer_memory(uint32_t number, const Result<Memory>& made);
  void say_exported(uint32_t number, const Memory& scratch);
  Status release(const Memory& memory);
  bool is_joined(const Memory& memory) const;
  // Joins must be closed before their pieces.
  static void put_joins_first(std::vector<Memory>& memories);
  Result<Line*> line(uint32_t stream);
  static Status queue(Track& track, Call call);
  static Status queue(Line& line, Call call) { return queue(*line.tracks[0], std::move(call)); }
  void open_operation(Line& line);
  Status begin(Line& line);
  // Queues a call of the operation that is being read; it is not made if an earlier call of the
  // operation has failed.
  static Status queue_work(Line& line, Call call);
  Result<Received> take_batch(const ReduceBody& body, Packet& packet) const;
  std::vector<Part> share_out(const Received& received) const;
  std::vector<size_t> gpus_of(const Received& received) const;
  static Status queue_parts(Line& line, const std::vector<Part>& parts);
  static Status queue_part(Line& line, Track& track, uint64_t number, const Part& part);
  // Returns kNotFound when there is no such memory, or it ends before the place does.
  Result<Target> device_memory(const Place& place, uint64_t bytes) const;
  // Returns the address on the first device.
  Result<DeviceAddress> device_address(const Place& place, uint64_t bytes) const;
  Result<std::byte*> host_address(const Place& place, uint64_t bytes) const;
  Result<uint64_t*> counter(const Place& place) const;

  bool receive();
  void make_calls(Line& line);
  // Returns false if there was no call that could be made.
  bool make_calls_of(Line& line, size_t gpu);
  std::string late_gpu(const Line& line);
  void look_at(Line& line, TicksMs now);
  void release_removed();
  // Answers requests to add memory that have waited for too long because something is always under
  // way.
  void give_up_adding();
  void answer(Packet packet) { outgoing_.push_back(std::move(packet)); }
  void flush();
  void stop(const Status& why);

  PacketSocket socket_;
  Devices devices_;
  int64_t timeout_ms_ = 0;
  std::map<uint32_t, Memory> memories_;
  // The pieces, with the number of joins that use them.
  std::map<Devices::MemoryId, size_t> joined_;
  // Memory that is closed once nothing is under way, because closing may wait for that, and no join
  // uses it.
  std::vector<Memory> removed_;
  std::vector<ToBeAdded> to_be_added_;  // They are added once `removed_` has been closed.
  std::array<std::unique_ptr<Line>, kMaxWorkerStreams> lines_;
  std::map<uint32_t, Member> members_;  // The key is the communicator.
  size_t under_way_ = 0;                // Operations of which some command has been read.
  std::deque<Packet> outgoing_;
  TicksMs said_at_ = 0;
  TicksMs now_ = 0;  // The time of the turn.
  bool has_moved_ = false;
  bool is_over_ = false;
  Status over_;
};

}  // namespace rueda::gpu
