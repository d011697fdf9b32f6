#include "client/src/device/memories.h"

#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

namespace rueda::client {

DeviceMemories::Entry DeviceMemories::find(uint64_t address) {
  const Entry after = known_.upper_bound(address);
  if (after == known_.begin()) return known_.end();
  const Entry entry = std::prev(after);
  return address - entry->first < entry->second.bytes ? entry : known_.end();
}

Result<DeviceMemories::Place> DeviceMemories::locate(uint64_t address, size_t bytes) {
  const std::lock_guard lock(mutex_);
  Entry entry = find(address);
  if (entry != known_.end() && is_as_known(address, entry->second)) {
    ++stats_.hits;
  } else {
    ++stats_.misses;
    if (entry != known_.end()) ++stats_.recycled;
    Result<Entry> added = add(address);
    if (!added.is_ok()) return added.status();
    entry = added.value();
  }
  const uint64_t offset = address - entry->first;
  if (bytes > entry->second.bytes - offset) {
    return Status{Code::kInvalidArgument,
                  std::to_string(bytes) +
                      " bytes of device memory reach beyond their allocation "
                      "of " +
                      std::to_string(entry->second.bytes) +
                      " bytes; a tensor must lie in one (of PyTorch: without expandable_segments)"};
  }
  return Place{entry->second.memory_id, offset};
}

bool DeviceMemories::is_as_known(uint64_t address, const Known& known) {
  if (are_frees_announced_ && ++unchecked_ < kUsesACheck) return true;
  unchecked_ = 0;
  ++stats_.checks;
  if (driver_.buffer_id(address) == known.buffer_id) return true;
  if (std::exchange(are_frees_announced_, false)) {
    std::fprintf(stderr,
                 "rueda: device memory was freed without rueda_device_forget, though "
                 "rueda_device_announce_frees was called: results since may be of memory that is "
                 "no longer there; from now on every use asks the driver\n");
  }
  return false;
}

Result<DeviceMemories::Entry> DeviceMemories::add(uint64_t address) {
  const Result<DeviceAllocation> found = driver_.find(address);
  if (!found.is_ok()) return found.status();
  const DeviceAllocation& allocation = found.value();
  // What was known of this stretch has been freed.
  for (Entry old = known_.lower_bound(allocation.base + allocation.bytes); old != known_.begin();) {
    --old;
    if (old->first + old->second.bytes <= allocation.base) break;
    const Entry next = std::next(old);
    if (Status status = drop(old); !status.is_ok()) return status;
    old = next;
  }
  Result<ExportedMemory> exported = driver_.export_memory(allocation);
  if (!exported.is_ok()) return exported.status();
  rueda_abi_device_memory memory{};
  memory.kind = exported.value().is_fd ? RUEDA_ABI_DEVICE_FD : RUEDA_ABI_DEVICE_IPC;
  memory.bytes = allocation.bytes;
  std::memcpy(memory.device, allocation.device.data(), sizeof(memory.device));
  std::memcpy(memory.ipc, exported.value().ipc.data(), sizeof(memory.ipc));
  const Result<uint32_t> id = registrar_.add(memory, exported.value().fd.get());
  if (!id.is_ok()) return id.status();
  return known_
      .insert_or_assign(allocation.base, Known{allocation.bytes, allocation.buffer_id, id.value()})
      .first;
}

Status DeviceMemories::drop(Entry entry) {
  const Status removed = registrar_.remove(entry->second.memory_id);
  // Of a session that is over nothing needs to be removed.
  if (removed.code() == Code::kUnavailable) {
    return {
        Code::kInvalidArgument,
        "device memory was freed while a submission in flight uses it (" + removed.message() + ")"};
  }
  known_.erase(entry);
  return Status::ok();
}

Status DeviceMemories::forget(uint64_t address) {
  const std::lock_guard lock(mutex_);
  const Entry entry = find(address);
  return entry == known_.end() ? Status::ok() : drop(entry);
}

void DeviceMemories::announce_frees(bool are_announced) {
  const std::lock_guard lock(mutex_);
  are_frees_announced_ = are_announced;
}

DeviceMemories::Stats DeviceMemories::stats() const {
  const std::lock_guard lock(mutex_);
  Stats stats = stats_;
  stats.known = known_.size();
  return stats;
}

}  // namespace rueda::client
