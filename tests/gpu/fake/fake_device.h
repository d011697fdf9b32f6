// The view that one process has of a FakeGpu, with errors on demand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/gpu/device.h"
#include "tests/gpu/fake/fake_gpu.h"
#include "tests/gpu/fake/window.h"

namespace rueda::gpu::fake {

// Addresses are given out as low as there is room: a freed address comes again at once, because
// that is when caches of addresses go wrong. Each GPU has addresses far from those of the others.
// An operation that touches memory that is not there, or that is another GPU's and not reached,
// loses the device, as it does in CUDA.
class FakeDevice final : public Device {
 public:
  // The GPU must outlive the device.
  explicit FakeDevice(FakeGpu& gpu, const DeviceOptions& options = {});
  // The device's streams must have been destroyed before. Its memory is freed, whichever process
  // has it mapped.
  ~FakeDevice() override;

  const DeviceFacts& facts() const override { return facts_; }
  Status health() override;
  Result<DeviceAddress> allocate(uint64_t bytes, Sharing sharing) override;
  Status free(DeviceAddress base) override;
  uint64_t allocated_bytes() const;
  Result<Allocation> find(DeviceAddress address) override;
  Result<MemoryHandle> export_memory(DeviceAddress base) override;
  // The descriptor is the memory's file.
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

  // Returns where this process has memory that it has allocated; null: nothing is there.
  std::byte* host_memory(DeviceAddress address);

  // These imitate virtual memory management: reserve() reserves addresses, in which the caller
  // places memory of Sharing::kFd with allocate_at(). It is found, exported and freed like other
  // memory.
  Result<DeviceAddress> reserve(uint64_t bytes);
  Status allocate_at(DeviceAddress address, uint64_t bytes);
  // Returns the reservation that the address lies in, whether memory is there or not.
  Result<Allocation> find_reserved(DeviceAddress address) const;

  // Makes the next call of this name ("allocate", "copy_to_host", ...) fail with the status; the
  // call changes nothing.
  void fail_once(std::string_view call, const Status& status);
  // These cause a sticky error: at once, or in place of the operation that comes after `operations`
  // more.
  void lose(const Status& status);
  void lose_after(uint64_t operations, const Status& status);

 private:
  friend class FakeCommunicator;
  friend class FakeStream;

  struct Mapping {
    uint64_t bytes = 0;
    std::shared_ptr<Block> block;       // null for a join
    std::shared_ptr<Window> joined;     // for a join
    std::vector<DeviceAddress> pieces;  // for a join
    bool is_import = false;             // an import or a join
    bool is_reached = false;            // an import or a join of another device's
    uint64_t counted_bytes = 0;         // the part of allocated_bytes() that is this mapping's
    uint64_t id = 0;
  };
  using Reservations = std::map<DeviceAddress, std::unique_ptr<Window>>;
  struct HostRange {
    size_t bytes = 0;
    std::unique_ptr<std::byte[]> owned;  // null: the memory was registered
  };
  struct LoseAfter {
    uint64_t operations = 0;
    Status status;
  };

  // All functions from here on are called under the GPU's mutex.
  Status enter(std::string_view call);
  // Does what enter() above does, for a call that queues work.
  Status enter(std::string_view call, const FakeStream& stream);
  void lose_locked(const Status& status);
  void lose_at(DeviceAddress address);
  // Called before an operation is done. Returns true if the device is lost, or is lost by this
  // call.
  bool operation_is_lost();
  std::byte* resolve(DeviceAddress address, uint64_t bytes);
  bool is_pinned(const void* at, size_t bytes) const;
  Status pin(std::span<std::byte> memory);
  bool is_mapped(const Block& block) const;
  bool is_joined(DeviceAddress piece) const;
  Result<std::shared_ptr<Block>> make_block(uint64_t bytes, Sharing sharing);
  void give_back(Block& block, uint64_t counted_bytes);
  DeviceAddress map(Mapping mapping);
  Reservations::const_iterator reservation_of(DeviceAddress address) const;
  // Waits until the device is idle. Returns kTimeout where CUDA would never return.
  Status wait_until_idle();
  // Removes a mapping, which must be an import or must not be one; otherwise returns kNotFound.
  Status unmap(DeviceAddress base, bool is_import);
  Status remove_host(std::byte* base, bool is_owned);
  DeviceAddress first_address() const;
  const void* ticket_gpu() const;
  Result<uint64_t> id_in(const MemoryHandle& handle) const;

  FakeGpu& gpu_;
  const DeviceOptions options_;
  DeviceFacts facts_;
  Status health_;
  std::map<std::string, Status, std::less<>> failures_;  // keyed by the name of the call
  std::optional<LoseAfter> lose_after_;
  uint64_t allocated_bytes_ = 0;
  uint64_t next_mapping_id_ = 1;
  std::map<DeviceAddress, Mapping> mappings_;
  Reservations reservations_;
  std::map<const std::byte*, HostRange> host_;
  std::vector<FakeStream*> streams_;
  // of communicators that this device is to be the first member of
  std::map<CommunicatorId, UniqueFd> meeting_places_;
};

}  // namespace rueda::gpu::fake
