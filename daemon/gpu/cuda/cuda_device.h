// A GPU by way of CUDA: the runtime's calls, and the driver's where the runtime has none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/gpu/cuda/driver.h"
#include "daemon/gpu/cuda/vmm.h"
#include "daemon/gpu/device.h"

namespace rueda::gpu::cuda {

// Lists all devices that this process may see, without making a context.
Result<std::vector<DeviceFacts>> list_devices();

// The device's primary context is current on this thread during every call of the device and of its
// streams, because a process may have a device of each GPU.
class CudaDevice final : public Device {
 public:
  static Result<std::unique_ptr<Device>> open(const DeviceOptions& options);
  ~CudaDevice() override;

  const DeviceFacts& facts() const override { return facts_; }
  Status health() override { return health_; }
  Result<DeviceAddress> allocate(uint64_t bytes, Sharing sharing) override;
  Status free(DeviceAddress base) override;
  Result<Allocation> find(DeviceAddress address) override;
  Result<MemoryHandle> export_memory(DeviceAddress base) override;
  Result<DmaBuf> export_dma_buf(DeviceAddress base) override;
  Result<DeviceAddress> import_memory(const MemoryHandle& handle) override;
  Result<DeviceAddress> join(std::span<const DeviceAddress> imports) override;
  Status close_import(DeviceAddress base) override;
  Status can_reach(const DeviceFacts& peer) override;
  Result<DeviceAddress> reach(Device& peer, DeviceAddress base) override;
  Result<std::span<std::byte>> allocate_host(size_t bytes) override;
  Status free_host(std::byte* base) override;
  Status register_host(std::span<std::byte> memory) override;
  Status unregister_host(std::byte* base) override;
  Result<DeviceAddress> address_of_host(std::span<const std::byte> memory) override;
  Status reach_host(Device& peer, std::byte* base) override;
  Result<std::unique_ptr<Stream>> make_stream(Priority priority) override;
  Result<CommunicatorId> make_communicator_id() override;
  Result<std::unique_ptr<Communicator>> connect(const CommunicatorId& id, int rank,
                                                int size) override;

  // The functions from here on are for the device's streams. enter() makes the context this
  // thread's, and returns health().
  Status enter();
  const Driver& driver() const { return driver_; }
  uint32_t multiprocessors() const { return multiprocessors_; }
  // Returns the status of an error, which is kept if it is sticky.
  Status note(cudaError_t error, const std::string& what);
  // Returns the device's address of pinned host memory; kInvalidArgument if the memory is not
  // pinned.
  Result<DeviceAddress> device_side(const void* at, size_t bytes) const;

 private:
  struct Memory {
    Sharing sharing = Sharing::kIpc;
    uint64_t bytes = 0;  // The bytes that were asked for.
    VmmMemory vmm;       // For Sharing::kFd.
  };
  struct Import {
    Sharing sharing = Sharing::kIpc;
    std::array<std::byte, 64> ipc{};
    uint64_t bytes = 0;
    VmmMemory vmm;  // For Sharing::kFd.
    // These are set for a join, or memory that is reached; the other fields are then unset.
    std::vector<VmmMemory> pieces;
    bool is_reached = false;
  };
  enum class Pinned { kAllocated, kRegistered, kReached };
  struct HostRange {
    size_t bytes = 0;
    Pinned how = Pinned::kRegistered;
    DeviceAddress device_side = 0;
  };

  CudaDevice(const DeviceOptions& options, DeviceFacts facts, const Driver& driver,
             uint32_t multiprocessors);
  // Returns base and size of memory that was allocated or imported here; 0 if the address is in
  // neither.
  std::pair<DeviceAddress, uint64_t> known(DeviceAddress address) const;
  // Remembers pinned memory, with the device's address of it.
  Status keep_host(std::byte* base, const HostRange& range);
  Result<DeviceAddress> import_ipc(const std::array<std::byte, 64>& ipc, uint64_t bytes);
  Result<DeviceAddress> import_fd(const MemoryHandle& handle);
  // Maps imported physical memory once more.
  Result<DeviceAddress> map_pieces(Import import);
  bool is_joined(DeviceAddress piece) const;
  cudaError_t close(DeviceAddress base, const Import& import);

  const DeviceOptions options_;
  const DeviceFacts facts_;
  const Driver driver_;
  const uint32_t multiprocessors_;
  Status health_;
  uint64_t allocated_bytes_ = 0;
  std::map<DeviceAddress, Memory> memory_;
  std::map<DeviceAddress, Import> imports_;
  std::map<const std::byte*, HostRange> host_;
};

}  // namespace rueda::gpu::cuda
