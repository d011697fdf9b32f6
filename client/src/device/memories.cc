#include "client/src/device/memories.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "daemon/base/mutex.h"

namespace rueda::client {
namespace {

// Tells whether the daemon refused to remove memory. If the session is over, nothing needs to be
// removed.
bool is_in_flight(const Status& removed) { return removed.code() == Code::kUnavailable; }

}  // namespace

DeviceMemories::DeviceMemories(DeviceDriver& driver, Registrar registrar, OnStaged on_staged,
                               WatchedAllocations& watched)
    : driver_(driver),
      registrar_(std::move(registrar)),
      on_staged_(std::move(on_staged)),
      watched_(watched) {
  watched_.add(*this);
}

DeviceMemories::~DeviceMemories() { watched_.remove(*this); }

DeviceMemories::Entry DeviceMemories::find(uint64_t address) {
  const Entry after = known_.upper_bound(address);
  if (after == known_.begin()) return known_.end();
  const Entry entry = std::prev(after);
  return address - entry->first < entry->second.bytes ? entry : known_.end();
}

Result<DeviceMemories::Place> DeviceMemories::locate(uint64_t address, size_t bytes) {
  const MutexLock lock(mutex_);
  if (!are_frees_announced_ && ++unswept_ == kUsesASweep) sweep();
  Use use;
  const Result<Entry> found = find_or_add(address, 0, use);
  if (!found.is_ok()) return found.status();
  const Entry entry = found.value();
  Result<Place> place = place_in(entry->second, address - entry->first);
  if (bytes > end_of(entry) - address) place = locate_joined(entry, address, bytes, use);
  if (place.is_ok() && !use.is_miss) ++stats_.hits;
  return place;
}

DeviceMemories::Place DeviceMemories::place_in(const Known& known, uint64_t offset) {
  if (known.is_staged()) return {.is_staged = true};
  return {.memory_id = known.memory_id, .offset = offset};
}

bool DeviceMemories::is_watched(Entry entry) const {
  const uint64_t serial = entry->second.watched;
  return trusts_watched_ && serial != 0 && watched_.serial_of(entry->first) == serial;
}

bool DeviceMemories::is_check_due(Entry entry, Use& use) {
  if (!are_frees_announced_ && !is_watched(entry)) return true;
  if (!use.is_checked) {
    use.is_checked = ++unchecked_ == kUsesACheck;
    if (*use.is_checked) unchecked_ = 0;
  }
  return *use.is_checked;
}

bool DeviceMemories::is_as_known(uint64_t address, Entry entry) {
  ++stats_.checks;
  if (driver_.buffer_id(address) == entry->second.buffer_id) return true;
  if (std::exchange(are_frees_announced_, false)) {
    std::fprintf(stderr,
                 "rueda: device memory was freed without rueda_device_forget, though "
                 "rueda_device_announce_frees was called: results since may be of memory that is "
                 "no longer there; from now on every use asks the driver\n");
  } else if (is_watched(entry)) {
    trusts_watched_ = false;
    std::fprintf(stderr,
                 "rueda: device memory of the allocator that rueda_device_watch_frees names was "
                 "freed by something else: results since may be of memory that is no longer there; "
                 "from now on every use asks the driver\n");
  }
  return false;
}

void DeviceMemories::count_miss(Use& use) {
  if (!std::exchange(use.is_miss, true)) ++stats_.misses;
}

Result<DeviceMemories::Entry> DeviceMemories::find_or_add(uint64_t address, uint64_t least_base,
                                                          Use& use) {
  const Entry entry = find(address);
  const bool is_known = entry != known_.end();
  if (is_known && (!is_check_due(entry, use) || is_as_known(address, entry))) return entry;
  count_miss(use);
  if (is_known && !std::exchange(use.is_recycled, true)) ++stats_.recycled;
  return add(address, least_base);
}

Result<DeviceMemories::Entry> DeviceMemories::add(uint64_t address, uint64_t least_base) {
  const Result<DeviceAllocation> found = driver_.find(address);
  if (!found.is_ok()) return found.status();
  const DeviceAllocation& allocation = found.value();
  if (allocation.base < least_base) {
    return Status{Code::kInvalidArgument, "an allocation begins inside the one before it"};
  }
  // Whatever was known of this range has been freed.
  for (Entry old = known_.lower_bound(allocation.base + allocation.bytes); old != known_.begin();) {
    --old;
    if (end_of(old) <= allocation.base) break;
    const Entry next = std::next(old);
    if (Status status = drop(old); !status.is_ok()) return status;
    old = next;
  }
  Result<ExportedMemory> exported = driver_.export_memory(allocation);
  if (!exported.is_ok()) return exported.status();
  const bool is_fd = exported.value().is_fd;
  rueda_abi_device_memory memory{};
  memory.kind = is_fd ? RUEDA_ABI_DEVICE_FD : RUEDA_ABI_DEVICE_IPC;
  memory.bytes = allocation.bytes;
  std::memcpy(memory.device, allocation.device.data(), sizeof(memory.device));
  std::memcpy(memory.ipc, exported.value().ipc.data(), sizeof(memory.ipc));
  const Result<uint32_t> id = registrar_.add(memory, exported.value().fd.get());
  const bool is_staged = id.status().code() == Code::kPermission;
  if (!id.is_ok() && !is_staged) return id.status();
  if (is_staged && on_staged_) std::exchange(on_staged_, nullptr)(id.status());
  const Known known{.bytes = allocation.bytes,
                    .buffer_id = allocation.buffer_id,
                    .watched = watched_.serial_of(allocation.base),
                    .memory_id = is_staged ? 0 : id.value(),
                    .is_fd = is_fd,
                    .device = allocation.device};
  return known_.insert_or_assign(allocation.base, known).first;
}

Result<DeviceMemories::Place> DeviceMemories::locate_joined(Entry first, uint64_t address,
                                                            size_t bytes, Use& use) {
  const Result<std::vector<Entry>> run = find_run(first, address, bytes, use);
  if (!run.is_ok()) {
    return Status{
        run.status().code(),
        std::to_string(bytes) + " bytes of device memory reach beyond their allocation, " +
            std::to_string(end_of(first) - address) + " bytes on: " + run.status().message()};
  }
  const bool is_staged = std::any_of(run.value().begin(), run.value().end(),
                                     [](Entry piece) { return piece->second.is_staged(); });
  if (is_staged) return Place{.is_staged = true};
  JoinEntry found = joins_.find({first->first, end_of(run.value().back())});
  if (found == joins_.end()) {
    count_miss(use);
    const Result<JoinEntry> made = join(run.value());
    if (!made.is_ok()) return made.status();
    found = made.value();
  }
  Join& joined = found->second;
  joined.used_at = ++join_uses_;
  return Place{
      .memory_id = joined.memory_id, .offset = address - first->first, .hold = joined.hold};
}

Result<std::vector<DeviceMemories::Entry>> DeviceMemories::find_run(Entry first, uint64_t address,
                                                                    size_t bytes, Use& use) {
  std::vector<Entry> run{first};
  while (bytes > end_of(run.back()) - address) {
    const uint64_t next = end_of(run.back());
    if (run.size() == RUEDA_ABI_MAX_JOINED) {
      return Status{Code::kInvalidArgument, "a tensor may lie in " +
                                                std::to_string(RUEDA_ABI_MAX_JOINED) +
                                                " allocations at most; hand it over in parts"};
    }
    const Result<Entry> found = find_or_add(next, next, use);
    if (!found.is_ok()) {
      return Status{found.status().code(), "behind " + std::to_string(next - address) +
                                               " of them: " + found.status().message()};
    }
    run.push_back(found.value());
    const bool is_staged = first->second.is_staged() || run.back()->second.is_staged();
    if (!is_staged && (!first->second.is_fd || !run.back()->second.is_fd)) {
      return Status{Code::kInvalidArgument,
                    "only what virtual memory management has mapped can be joined, not "
                    "cudaMalloc's; hand over a tensor that lies in one allocation"};
    }
    if (run.back()->second.device != first->second.device) {
      return Status{Code::kInvalidArgument,
                    "the next is another GPU's; hand over a tensor that lies in one GPU's memory"};
    }
  }
  return run;
}

Result<DeviceMemories::JoinEntry> DeviceMemories::join(const std::vector<Entry>& run) {
  if (Status status = make_room_for_join(); !status.is_ok()) return status;
  std::vector<uint32_t> ids;
  for (const Entry& piece : run) ids.push_back(piece->second.memory_id);
  const Result<uint32_t> id = registrar_.join(ids);
  if (!id.is_ok()) return id.status();
  const Stretch stretch{run.front()->first, end_of(run.back())};
  return joins_.emplace(stretch, Join{id.value(), 0, std::make_shared<char>()}).first;
}

Status DeviceMemories::make_room_for_join() {
  if (joins_.size() < kMaxJoins) return Status::ok();
  JoinEntry oldest = joins_.end();
  for (JoinEntry join = joins_.begin(); join != joins_.end(); ++join) {
    if (join->second.hold.use_count() > 1) continue;
    if (oldest == joins_.end() || join->second.used_at < oldest->second.used_at) oldest = join;
  }
  if (oldest == joins_.end()) {
    return {Code::kResourceExhausted,
            std::to_string(kMaxJoins) +
                " tensors in flight lie each in several allocations, and no more may: wait for "
                "some of them, or have the allocator make larger pieces"};
  }
  const Status removed = registrar_.remove(oldest->second.memory_id);
  if (is_in_flight(removed)) return removed;
  joins_.erase(oldest);
  return Status::ok();
}

Status DeviceMemories::drop_joins_of(Entry entry) {
  for (JoinEntry join = joins_.begin();
       join != joins_.end() && join->first.first < end_of(entry);) {
    if (join->first.second <= entry->first) {
      ++join;
      continue;
    }
    const Status removed = registrar_.remove(join->second.memory_id);
    if (is_in_flight(removed)) return removed;
    join = joins_.erase(join);
  }
  return Status::ok();
}

Status DeviceMemories::drop(Entry entry) {
  if (Status status = registrar_.check_unused(entry->first, end_of(entry)); !status.is_ok()) {
    return status;
  }
  if (Status status = drop_joins_of(entry); !status.is_ok()) return status;
  if (!entry->second.is_staged()) {
    const Status removed = registrar_.remove(entry->second.memory_id);
    if (is_in_flight(removed)) return removed;
  }
  known_.erase(entry);
  return Status::ok();
}

void DeviceMemories::sweep() {
  unswept_ = 0;
  for (Entry entry = known_.begin(); entry != known_.end();) {
    const Entry next = std::next(entry);
    const bool is_there = driver_.buffer_id(entry->first) == entry->second.buffer_id;
    if (!is_there) static_cast<void>(drop(entry));  // memory in flight stays for the next sweep
    entry = next;
  }
}

Status DeviceMemories::forget(uint64_t address) {
  const MutexLock lock(mutex_);
  const Entry entry = find(address);
  return entry == known_.end() ? Status::ok() : drop(entry);
}

// If submissions in flight use the memory it stays known, and the next use asks the driver.
void DeviceMemories::before_free(uint64_t base) { static_cast<void>(forget(base)); }

void DeviceMemories::announce_frees(bool are_announced) {
  const MutexLock lock(mutex_);
  are_frees_announced_ = are_announced;
}

DeviceMemories::Stats DeviceMemories::stats() const {
  const MutexLock lock(mutex_);
  Stats stats = stats_;
  stats.known = known_.size();
  return stats;
}

}  // namespace rueda::client
