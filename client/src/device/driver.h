// What librueda asks of a GPU's driver: what a pointer is, memory for other processes, and counters
// that streams wait for. librueda links no CUDA: the driver's library is loaded when the first
// device pointer comes.
//
// Errors: kUnavailable where there is no driver, or an old one; else what the driver says. Threads:
// every method may be called from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "client/src/wire/unique_fd.h"
#include "daemon/base/status.h"

namespace rueda::client {

// What an address of device memory lies in: one piece of the device's memory, which may be mapped
// beside others in one reserved range.
struct DeviceAllocation {
  uint64_t base = 0;
  uint64_t bytes = 0;
  // No other allocation of this process ever has it, not even at the same address later.
  uint64_t buffer_id = 0;
  std::array<uint8_t, 16> device{};  // the GPU's uuid
};

// How another process opens an allocation.
struct ExportedMemory {
  bool is_fd = false;  // else: by the handle
  std::array<std::byte, 64> ipc{};
  UniqueFd fd;
};

// A CUstream. The handles of default streams are those of whatever context is current; here they
// mean the stream of the GPU in whose memory this address is.
struct StreamBeside {
  void* handle = nullptr;
  uint64_t memory = 0;  // 0: of the current context
};

class DeviceDriver {
 public:
  virtual ~DeviceDriver() = default;

  // kInvalidArgument: the address is no device memory.
  virtual Result<DeviceAllocation> find(uint64_t address) = 0;
  // The buffer_id of what is there now; 0: nothing is. For every use of memory that is known.
  virtual uint64_t buffer_id(uint64_t address) = 0;
  // kInvalidArgument: such memory cannot be shared; the sentence has the remedy.
  virtual Result<ExportedMemory> export_memory(const DeviceAllocation& allocation) = 0;

  // Pins memory; where the device has it.
  virtual Result<uint64_t> register_host(std::span<std::byte> memory) = 0;
  virtual void unregister_host(std::byte* memory) = 0;

  // kInvalidArgument: what the stream is given is recorded for a CUDA graph, and not done.
  virtual Status check_stream(StreamBeside stream) = 0;
  // In the order of the stream, of a counter in pinned memory, as the device has it. wait: goes on
  // when int64(*counter - value) >= 0.
  virtual Status write_value(StreamBeside stream, uint64_t counter, uint64_t value) = 0;
  virtual Status wait_value(StreamBeside stream, uint64_t counter, uint64_t value) = 0;

  // A stream that waits for no other.
  virtual Result<void*> make_stream() = 0;
  virtual void free_stream(void* stream) = 0;
  // Until all that it has is done.
  virtual Status synchronize(void* stream) = 0;
  // In the order of the stream. The host's side is pinned.
  virtual Status copy_to_host(StreamBeside stream, std::byte* to, uint64_t from, size_t bytes) = 0;
  virtual Status copy_to_device(StreamBeside stream, uint64_t to, const std::byte* from,
                                size_t bytes) = 0;
};

// The process's, loaded at the first call: libcuda.so.1, or the file that RUEDA_CUDA_LIBRARY names.
// The error stays the same for the life of the process.
Result<DeviceDriver*> cuda_driver();

}  // namespace rueda::client
