#include "daemon/session/memory/device_table.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "daemon/session/memory/arena.h"

namespace rueda::session {
namespace {

constexpr uint64_t kMaxDeviceBytes = uint64_t{1} << 44;

Status refused(const std::string& what) { return Status(Code::kInvalidArgument, what); }

}  // namespace

// Counters that have not been answered for count, too: a client may not share counters twice.
bool DeviceTable::wants_counters() const {
  return std::none_of(memories_.begin(), memories_.end(),
                      [](const auto& entry) { return entry.second.is_counters(); });
}

Status DeviceTable::check(const rueda_abi_device_memory& abi,
                          const std::vector<ForeignFd>& descriptors) const {
  const bool is_counters = abi.kind == RUEDA_ABI_DEVICE_COUNTERS;
  const size_t wanted = abi.kind == RUEDA_ABI_DEVICE_IPC ? 0 : 1;
  if (abi.kind > RUEDA_ABI_DEVICE_STAGING || abi.reserved != 0 || descriptors.size() != wanted) {
    return refused("device memory of kind " + std::to_string(abi.kind) + " with " +
                   std::to_string(descriptors.size()) +
                   " descriptors: known are 0 (none), 1, 2 and 3 (one), and reserved fields are 0");
  }
  if (is_counters != wants_counters()) {
    return refused("counters are shared once, and before device memory");
  }
  if (is_counters) {
    const uint64_t bytes = 2 * sizeof(uint64_t) * uint64_t{ring_capacity_};
    const uint64_t whole = (bytes + 4095) / 4096 * 4096;
    if (abi.bytes == whole) return check_memfd(descriptors.front().get(), whole, "counters");
    return refused("counters of " + std::to_string(abi.bytes) + " bytes: they have " +
                   std::to_string(whole) + ", two words for each record of a ring");
  }
  if (abi.bytes == 0 || abi.bytes > kMaxDeviceBytes) {
    return refused("device memory of " + std::to_string(abi.bytes) + " bytes is not possible");
  }
  if (abi.kind == RUEDA_ABI_DEVICE_STAGING)
    return check_memfd(descriptors.front().get(), abi.bytes, "memory in place of a GPU's");
  return Status::ok();
}

Result<DeviceMemory> DeviceTable::add(const rueda_abi_device_memory& abi,
                                      std::vector<ForeignFd>& descriptors) {
  if (Status status = check_room(); !status.is_ok()) return status;
  if (Status status = check(abi, descriptors); !status.is_ok()) return status;
  DeviceMemory memory;
  memory.id = next_id_++;
  memory.kind = static_cast<rueda_abi_device_kind>(abi.kind);
  memory.bytes = abi.bytes;
  std::memcpy(memory.device.data(), abi.device, sizeof(abi.device));
  std::memcpy(memory.ipc.data(), abi.ipc, sizeof(abi.ipc));
  if (!descriptors.empty()) memory.fd = std::move(descriptors.front());
  memories_[memory.id] = {.bytes = memory.bytes, .kind = memory.kind, .device = memory.device};
  return memory;
}

Status DeviceTable::check_join(const rueda_abi_device_join& abi) const {
  if (abi.count < 2 || abi.count > RUEDA_ABI_MAX_JOINED || abi.reserved != 0) {
    return refused("a join of " + std::to_string(abi.count) + " pieces of device memory: 2 to " +
                   std::to_string(RUEDA_ABI_MAX_JOINED) +
                   " are possible, and reserved fields are 0");
  }
  std::set<uint32_t> seen;
  const Memory* first = nullptr;
  uint64_t bytes = 0;
  for (const uint32_t id : std::span(abi.memory_ids).first(abi.count)) {
    const auto found = memories_.find(id);
    if (found == memories_.end() || !found->second.can_be_joined() || !seen.insert(id).second) {
      return refused("device memory " + std::to_string(id) +
                     " cannot be joined: it is to be there by a descriptor, and named once");
    }
    if (first == nullptr) first = &found->second;
    if (found->second.device != first->device) {
      return refused("device memory of two GPUs cannot be joined");
    }
    bytes += found->second.bytes;
    if (bytes > kMaxDeviceBytes) {
      return refused("a join of more than " + std::to_string(kMaxDeviceBytes) +
                     " bytes is not possible");
    }
  }
  return Status::ok();
}

Result<DeviceMemory> DeviceTable::join(const rueda_abi_device_join& abi) {
  if (Status status = check_room(); !status.is_ok()) return status;
  if (Status status = check_join(abi); !status.is_ok()) return status;
  DeviceMemory memory;
  memory.id = next_id_++;
  memory.kind = RUEDA_ABI_DEVICE_FD;
  for (const uint32_t id : std::span(abi.memory_ids).first(abi.count)) {
    Memory& piece = memories_.at(id);
    ++piece.joined_in;
    memory.bytes += piece.bytes;
    memory.device = piece.device;
    memory.pieces.push_back(id);
  }
  memories_[memory.id] = {
      .bytes = memory.bytes, .kind = memory.kind, .device = memory.device, .pieces = memory.pieces};
  return memory;
}

Status DeviceTable::check_room() const {
  if (memories_.size() < limits::kMaxDeviceMemoriesPerSession) return Status::ok();
  return {Code::kResourceExhausted,
          "this process shares " + std::to_string(limits::kMaxDeviceMemoriesPerSession) +
              " pieces of device memory already: let its allocator have fewer and larger ones"};
}

void DeviceTable::erase(Entry entry) {
  for (const uint32_t id : entry->second.pieces) --memories_.at(id).joined_in;
  memories_.erase(entry);
}

void DeviceTable::answer(uint32_t id, bool can_be_used) {
  const auto found = memories_.find(id);
  if (found == memories_.end()) return;
  if (!can_be_used) return erase(found);
  found->second.is_answered = true;
  has_counters_ |= found->second.is_counters();
}

Status DeviceTable::remove(uint32_t id) {
  if (bytes_of(id) == 0) {
    return Status(Code::kNotFound,
                  "there is no device memory " + std::to_string(id) + " to remove");
  }
  const Entry found = memories_.find(id);
  if (found->second.joined_in > 0) {
    return Status(Code::kUnavailable,
                  "device memory " + std::to_string(id) + " is part of a join: remove that first");
  }
  erase(found);
  return Status::ok();
}

uint64_t DeviceTable::bytes_of(uint32_t id) const {
  const auto found = memories_.find(id);
  if (found == memories_.end() || found->second.is_counters() || !found->second.is_answered)
    return 0;
  return found->second.bytes;
}

}  // namespace rueda::session
