// What one process sees of a FakeGpu, with errors on demand.
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
#include "daemon/gpu/fake/fake_gpu.h"
#include "daemon/gpu/fake/window.h"

namespace rueda::gpu::fake {

// Addresses are given out as low as there is room: what is freed comes again at once, which is when
// caches of addresses go wrong. GPUs have them from places far apart. An operation that touches
// memory that is not there, or is another GPU's and not reached, loses the device, as it does in
// CUDA.
class FakeDevice final : public Device {
 public:
  // The GPU outlives it.
  explicit FakeDevice(FakeGpu& gpu, const DeviceOptions& options = {});
  // Its streams have gone before. Its memory is freed, whoever has it mapped.
  ~FakeDevice() override;

  const DeviceFacts& facts() const override { return facts_; }
  Status health() override;
  Result<DeviceAddress> allocate(uint64_t bytes, Sharing sharing) override;
  Status free(DeviceAddress base) override;
  uint64_t allocated_bytes() const override;
  Result<Allocation> find(DeviceAddress address) override;
  Result<MemoryHandle> export_memory(DeviceAddress base) override;
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

  // Where this process has memory that it has allocated; null: nothing is there.
  std::byte* host_memory(DeviceAddress address);

  // As virtual memory management does: addresses, in which memory of Sharing::kFd is allocated
  // where the caller wants it. It is found, exported and freed like other memory.
  Result<DeviceAddress> reserve(uint64_t bytes);
  Status allocate_at(DeviceAddress address, uint64_t bytes);
  // The reservation that the address lies in, whether memory is there or not.
  Result<Allocation> find_reserved(DeviceAddress address) const;

  // The next call of this name ("allocate", "copy_to_host", ...) fails with the status, and changes
  // nothing.
  void fail_once(std::string_view call, const Status& status);
  // A sticky error: now, or instead of the operation that would be done after `operations` more.
  void lose(const Status& status);
  void lose_after(uint64_t operations, const Status& status);

 private:
  friend class FakeCommunicator;
  friend class FakeStream;

  struct Mapping {
    uint64_t bytes = 0;
    std::shared_ptr<Block> block;       // null: of a join
    std::shared_ptr<Window> joined;     // of a join
    std::vector<DeviceAddress> pieces;  // of a join
    bool is_import = false;             // or a join
    bool is_reached = false;            // an import or a join of another device's
    uint64_t counted_bytes = 0;         // of allocated_bytes()
    uint64_t id = 0;
  };
  using Reservations = std::map<DeviceAddress, std::unique_ptr<Window>>;
  struct HostRange {
    size_t bytes = 0;
    std::unique_ptr<std::byte[]> owned;  // null: registered
  };
  struct LoseAfter {
    uint64_t operations = 0;
    Status status;
  };

  // All of these under the GPU's mutex.
  Status enter(std::string_view call);
  // The same for a call that queues something.
  Status enter(std::string_view call, const FakeStream& stream);
  void lose_locked(const Status& status);
  void lose_at(DeviceAddress address);
  // Before an operation is done: whether the device is lost, or is now.
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
  // What waits for an idle device ends here: kTimeout where CUDA would never return.
  Status wait_until_idle();
  // A mapping that is an import, or is not, or kNotFound.
  Status unmap(DeviceAddress base, bool is_import);
  Status remove_host(std::byte* base, bool is_owned);
  DeviceAddress first_address() const;
  const void* ticket_gpu() const;
  Result<uint64_t> id_in(const MemoryHandle& handle) const;

  FakeGpu& gpu_;
  const DeviceOptions options_;
  DeviceFacts facts_;
  Status health_;
  std::map<std::string, Status, std::less<>> failures_;  // by call
  std::optional<LoseAfter> lose_after_;
  uint64_t allocated_bytes_ = 0;
  uint64_t next_mapping_id_ = 1;
  std::map<DeviceAddress, Mapping> mappings_;
  Reservations reservations_;
  std::map<const std::byte*, HostRange> host_;
  std::vector<FakeStream*> streams_;
  std::map<CommunicatorId, UniqueFd> meeting_places_;  // of communicators that it is to be first of
};

}  // namespace rueda::gpu::fake
