// The interface to a GPU: memory, streams, counters that streams wait for, and reductions in one
// launch.
//
// It has the shape of CUDA; tests/gpu/fake implements the same contract on a CPU, with time that a
// test controls. tests/gpu holds every implementation to this contract.
//
// Errors: a call that fails says why and has changed nothing, with one exception. A *sticky* error
// (a kernel has touched memory that is not there, the driver has given up) costs the whole context:
// it is kept in health(), and from then on every call returns it, queued work is lost, and only a
// new process can go on. Work runs after the call that asked for it, so any later call may return a
// sticky error. All other errors leave health() as it was.
//
// Several GPUs: a process may have a device of each, all of one plugin. An address belongs to one
// device, and is of no use to the streams of another device, which reach() the memory at an address
// of their own.
//
// Threads: devices, their streams and communicators belong to the thread that opened them, which is
// the same for all. Host memory may be shared with any thread or process: counters are read and
// written with atomic operations.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"
#include "daemon/gpu/batch.h"
#include "daemon/gpu/communicator.h"

namespace rueda::gpu {

struct DeviceFacts {
  int ordinal = 0;
  std::string name;
  int capability_major = 0;
  int capability_minor = 0;
  // It is the same in every process, whatever CUDA_VISIBLE_DEVICES says.
  std::array<uint8_t, 16> uuid{};
  uint64_t memory_bytes = 0;
  // True if only one process may have a context (exclusive-process mode), unless MPS has it for
  // all.
  bool is_exclusive = false;
  bool has_mps = false;  // Contexts made in this process share the GPU through MPS.
};

struct DeviceOptions {
  int ordinal = 0;
  // The most bytes that allocate() may hold at a time; imported memory of others does not count.
  uint64_t memory_limit_bytes = uint64_t{1} << 30;
};

// The way in which memory is shared with other processes.
enum class Sharing : uint8_t {
  kIpc = 0,  // 64 bytes that any process of the same user can open (a CUDA IPC handle).
  kFd = 1,   // A file descriptor, sent over a unix socket (virtual memory management).
};

struct MemoryHandle {
  Sharing sharing = Sharing::kIpc;
  std::array<std::byte, 64> ipc{};
  // It belongs to the holder of this handle, who closes it; import_memory() does not close it.
  int fd = -1;
  uint64_t bytes = 0;
};

// Device memory that another device of the machine may read and write by itself, as a network card
// does.
struct DmaBuf {
  UniqueFd fd;
  uint64_t offset = 0;  // Where the memory begins in what the descriptor stands for, in bytes.
  uint64_t bytes = 0;
};

// The allocation that an address lies in.
struct Allocation {
  DeviceAddress base = 0;
  uint64_t bytes = 0;
  // No other allocation of this process ever has this id, not even at the same address later.
  uint64_t id = 0;
};

enum class Priority : uint8_t { kLow = 0, kHigh = 1 };

struct CounterValue {
  uint64_t* counter = nullptr;
  uint64_t value = 0;
};

// A stream does its work in order: each operation begins when all before it have ended. Streams run
// beside each other.
//
// Calls return at once; memory and counters that they name must stay until the work is done. The
// amount of queued work is bounded: beyond the bound a call returns kUnavailable or waits for the
// device. A stream must be destroyed before its device. The destructor may wait as Device::free()
// does; work that is still queued may or may not be done.
class Stream {
 public:
  virtual ~Stream() = default;

  // These three copy memory. The host's side must lie in memory of allocate_host() or
  // register_host(), or the call returns kInvalidArgument. Source and destination must not overlap.
  virtual Status copy_to_device(DeviceAddress dst, const std::byte* src, size_t bytes) = 0;
  virtual Status copy_to_host(std::byte* dst, DeviceAddress src, size_t bytes) = 0;
  virtual Status copy(DeviceAddress dst, DeviceAddress src, size_t bytes) = 0;

  // Makes the stream wait until *counter has reached `value`, counted with wrap-around:
  // int64(*counter - value) >= 0. A counter is 8 bytes, aligned, in memory of allocate_host() or
  // register_host(). The wait has no time limit: a counter that is never written blocks the stream
  // for ever.
  virtual Status wait_value(const uint64_t* counter, uint64_t value) = 0;
  // Writes a counter. A reader that sees the value sees everything that the stream did before, on
  // the device and on the host.
  virtual Status write_value(uint64_t* counter, uint64_t value) = 0;
  // Writes many counters in few commands, in any order.
  virtual Status write_values(std::span<const CounterValue> writes) = 0;

  // Does the whole batch in one launch. Returns kInvalidArgument for a batch that check_batch()
  // refuses. The batch is copied before the call returns.
  virtual Status reduce(const Batch& batch) = 0;

  // Returns true if all queued work is done. This and other calls return an error of queued work.
  virtual Result<bool> is_idle() = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceFacts& facts() const = 0;
  // Returns ok, or the sticky error. Its code is kUnavailable: a new process may go on.
  virtual Status health() = 0;

  // Allocates memory at a multiple of 256; its contents are undefined. Returns kResourceExhausted
  // when the limit or the device's memory is reached.
  virtual Result<DeviceAddress> allocate(uint64_t bytes, Sharing sharing) = 0;
  // Frees memory. The call may wait until the whole device is idle, so it must not be made while a
  // stream waits for a counter that the caller has yet to write. Returns kNotFound if `base` does
  // not come from allocate().
  virtual Status free(DeviceAddress base) = 0;
  // Returns the allocation or import that the address lies in, or kNotFound if there is none.
  virtual Result<Allocation> find(DeviceAddress address) = 0;

  // Exports memory of allocate(), in the way that it was allocated for.
  virtual Result<MemoryHandle> export_memory(DeviceAddress base) = 0;
  // Exports memory of allocate() as a dma-buf, of whole pages: what is behind the last one is left
  // out. The memory must not be freed before the descriptor is closed, and others let go of it.
  // Returns kNotFound if `base` does not come from allocate(), and kUnavailable, with the reason,
  // if the device or its driver cannot.
  virtual Result<DmaBuf> export_dma_buf(DeviceAddress base) = 0;
  // Maps all of an allocation of this GPU that another process has exported. Returns
  // kInvalidArgument for an IPC handle that is open already, or that is of this process. Returns
  // kNotFound or kInvalidArgument, depending on the driver, if there is no such memory any more.
  // The exporter must keep the memory until it is closed here.
  virtual Result<DeviceAddress> import_memory(const MemoryHandle& handle) = 0;
  // Maps at least two imports that came by descriptors once more, at addresses of their own: one
  // behind another in this order, without gaps. Such memory consists of whole granules of the
  // device. Returns kNotFound if no imported memory begins at an address, and kInvalidArgument if a
  // piece came by an IPC handle or by reach(), or is a join.
  virtual Result<DeviceAddress> join(std::span<const DeviceAddress> imports) = 0;
  // Closes memory of import_memory(), join() or reach(); like free(), the call may wait. Returns
  // kInvalidArgument if a join uses the memory: the join must be closed first.
  virtual Status close_import(DeviceAddress base) = 0;

  // Returns ok if work of this device can access memory of another GPU, which need not be open, and
  // the other way round. kPermission means that there is no peer access between them; the sentence
  // names both, and the remedy.
  virtual Status can_reach(const DeviceFacts& peer) = 0;
  // Makes memory that the peer has by import_memory() or join() accessible to this device's work,
  // at an address of its own. The two may be closed in any order. can_reach() must have returned
  // ok. Returns kNotFound if no imported memory of the peer begins at `base`, and kInvalidArgument
  // if it came by an IPC handle that is open here already, or if the peer has it by reach() itself.
  virtual Result<DeviceAddress> reach(Device& peer, DeviceAddress base) = 0;

  // Allocates pinned memory, which is zero. Returns kResourceExhausted when there is not enough.
  virtual Result<std::span<std::byte>> allocate_host(size_t bytes) = 0;
  // Frees memory of allocate_host(); like free(), the call may wait.
  virtual Status free_host(std::byte* base) = 0;
  // Pins memory that exists already, an arena for example. Returns kInvalidArgument when some of it
  // is pinned already. The memory must be unregistered before it is unmapped.
  virtual Status register_host(std::span<std::byte> memory) = 0;
  // Unpins memory of register_host() or reach_host().
  virtual Status unregister_host(std::byte* base) = 0;
  // Returns the address of pinned memory for kernels, or kInvalidArgument if some of it is not
  // pinned.
  virtual Result<DeviceAddress> address_of_host(std::span<const std::byte> memory) = 0;
  // Makes memory that the peer has pinned usable by streams of this device. It must be unregistered
  // here before the peer unpins it. Returns kNotFound if the peer has pinned nothing that begins at
  // `base`, and kInvalidArgument if it is pinned here already.
  virtual Status reach_host(Device& peer, std::byte* base) = 0;

  virtual Result<std::unique_ptr<Stream>> make_stream(Priority priority) = 0;

  // Makes an id for a communicator that this device is to be the first member of. An id is for one
  // communicator. kUnavailable means that there is no library for communicators, or that it cannot
  // start; the sentence has the remedy.
  virtual Result<CommunicatorId> make_communicator_id() = 0;
  // Joins a communicator as member `rank` of `size`. Returns at once: health() says whether all
  // members have come.
  virtual Result<std::unique_ptr<Communicator>> connect(const CommunicatorId& id, int rank,
                                                        int size) = 0;
};

}  // namespace rueda::gpu
