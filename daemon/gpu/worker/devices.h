// The GPUs of a worker, and where each of them has the memory that the worker has open.
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

// Whether a GPU is to be opened, which costs some of its memory; asked before.
using AcceptDevice = std::function<Status(const DeviceFacts& facts)>;
// A device by its uuid, if it is accepted.
using OpenDevice = std::function<Result<std::unique_ptr<Device>>(const OpenBody& wanted,
                                                                 const AcceptDevice& accept)>;

// GPUs have numbers in the order in which they came. Whatever is imported or joined lies at an
// address on each of them, and so does host memory; what is allocated is the first one's alone.
// Belongs to one thread.
class Devices {
 public:
  // As many as a batch has ranks.
  static constexpr size_t kMost = kMaxSources;
  // Numbers are never used again.
  using MemoryId = uint64_t;

  explicit Devices(OpenDevice open) : open_(std::move(open)) {}
  ~Devices();
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  // The first, which takes seconds, and host memory for all, which is zero.
  Status open(const OpenBody& wanted, size_t host_bytes);
  bool is_open() const { return !devices_.empty(); }
  size_t count() const { return devices_.size(); }
  Device& at(size_t gpu) { return *devices_[gpu]; }
  std::byte* host() const { return host_; }

  // The number of the GPU, which is opened if it is not yet, in seconds. kPermission: there is no
  // peer access between it and one that is open. kResourceExhausted: more than kMost. Otherwise
  // what `open` says: it has no GPU of this uuid, for example.
  Result<size_t> find_or_open(const std::array<uint8_t, 16>& uuid);

  // As Device has them. Nothing is left open of what fails.
  Result<MemoryId> import_memory(size_t gpu, const MemoryHandle& handle);
  Result<MemoryId> join(std::span<const MemoryId> pieces);  // kInvalidArgument: of two GPUs
  Result<MemoryId> allocate(uint64_t bytes);
  // Host memory, which is pinned, for kernels of all. It is closed before it is unmapped.
  Result<MemoryId> map_host(std::span<std::byte> memory);
  // May wait for all GPUs.
  Status close(MemoryId memory);

  // Whose the memory is.
  size_t owner_of(MemoryId memory) const { return memories_.at(memory).owner; }
  bool is_reached_by_all(MemoryId memory) const { return !memories_.at(memory).is_scratch; }
  DeviceAddress address(MemoryId memory, size_t gpu) const { return memories_.at(memory).at[gpu]; }
  // Ok, or the sticky error of one.
  Status health();

 private:
  struct Memory {
    size_t owner = 0;
    bool is_scratch = false;
    std::vector<DeviceAddress> at;  // by GPU
    std::span<std::byte> host;      // which the first has pinned, and the others have by it
  };

  Result<std::unique_ptr<Device>> open_peer(const std::array<uint8_t, 16>& uuid);
  // Of all memory that is open.
  Result<std::vector<DeviceAddress>> reach_all(Device& device);
  // Where the device has what is open on others.
  Result<DeviceAddress> reach(Device& device, const Memory& memory);
  Status unpin(std::span<std::byte> memory, size_t gpus);
  // For all GPUs, of what the owner has there.
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
