// The pointer cache: it knows which allocations of device memory the daemon knows. An allocation is
// exported and sent once, however many tensors lie in it.
//
// A tensor may go on from one allocation to the next, where virtual memory management has mapped
// them one behind another (PyTorch's expandable segments). The daemon is then told to join them,
// once for each run of allocations that has a tensor in it.
//
// Memory that was freed and comes again at the same address is another allocation: the driver gives
// it another buffer id, for which the driver is asked at every use. A program that sees memory
// freed may say so (forget()); nothing then stays open for that memory. If it promises to say so
// each time (announce_frees()), the driver is asked only now and then. So it is for allocations of
// an allocator whose calls are seen (WatchedAllocations): this is the pointer cache of Awan et al.
// (2019), with intercepted frees. Memory that was freed without notice and does not come again is
// looked for now and then, because the GPU keeps memory for as long as the worker has it open.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "client/abi/rueda_abi.h"
#include "client/src/device/driver.h"
#include "client/src/device/watched_allocations.h"
#include "daemon/base/mutex.h"
#include "daemon/base/status.h"

namespace rueda::client {

// This class is thread-safe.
class DeviceMemories final : private WatchedAllocations::Listener {
 public:
  // The calls that tell the daemon of memory.
  struct Registrar {
    std::function<Result<uint32_t>(const rueda_abi_device_memory&, int fd)> add;
    std::function<Result<uint32_t>(std::span<const uint32_t> ids)> join;
    std::function<Status(uint32_t id)> remove;
    // Returns an error, which names a submission, if submissions in flight use memory between the
    // two addresses; otherwise ok.
    std::function<Status(uint64_t begin, uint64_t end)> check_unused;
  };
  struct Place {
    // If true, the GPU worker cannot open all of the memory (docs/decisions/0052), and the other
    // fields are empty.
    bool is_staged = false;
    uint32_t memory_id = 0;
    uint64_t offset = 0;
    // For joined memory: as long as somebody holds this pointer, the join does not make room for
    // others.
    std::shared_ptr<const void> hold;
  };
  // With announced frees, and for watched allocations, the driver is asked once in so many uses of
  // known memory.
  static constexpr uint64_t kUsesACheck = 256;
  // Without the promise, all known memory is looked at once in so many uses.
  static constexpr uint64_t kUsesASweep = 4096;
  // The most joins there may be; one more replaces the one that was used least recently.
  static constexpr size_t kMaxJoins = 1024;

  struct Stats {
    uint64_t hits = 0;  // uses whose memory the daemon knew completely
    uint64_t misses = 0;
    uint64_t recycled = 0;  // misses at an address that had belonged to another allocation
    uint64_t known = 0;     // allocations that are known now
    uint64_t checks = 0;    // questions to the driver about known memory
  };

  // Called with the reason for the first allocation that the GPU worker cannot open.
  using OnStaged = std::function<void(const Status&)>;

  // The driver and the watched allocations must outlive this object.
  DeviceMemories(DeviceDriver& driver, Registrar registrar, OnStaged on_staged,
                 WatchedAllocations& watched = WatchedAllocations::of_process());
  ~DeviceMemories() override;
  DeviceMemories(const DeviceMemories&) = delete;
  DeviceMemories& operator=(const DeviceMemories&) = delete;

  // Finds the memory at an address, and makes it known to the daemon if necessary; bytes > 0.
  // Returns kInvalidArgument if some of it is not device memory, or if it goes on in an allocation
  // that cannot be joined; kResourceExhausted if the largest number of joins is in use.
  Result<Place> locate(uint64_t address, size_t bytes);
  // Says that the allocation that contains the address is about to be freed, or has been. Unknown
  // addresses are ignored. Returns kInvalidArgument, and the allocation stays known, if a
  // submission in flight uses it.
  Status forget(uint64_t address);
  // Says whether forget() is called before any memory is freed. A check that finds a broken promise
  // ends this mode, and says so on standard error: from then on every use is checked.
  void announce_frees(bool are_announced);
  Stats stats() const;

 private:
  struct Known {
    uint64_t bytes = 0;
    uint64_t buffer_id = 0;
    uint64_t watched = 0;    // its number among the watched allocations; 0: it is not watched
    uint32_t memory_id = 0;  // 0: the worker cannot open it
    bool is_fd = false;
    std::array<uint8_t, 16> device{};

    bool is_staged() const { return memory_id == 0; }
  };
  using Entry = std::map<uint64_t, Known>::iterator;  // keyed by the base address
  struct Join {
    uint32_t memory_id = 0;
    uint64_t used_at = 0;  // value of join_uses_ at its last use
    std::shared_ptr<const void> hold;
  };
  using Stretch = std::pair<uint64_t, uint64_t>;  // begin and end addresses
  using JoinEntry = std::map<Stretch, Join>::iterator;
  // State of one call of locate().
  struct Use {
    // whether memory that may be trusted is checked with the driver; nullopt: there was none yet
    std::optional<bool> is_checked;
    bool is_miss = false;
    bool is_recycled = false;
  };

  static uint64_t end_of(Entry entry) { return entry->first + entry->second.bytes; }
  Entry find(uint64_t address) RUEDA_REQUIRES(mutex_);
  void before_free(uint64_t base) override;
  // Whether the allocation is watched, and has not been freed.
  bool is_watched(Entry entry) const RUEDA_REQUIRES(mutex_);
  bool is_check_due(Entry entry, Use& use) RUEDA_REQUIRES(mutex_);
  bool is_as_known(uint64_t address, Entry entry) RUEDA_REQUIRES(mutex_);
  void count_miss(Use& use) RUEDA_REQUIRES(mutex_);
  // Finds an allocation, and makes it known if necessary. An allocation that begins before
  // `least_base` is an error.
  Result<Entry> find_or_add(uint64_t address, uint64_t least_base, Use& use) RUEDA_REQUIRES(mutex_);
  Result<Entry> add(uint64_t address, uint64_t least_base) RUEDA_REQUIRES(mutex_);
  static Place place_in(const Known& known, uint64_t offset);
  // Locates memory that goes on behind its first allocation.
  Result<Place> locate_joined(Entry first, uint64_t address, size_t bytes, Use& use)
      RUEDA_REQUIRES(mutex_);
  Result<std::vector<Entry>> find_run(Entry first, uint64_t address, size_t bytes, Use& use)
      RUEDA_REQUIRES(mutex_);
  Result<JoinEntry> join(const std::vector<Entry>& run) RUEDA_REQUIRES(mutex_);
  Status make_room_for_join() RUEDA_REQUIRES(mutex_);
  Status drop(Entry entry) RUEDA_REQUIRES(mutex_);
  // Drops allocations that have been freed and that nothing in flight uses.
  void sweep() RUEDA_REQUIRES(mutex_);
  Status drop_joins_of(Entry entry) RUEDA_REQUIRES(mutex_);

  DeviceDriver& driver_;
  const Registrar registrar_;
  OnStaged on_staged_;  // null after it has been called
  WatchedAllocations& watched_;
  // held while the daemon is asked, so that two threads do not ask for the same allocation
  mutable Mutex mutex_;
  std::map<uint64_t, Known> known_ RUEDA_GUARDED_BY(mutex_);
  // Joins, keyed by the addresses that they cover. Those of different tensors may overlap, but only
  // as far as tensors do: freeing one piece should cost no more than the tensors that lay in it.
  std::map<Stretch, Join> joins_ RUEDA_GUARDED_BY(mutex_);
  uint64_t join_uses_ RUEDA_GUARDED_BY(mutex_) = 0;
  bool are_frees_announced_ RUEDA_GUARDED_BY(mutex_) = false;
  bool trusts_watched_ RUEDA_GUARDED_BY(mutex_) = true;
  uint64_t unchecked_ RUEDA_GUARDED_BY(mutex_) = 0;  // uses since the last check
  uint64_t unswept_ RUEDA_GUARDED_BY(mutex_) = 0;    // uses since the last sweep
  Stats stats_ RUEDA_GUARDED_BY(mutex_);
};

}  // namespace rueda::client
