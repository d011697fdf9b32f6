#include "daemon/gpu/worker/devices.h"

#include <algorithm>
#include <string>
#include <utility>

namespace rueda::gpu {

// Devices are destroyed in reverse order, because the first one's host memory is used by all
// others.
Devices::~Devices() {
  while (!devices_.empty()) devices_.pop_back();
}

Status Devices::open(const OpenBody& wanted, size_t host_bytes) {
  Result<std::unique_ptr<Device>> opened =
      open_(wanted, [](const DeviceFacts&) { return Status::ok(); });
  if (!opened.is_ok()) return opened.status();
  const auto host = opened.value()->allocate_host(host_bytes);
  if (!host.is_ok()) return host.status();
  first_ = wanted;
  host_ = host.value().data();
  devices_.push_back(std::move(opened).value());
  return Status::ok();
}

Result<size_t> Devices::find_or_open(const std::array<uint8_t, 16>& uuid) {
  const auto found = std::find_if(devices_.begin(), devices_.end(),
                                  [&](const auto& device) { return device->facts().uuid == uuid; });
  if (found != devices_.end()) return static_cast<size_t>(found - devices_.begin());
  Result<std::unique_ptr<Device>> opened = open_peer(uuid);
  if (!opened.is_ok()) return opened.status();
  const Result<std::vector<DeviceAddress>> addresses = reach_all(*opened.value());
  if (!addresses.is_ok()) return addresses.status();
  auto next = addresses.value().begin();
  for (auto& [id, memory] : memories_) memory.at.push_back(*next++);
  devices_.push_back(std::move(opened).value());
  return devices_.size() - 1;
}

Result<std::unique_ptr<Device>> Devices::open_peer(const std::array<uint8_t, 16>& uuid) {
  if (devices_.size() == kMost) {
    return Status(Code::kResourceExhausted, "a GPU worker has " + std::to_string(kMost) +
                                                " GPUs, and takes no more: hand over host memory");
  }
  OpenBody wanted = first_;
  wanted.uuid = uuid;
  Result<std::unique_ptr<Device>> opened = open_(wanted, [this](const DeviceFacts& facts) {
    for (const auto& peer : devices_) {
      if (Status status = peer->can_reach(facts); !status.is_ok()) return status;
    }
    return Status::ok();
  });
  if (!opened.is_ok()) return opened.status();
  const Status reached = opened.value()->reach_host(*devices_[0], host_);
  if (!reached.is_ok()) return reached;
  return opened;
}

Result<std::vector<DeviceAddress>> Devices::reach_all(Device& device) {
  std::vector<DeviceAddress> addresses;
  for (const auto& [id, memory] : memories_) {
    const Result<DeviceAddress> at = reach(device, memory);
    if (!at.is_ok()) return at.status();  // Memory that was reached goes with the device.
    addresses.push_back(at.value());
  }
  return addresses;
}

Result<DeviceAddress> Devices::reach(Device& device, const Memory& memory) {
  if (memory.is_scratch) return DeviceAddress{0};
  if (memory.host.empty()) return device.reach(*devices_[memory.owner], memory.at[memory.owner]);
  if (Status status = device.reach_host(*devices_[0], memory.host.data()); !status.is_ok()) {
    return status;
  }
  return device.address_of_host(memory.host);
}

Result<Devices::MemoryId> Devices::import_memory(size_t gpu, const MemoryHandle& handle) {
  const Result<DeviceAddress> base = devices_[gpu]->import_memory(handle);
  if (!base.is_ok()) return base.status();
  return add(gpu, base.value());
}

Result<Devices::MemoryId> Devices::join(std::span<const MemoryId> pieces) {
  size_t owner = 0;
  std::vector<DeviceAddress> bases;
  for (const MemoryId piece : pieces) {
    const Memory& memory = memories_.at(piece);
    if (!bases.empty() && memory.owner != owner) {
      return Status(Code::kInvalidArgument, "memory of two GPUs cannot be joined");
    }
    owner = memory.owner;
    bases.push_back(memory.at[owner]);
  }
  const Result<DeviceAddress> base = devices_[owner]->join(bases);
  if (!base.is_ok()) return base.status();
  return add(owner, base.value());
}

Result<Devices::MemoryId> Devices::add(size_t owner, DeviceAddress base) {
  Memory memory{.owner = owner, .at = std::vector<DeviceAddress>(devices_.size(), 0)};
  memory.at[owner] = base;
  for (size_t gpu = 0; gpu < devices_.size(); ++gpu) {
    if (gpu == owner) continue;
    const Result<DeviceAddress> reached = devices_[gpu]->reach(*devices_[owner], base);
    if (!reached.is_ok()) {
      static_cast<void>(close_on(memory.at, owner));
      return reached.status();
    }
    memory.at[gpu] = reached.value();
  }
  memories_.emplace(++last_, std::move(memory));
  return last_;
}

Result<Devices::MemoryId> Devices::allocate(uint64_t bytes) {
  const Result<DeviceAddress> base = devices_[0]->allocate(bytes, Sharing::kIpc);
  if (!base.is_ok()) return base.status();
  Memory memory{.is_scratch = true, .at = std::vector<DeviceAddress>(devices_.size(), 0)};
  memory.at[0] = base.value();
  memories_.emplace(++last_, std::move(memory));
  return last_;
}

Result<Devices::MemoryId> Devices::map_host(std::span<std::byte> memory) {
  Memory mapped{.host = memory};
  Status status = devices_[0]->register_host(memory);
  if (!status.is_ok()) return status;
  for (size_t gpu = 0; gpu < devices_.size(); ++gpu) {
    const Result<DeviceAddress> at =
        gpu == 0 ? devices_[0]->address_of_host(memory) : reach(*devices_[gpu], mapped);
    if (!at.is_ok()) {
      static_cast<void>(unpin(memory, gpu + 1));
      return at.status();
    }
    mapped.at.push_back(at.value());
  }
  memories_.emplace(++last_, std::move(mapped));
  return last_;
}

Status Devices::unpin(std::span<std::byte> memory, size_t gpus) {
  Status failed;
  for (size_t gpu = gpus; gpu-- > 0;) {
    const Status status = devices_[gpu]->unregister_host(memory.data());
    if (failed.is_ok()) failed = status;
  }
  return failed;
}

Status Devices::close_on(const std::vector<DeviceAddress>& at, size_t owner) {
  Status failed;
  for (size_t gpu = 0; gpu < at.size(); ++gpu) {
    if (gpu == owner || at[gpu] == 0) continue;
    if (Status status = devices_[gpu]->close_import(at[gpu]); failed.is_ok()) failed = status;
  }
  if (Status status = devices_[owner]->close_import(at[owner]); failed.is_ok()) failed = status;
  return failed;
}

Status Devices::close(MemoryId memory) {
  const auto found = memories_.find(memory);
  const Memory closed = std::move(found->second);
  memories_.erase(found);
  if (closed.is_scratch) return devices_[0]->free(closed.at[0]);
  if (!closed.host.empty()) return unpin(closed.host, closed.at.size());
  return close_on(closed.at, closed.owner);
}

Status Devices::health() {
  for (const auto& device : devices_) {
    if (Status status = device->health(); !status.is_ok()) return status;
  }
  return Status::ok();
}

}  // namespace rueda::gpu
