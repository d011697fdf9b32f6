// The GPUs of a worker, and the addresses at which each of them has the worker's memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "daemon/gpu/device.h"
#include "daemon/gpu/worker/wire.h"

namespace rueda::gpu {

// Says whether a GPU may be opened. It is asked before, because opening costs some of the GPU's
// memory.
using AcceptDevice = std::function<Status(const DeviceFacts& facts)>;
// Opens the device with a uuid, if it is accepted.
using OpenDevice = std::function<Result<std::unique_ptr<Device>>(const OpenBody& wanted,
                                                                 const AcceptDevice& accept)>;

// GPUs are numbered in the order in which they were opened. Imported and joined memory has an
// address on each of them, and so has host memory; allocated memory is on the first GPU alone. An
// object belongs to one thread.
class Devices {
 public:
  // The most GPUs: as many as a batch has ranks.
  static constexpr size_t kMost = kMaxSources;
  // Numbers of memory are never used again.
  using MemoryId = uint64_t;

  explicit Devices(OpenDevice open) : open_(std::move(open)) {}
  ~Devices();
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  // Opens the first GPU, which takes seconds, and allocates zeroed host memory for all.
  Status open(const OpenBody& wanted, size_t host_bytes);
  bool is_open() const { return !devices_.empty(); }
  size_t count() const { return devices_.size(); }
  Device& at(size_t gpu) { return *devices_[gpu]; }
  std::byte* host() const { return host_; }

  // Returns the number of the GPU, which is opened if it is not open yet; that takes seconds.
  // Returns kPermission if there is no peer access between it and an open GPU, kResourceExhausted
  // if there would be more than kMost, and otherwise the error of `open`, if there is no GPU of
  // this uuid for example.
  Result<size_t> find_or_open(const std::array<uint8_t, 16>& uuid);

  // These are as in Device. If a call fails, nothing that it opened stays open.
  Result<MemoryId> import_memory(size_t gpu, const MemoryHandle& handle);
  // The error is kInvalidArgument if the pieces are on different GPUs.
  Result<MemoryId> join(std::span<const MemoryId> pieces);
  Result<MemoryId> allocate(uint64_t bytes);
  // Exports memory of allocate().
  Result<DmaBuf> export_dma_buf(MemoryId memory) {
    return devices_[0]->export_dma_buf(memories_.at(memory).at[0]);
  }
  // Makes host memory, which is pinned, accessible to kernels of all GPUs. It must be closed before
  // it is unmapped.
  Result<MemoryId> map_host(std::span<std::byte> memory);
  // Closes memory. The call may wait for all GPUs.
  Status close(MemoryId memory);

  // Returns the GPU that the memory is on.
  size_t owner_of(MemoryId memory) const { return memories_.at(memory).owner; }
  bool is_reached_by_all(MemoryId memory) const { return !memories_.at(memory).is_scratch; }
  DeviceAddress address(MemoryId memory, size_t gpu) const { return memories_.at(memory).at[gpu]; }
  // Returns ok, or the sticky error of a GPU.
  Status health();

 private:
  struct Memory {
    size_t owner = 0;
    bool is_scratch = false;
    std::vector<DeviceAddress> at;  // The index is the GPU.
    std::span<std::byte> host;      // The first GPU has pinned it, and the others reach it.
  };

  Result<std::unique_ptr<Device>> open_peer(const std::array<uint8_t, 16>& uuid);
  // Makes all memory that is open accessible to a device, and returns its addresses there.
  Result<std::vector<DeviceAddress>> reach_all(Device& device);
  // Returns the address at which the device reaches memory of another.
  Result<DeviceAddress> reach(Device& device, const Memory& memory);
  Status unpin(std::span<std::byte> memory, size_t gpus);
  // Adds memory of the owner, at its address there, for all GPUs.
  Result<MemoryId> add(size_t owner, DeviceAddress base);
  Status close_on(const std::vector<DeviceAddress>& at, size_t owner);

  const OpenDevice open_;
  OpenBody first_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::byte* host_ = nullptr;
  std::map<MemoryId, Memory> memories_;
  MemoryId last_ = 0;
};

}  // namespace rueda::gpu
