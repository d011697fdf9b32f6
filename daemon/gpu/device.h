// What Rueda asks of a GPU: memory, streams, counters that streams wait for, and sums in one
// launch.
//
// It has the shape of CUDA, because that is what there is; fake/ keeps the same contract on a CPU,
// with time that a test decides on. tests/gpu holds every implementation to what is said here.
//
// Errors: a call that fails says why and has changed nothing, but for one kind. A *sticky* error (a
// kernel has touched memory that is not there, the driver has given up) costs the whole context: it
// is kept in health(), and from then on every call returns it, queued work is lost, and only a new
// process can go on. Work runs after the call that asked for it, so a sticky error may show at any
// later one. All other errors leave health() as it was.
//
// Several GPUs: a process may have a device of each, all of one plugin. An address is of one
// device, and of no use to the streams of another, which reach() the memory at an address of their
// own.
//
// Threads: devices, their streams and communicators belong to the thread that opened them, one for
// all. Host memory is shared with anybody: counters are read and written with atomic operations.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "daemon/base/status.h"
#include "daemon/gpu/batch.h"
#include "daemon/gpu/communicator.h"

namespace rueda::gpu {

struct DeviceFacts {
  int ordinal = 0;
  std::string name;
  int capability_major = 0;
  int capability_minor = 0;
  std::array<uint8_t, 16> uuid{};  // the same in every process, whatever CUDA_VISIBLE_DEVICES says
  uint64_t memory_bytes = 0;
  // Only one process may have a context (exclusive-process mode), unless MPS has it for all.
  bool is_exclusive = false;
  bool has_mps = false;  // contexts that are made here share the GPU through MPS
};

struct DeviceOptions {
  int ordinal = 0;
  // What allocate() may hold at a time; memory of others that is imported counts for nothing.
  uint64_t memory_limit_bytes = uint64_t{1} << 30;
};

// How memory is made known to other processes.
enum class Sharing : uint8_t {
  kIpc = 0,  // 64 bytes that any process of the user's can open (a CUDA IPC handle)
  kFd = 1,   // a file descriptor, sent over a unix socket (virtual memory management)
};

struct MemoryHandle {
  Sharing sharing = Sharing::kIpc;
  std::array<std::byte, 64> ipc{};
  int fd = -1;  // of whoever holds the handle, who closes it; import_memory() does not
  uint64_t bytes = 0;
};

// What an address lies in.
struct Allocation {
  DeviceAddress base = 0;
  uint64_t bytes = 0;
  // No other allocation of this process ever has it, not even at the same address later.
  uint64_t id = 0;
};

enum class Priority : uint8_t { kLow = 0, kHigh = 1 };

struct CounterValue {
  uint64_t* counter = nullptr;
  uint64_t value = 0;
};

// Work in order: each piece begins when all before it has ended. Streams run beside each other.
//
// Calls return at once; memory and counters that they name stay until the work is done. How much
// may be queued has a bound: beyond it a call returns kUnavailable or waits for the device. A
// stream is destroyed before its device, which may wait as Device::free() does; what is queued then
// may or may not be done.
class Stream {
 public:
  virtual ~Stream() = default;

  // The host's side lies in memory of allocate_host() or register_host(). kInvalidArgument if not.
  // Nothing overlaps.
  virtual Status copy_to_device(DeviceAddress dst, const std::byte* src, size_t bytes) = 0;
  virtual Status copy_to_host(std::byte* dst, DeviceAddress src, size_t bytes) = 0;
  virtual Status copy(DeviceAddress dst, DeviceAddress src, size_t bytes) = 0;

  // Goes on once *counter has reached `value`, counted with wrap-around: int64(*counter - value)
  // >= 0. A counter is 8 bytes, aligned, in memory of allocate_host() or register_host(). Nobody
  // watches over it: a counter that is never written blocks the stream for ever.
  virtual Status wait_value(const uint64_t* counter, uint64_t value) = 0;
  // Whoever sees the value sees all that the stream did before, on the device and on the host.
  virtual Status write_value(uint64_t* counter, uint64_t value) = 0;
  // Many of them in few commands, in any order.
  virtual Status write_values(std::span<const CounterValue> writes) = 0;

  // The whole batch in one launch. kInvalidArgument for what check_batch() refuses. The batch is
  // copied before it returns.
  virtual Status reduce(const Batch& batch) = 0;

  // Whether all that was queued is done. An error of what was queued is told here, among others.
  virtual Result<bool> is_idle() = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceFacts& facts() const = 0;
  // Ok, or the sticky error. Its code is kUnavailable: a new process may go on.
  virtual Status health() = 0;

  // At a multiple of 256, with what it happens to hold. kResourceExhausted when the limit or the
  // device's memory is reached.
  virtual Result<DeviceAddress> allocate(uint64_t bytes, Sharing sharing) = 0;
  // May wait until the whole device is idle: not while a stream waits for what the caller has yet
  // to write. kNotFound when it is no base of allocate().
  virtual Status free(DeviceAddress base) = 0;
  virtual uint64_t allocated_bytes() const = 0;
  // The allocation or import that the address lies in. kNotFound when there is none.
  virtual Result<Allocation> find(DeviceAddress address) = 0;

  // Of a base of allocate(), by the way that it was allocated for.
  virtual Result<MemoryHandle> export_memory(DeviceAddress base) = 0;
  // Maps memory of this GPU that another process has exported, all of it. kInvalidArgument: an IPC
  // handle that is open already, or of this process. kNotFound or kInvalidArgument, as the driver
  // sees it: no such memory, or no longer. Who exported it must keep it until it is closed here.
  virtual Result<DeviceAddress> import_memory(const MemoryHandle& handle) = 0;
  // What was imported by descriptors, two at least, once more: at addresses of its own, one behind
  // another in this order, without gaps. Such memory is whole granules of the device. kNotFound:
  // no imported memory begins there. kInvalidArgument: one came by an IPC handle or by reach(), or
  // is a join.
  virtual Result<DeviceAddress> join(std::span<const DeviceAddress> imports) = 0;
  // As free(), of import_memory(), join() and reach(). kInvalidArgument: a join has it, which goes
  // first.
  virtual Status close_import(DeviceAddress base) = 0;

  // Whether work of this device can be at memory of another GPU, which need not be open, and work
  // of that one at this one's. kPermission: there is no peer access between them; the sentence
  // names both, and the remedy.
  virtual Status can_reach(const DeviceFacts& peer) = 0;
  // What the peer has by import_memory() or join(), for this device's work: at an address of its
  // own. They are closed in any order. can_reach() has said yes. kNotFound: no imported memory of
  // the peer's begins there. kInvalidArgument: an IPC handle that is open here already, or the peer
  // has it by reach() itself.
  virtual Result<DeviceAddress> reach(Device& peer, DeviceAddress base) = 0;

  // Pinned, zero. kResourceExhausted when there is not enough.
  virtual Result<std::span<std::byte>> allocate_host(size_t bytes) = 0;
  // As free(), of allocate_host().
  virtual Status free_host(std::byte* base) = 0;
  // Pins memory that is there, an arena for example. kInvalidArgument when some of it is already
  // pinned. It is unregistered before it is unmapped.
  virtual Status register_host(std::span<std::byte> memory) = 0;
  // Of register_host() and reach_host().
  virtual Status unregister_host(std::byte* base) = 0;
  // Where kernels have pinned memory. kInvalidArgument if some of it is not pinned.
  virtual Result<DeviceAddress> address_of_host(std::span<const std::byte> memory) = 0;
  // What the peer has pinned, for streams of this device, too: until it is unregistered here, which
  // comes before the peer gives it up. kNotFound: the peer has pinned nothing that begins there.
  // kInvalidArgument: it is pinned here already.
  virtual Status reach_host(Device& peer, std::byte* base) = 0;

  virtual Result<std::unique_ptr<Stream>> make_stream(Priority priority) = 0;

  // Of a communicator that this device is to be the first member of, and of no other. kUnavailable:
  // there is no library for that, or it cannot start; the sentence has the remedy.
  virtual Result<CommunicatorId> make_communicator_id() = 0;
  // As member number `rank` of `size`. Returns at once: health() says whether all have come.
  virtual Result<std::unique_ptr<Communicator>> connect(const CommunicatorId& id, int rank,
                                                        int size) = 0;
};

}  // namespace rueda::gpu
