// The interface to a GPU's driver: what a pointer is, how other processes get at its memory, and
// counters that streams wait for. librueda links no CUDA: the driver's library is loaded with the
// first device pointer.
//
// Errors are kUnavailable where there is no driver or too old a driver, and otherwise what the
// driver says. Every method may be called from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"

namespace rueda::client {

// The allocation that an address of device memory lies in: one piece of the device's memory, which
// may be mapped beside others in one reserved range.
struct DeviceAllocation {
  uint64_t base = 0;
  uint64_t bytes = 0;
  // The driver's id of the allocation. No other allocation of this process ever has the same id,
  // not even at the same address later.
  uint64_t buffer_id = 0;
  std::array<uint8_t, 16> device{};  // the GPU's uuid
};

// The means by which another process opens an allocation.
struct ExportedMemory {
  bool is_fd = false;  // true: it is opened by the descriptor; false: by the IPC handle
  std::array<std::byte, 64> ipc{};
  UniqueFd fd;
};

// A CUstream. The handles of default streams mean the default stream of whatever context is
// current; here they mean that of the GPU that has the memory at this address.
struct StreamBeside {
  void* handle = nullptr;
  uint64_t memory = 0;  // 0: the current context's
};

class DeviceDriver {
 public:
  virtual ~DeviceDriver() = default;

  // Finds the allocation that the address lies in. kInvalidArgument means that the address is no
  // device memory.
  virtual Result<DeviceAllocation> find(uint64_t address) = 0;
  // Returns the buffer_id of the allocation that is at the address now, or 0 if there is none. It
  // is called at every use of memory that is known.
  virtual uint64_t buffer_id(uint64_t address) = 0;
  // Exports an allocation to other processes. kInvalidArgument means that such memory cannot be
  // shared; the error's text has the remedy.
  virtual Result<ExportedMemory> export_memory(const DeviceAllocation& allocation) = 0;

  // Pins host memory, and returns its address on the device.
  virtual Result<uint64_t> register_host(std::span<std::byte> memory) = 0;
  virtual void unregister_host(std::byte* memory) = 0;

  // Returns kInvalidArgument if a CUDA graph is being captured from the stream, because the
  // stream's work is then recorded and not done.
  virtual Status check_stream(StreamBeside stream) = 0;
  // These two act in the order of the stream, on a counter in pinned memory that is given by its
  // address on the device. write_value sets the counter; wait_value holds the stream until
  // int64(*counter - value) >= 0.
  virtual Status write_value(StreamBeside stream, uint64_t counter, uint64_t value) = 0;
  virtual Status wait_value(StreamBeside stream, uint64_t counter, uint64_t value) = 0;

  // Creates a stream that does not wait for other streams.
  virtual Result<void*> make_stream() = 0;
  virtual void free_stream(void* stream) = 0;
  // Waits until the stream has done all its work.
  virtual Status synchronize(void* stream) = 0;
  // These two copy in the order of the stream. The host's memory must be pinned.
  virtual Status copy_to_host(StreamBeside stream, std::byte* to, uint64_t from, size_t bytes) = 0;
  virtual Status copy_to_device(StreamBeside stream, uint64_t to, const std::byte* from,
                                size_t bytes) = 0;
};

// Returns the driver of this process, which is loaded at the first call: libcuda.so.1, or the file
// that RUEDA_CUDA_LIBRARY names. If loading fails, every later call returns the same error.
Result<DeviceDriver*> cuda_driver();

}  // namespace rueda::client
