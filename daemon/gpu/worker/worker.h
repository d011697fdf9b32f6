// What a GPU worker does: takes commands from its socket, queues them on streams of the job's GPUs,
// and says what has ended. It is the process that loses its contexts when something goes wrong
// (docs/decisions/0044-gpus.md).
//
// A stream takes the commands of its operations in turn. What the device does not take yet, because
// a stream has much queued, waits here, up to a bound. What has begun and does not end within
// the timeout costs the worker: such a device cannot be waited for. Waiting for a counter has no
// deadline: it is the application's work that is waited for.
//
// A stream of commands is one of the first device, and beside it one of each other that takes part
// in its launches (docs/decisions/0058-several-gpus-of-a-node.md).
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

// Belongs to one thread.
class Worker {
 public:
  Worker(UniqueFd socket, OpenDevice open);
  // May wait as Device::free() does: a process that ends had better leave without.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Takes what has come, and does what can be done. False: it is over, why() says why, and so has
  // been told whoever is still there.
  bool turn(TicksMs now);
  const Status& why() const { return over_; }
  int fd() const { return socket_.fd(); }
  // Whether turn() has something to look at though nothing comes.
  bool is_busy() const { return under_way_ > 0 || !outgoing_.empty(); }
  // Whether something has come, begun or ended in the last turn.
  bool has_moved() const { return has_moved_; }

 private:
  struct Memory {
    MemoryKind kind = MemoryKind::kIpc;
    Devices::MemoryId id = 0;   // of what kernels have
    std::byte* host = nullptr;  // of host memory
    uint64_t bytes = 0;
    std::array<std::byte, 64> ipc{};
    std::vector<Devices::MemoryId> pieces;  // of what is joined
  };
  struct UnderWay {
    uint64_t operation = 0;
    Status status;
  };
  // What could not be opened while something was to be closed.
  struct ToBeAdded {
    AddMemoryBody wanted;
    UniqueFd fd;
    Status why;
    TicksMs since = 0;
  };
  // A call of the device, to be made again while it is kUnavailable.
  using Call = std::function<Status(Stream&)>;
  // Of one GPU.
  struct Track {
    std::unique_ptr<Stream> stream;
    std::deque<Call> calls;
    // Of launches that are shared out, in pinned memory: the last of which this GPU has done its
    // part. And the last of which it has been told.
    uint64_t* done = nullptr;
    uint64_t told = 0;
  };
  struct Line {
    std::vector<std::unique_ptr<Track>> tracks;  // by GPU that is open; the first one's leads
    // In pinned memory: how many operations have begun, and ended, on the first device; and the
    // last launch that is shared out to the others, who wait for it.
    uint64_t* begun = nullptr;
    uint64_t* ended = nullptr;
    uint64_t* shared_out = nullptr;
    uint64_t launches = 0;           // shared out, of those that have been read
    uint64_t told = 0;               // of those that the first device has been told
    uint64_t queued = 0;             // operations whose end has been read
    bool is_open = false;            // something of the next one has been read
    bool has_begun = false;          // and its beginning is among the calls
    Status failed;                   // of the operation whose calls are being made
    std::deque<UnderWay> under_way;  // by their end
    uint64_t seen_begun = 0;
    uint64_t seen_ended = 0;
    TicksMs seen_at = 0;
    bool goes_across = false;  // other nodes are waited for: no deadline
  };
  struct Member {
    std::unique_ptr<Communicator> communicator;  // null: there is none, and why
    Status failed;
    int size = 0;
    TicksMs timeout_ms = 0;
    std::optional<TicksMs> since;  // others are waited for
    bool is_there = false;         // all have come
  };
  // A place in device memory that is there.
  struct Target {
    Devices::MemoryId memory = 0;
    uint64_t offset = 0;
  };
  // worker_reduce.cc: a batch as it came, and one GPU's part of it.
  struct Received;
  struct Launch;
  struct Part {
    size_t gpu = 0;
    std::shared_ptr<const Launch> launch;
  };

  // Each says what is wrong with the message: an error is the end of the worker.
  static Status broken(const std::string& what);
  Status take(Packet& packet);
  Status open(Packet& packet);
  // worker_memory.cc
  Status add_memory(Packet& packet);
  Status join_memory(Packet& packet);
  Status remove_memory(Packet& packet);
  // worker_across.cc
  Status make_id(Packet& packet);
  Status connect(Packet& packet);
  Status disconnect(Packet& packet);
  Status across(Packet& packet);
  void look_at_communicators(TicksMs now);
  // worker_reduce.cc
  Status reduce(Packet& packet);
  // worker.cc
  Status wait(Packet& packet);
  Status copy(Packet& packet);
  Status write(Packet& packet);
  Status end(Packet& packet);

  Status open_device(const OpenBody& wanted);
  // Of all lines, on a GPU that has been opened last.
  Status make_streams(size_t gpu);
  void say_ready(const DeviceFacts& facts);
  uint64_t* word(uint32_t stream, size_t gpu, size_t index) const;
  Result<Memory> make(const AddMemoryBody& wanted, int fd);
  static Status cannot_open(const Status& why);
  Result<Memory> map_host(const AddMemoryBody& wanted, int fd);
  Result<Memory> make_joined(std::span<const uint32_t> numbers);
  Status check_room() const;
  // What came of adding or joining memory.
  Status answer_memory(uint32_t number, const Result<Memory>& made);
  Status release(const Memory& memory);
  bool is_joined(const Memory& memory) const;
  // They are closed before their pieces.
  static void put_joins_first(std::vector<Memory>& memories);
  Result<Line*> line(uint32_t stream);
  static Status queue(Track& track, Call call);
  static Status queue(Line& line, Call call) { return queue(*line.tracks[0], std::move(call)); }
  void open_operation(Line& line);
  Status begin(Line& line);
  // A call of the operation that is being read; it is not made once another has failed.
  static Status queue_work(Line& line, Call call);
  Result<Received> take_batch(const ReduceBody& body, Packet& packet) const;
  std::vector<Part> share_out(const Received& received) const;
  std::vector<size_t> gpus_of(const Received& received) const;
  static Status queue_parts(Line& line, const std::vector<Part>& parts);
  static Status queue_part(Line& line, Track& track, uint64_t number, const Part& part);
  // kNotFound when there is no such memory, or it ends before.
  Result<Target> device_memory(const Place& place, uint64_t bytes) const;
  // As the first device has it.
  Result<DeviceAddress> device_address(const Place& place, uint64_t bytes) const;
  Result<std::byte*> host_address(const Place& place, uint64_t bytes) const;
  Result<uint64_t*> counter(const Place& place) const;

  bool receive();
  void make_calls(Line& line);
  // False: there was none that could be made.
  bool make_calls_of(Line& line, size_t gpu);
  std::string late_gpu(const Line& line);
  void look_at(Line& line, TicksMs now);
  void release_removed();
  // Who has waited for too long, as there is always something under way, is told.
  void give_up_adding();
  void answer(Packet packet) { outgoing_.push_back(std::move(packet)); }
  void flush();
  void stop(const Status& why);

  PacketSocket socket_;
  Devices devices_;
  int64_t timeout_ms_ = 0;
  std::map<uint32_t, Memory> memories_;
  std::map<Devices::MemoryId, size_t> joined_;  // pieces: how many joins have them
  // Closed once nothing is under way, because closing may wait for that, and no join has it.
  std::vector<Memory> removed_;
  std::vector<ToBeAdded> to_be_added_;  // once these have been closed
  std::array<std::unique_ptr<Line>, kMaxWorkerStreams> lines_;
  std::map<uint32_t, Member> members_;  // by communicator
  size_t under_way_ = 0;                // operations of which something has been read
  std::deque<Packet> outgoing_;
  TicksMs said_at_ = 0;
  TicksMs now_ = 0;  // of the turn
  bool has_moved_ = false;
  bool is_over_ = false;
  Status over_;
};

}  // namespace rueda::gpu
