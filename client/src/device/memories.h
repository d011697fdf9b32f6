// Which allocations of device memory the daemon knows: the pointer cache. An allocation is exported
// and sent once, however many tensors lie in it.
//
// A tensor may go on from one allocation to the next, where virtual memory management has mapped
// them one behind another (PyTorch's expandable segments). Then the daemon is told to join them:
// once for each run of allocations in which a tensor lies.
//
// Memory that was freed and comes again at the same address is another allocation: the driver gives
// it another buffer id, which is asked for at every use. Whoever sees memory freed may say so
// (forget()); then nothing stays open for it. Whoever promises to say so each time
// (announce_frees()) has the driver asked now and then only: the pointer cache of Awan et al.
// (2019), with intercepted frees. What was freed without a word and does not come again is looked
// for now and then, because the GPU keeps memory for as long as the worker has it open.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "client/abi/rueda_abi.h"
#include "client/src/device/driver.h"
#include "daemon/base/status.h"

namespace rueda::client {

// Thread-safe.
class DeviceMemories {
 public:
  // How the daemon is told.
  struct Registrar {
    std::function<Result<uint32_t>(const rueda_abi_device_memory&, int fd)> add;
    std::function<Result<uint32_t>(std::span<const uint32_t> ids)> join;
    std::function<Status(uint32_t id)> remove;
    // Whether submissions in flight use what lies between two addresses. Ok, or an error that names
    // one.
    std::function<Status(uint64_t begin, uint64_t end)> check_unused;
  };
  struct Place {
    // The GPU worker cannot open all of it (docs/decisions/0052): then the rest is empty.
    bool is_staged = false;
    uint32_t memory_id = 0;
    uint64_t offset = 0;
    // Of a join: while somebody holds it, it does not make room for others.
    std::shared_ptr<const void> hold;
  };
  // With announced frees, so many uses of known memory are one question to the driver.
  static constexpr uint64_t kUsesACheck = 256;
  // Without a promise, after so many uses all that is known is looked at.
  static constexpr uint64_t kUsesASweep = 4096;
  // One more takes the place of that which was used least recently.
  static constexpr size_t kMaxJoins = 1024;

  struct Stats {
    uint64_t hits = 0;  // uses of which the daemon knew all
    uint64_t misses = 0;
    uint64_t recycled = 0;  // misses in which an address had been another allocation's
    uint64_t known = 0;     // allocations, now
    uint64_t checks = 0;    // questions to the driver of known memory
  };

  // Of the first allocation that the GPU worker cannot open: why not.
  using OnStaged = std::function<void(const Status&)>;

  // The driver outlives it.
  DeviceMemories(DeviceDriver& driver, Registrar registrar, OnStaged on_staged)
      : driver_(driver), registrar_(std::move(registrar)), on_staged_(std::move(on_staged)) {}

  // bytes > 0. kInvalidArgument: not all of it is device memory, or it goes on in an allocation
  // that cannot be joined. kResourceExhausted: more joins are in use than there may be.
  Result<Place> locate(uint64_t address, size_t bytes);
  // The allocation that the address lies in is about to be freed, or has been. Unknown ones are
  // fine. kInvalidArgument: a submission in flight uses it; it stays known.
  Status forget(uint64_t address);
  // Whether forget() is called before any memory is freed. A check that finds that it was not ends
  // that, and says so on standard error: from then on every use is checked.
  void announce_frees(bool are_announced);
  Stats stats() const;

 private:
  struct Known {
    uint64_t bytes = 0;
    uint64_t buffer_id = 0;
    uint32_t memory_id = 0;  // 0: the worker cannot open it
    bool is_fd = false;
    std::array<uint8_t, 16> device{};

    bool is_staged() const { return memory_id == 0; }
  };
  using Entry = std::map<uint64_t, Known>::iterator;  // by base
  struct Join {
    uint32_t memory_id = 0;
    uint64_t used_at = 0;  // of locate()'s uses of joins
    std::shared_ptr<const void> hold;
  };
  using Stretch = std::pair<uint64_t, uint64_t>;  // begin and end
  using JoinEntry = std::map<Stretch, Join>::iterator;
  // One call of locate().
  struct Use {
    std::optional<bool> is_checked;  // what was known; none: nothing was
    bool is_miss = false;
    bool is_recycled = false;
  };

  static uint64_t end_of(Entry entry) { return entry->first + entry->second.bytes; }
  Entry find(uint64_t address);
  bool is_check_due();
  bool is_as_known(uint64_t address, const Known& known);
  void count_miss(Use& use);
  // Known, or made known. An allocation that begins before `least_base` is an error.
  Result<Entry> find_or_add(uint64_t address, uint64_t least_base, Use& use);
  Result<Entry> add(uint64_t address, uint64_t least_base);
  static Place place_in(const Known& known, uint64_t offset);
  // What goes on behind its first allocation.
  Result<Place> locate_joined(Entry first, uint64_t address, size_t bytes, Use& use);
  Result<std::vector<Entry>> find_run(Entry first, uint64_t address, size_t bytes, Use& use);
  Result<JoinEntry> join(const std::vector<Entry>& run);
  Status make_room_for_join();
  Status drop(Entry entry);
  // What has been freed, and nothing in flight uses.
  void sweep();
  Status drop_joins_of(Entry entry);

  DeviceDriver& driver_;
  const Registrar registrar_;
  OnStaged on_staged_;        // null: it has been called
  mutable std::mutex mutex_;  // held while the daemon is asked: two threads do not ask for the same
  std::map<uint64_t, Known> known_;
  // By what they cover. Another tensor's may overlap; what one piece costs when it is freed is not
  // to be more than the tensors that lay in it.
  std::map<Stretch, Join> joins_;
  uint64_t join_uses_ = 0;
  bool are_frees_announced_ = false;
  uint64_t unchecked_ = 0;  // uses since the last check
  uint64_t unswept_ = 0;    // and since the last sweep
  Stats stats_;
};

}  // namespace rueda::client
