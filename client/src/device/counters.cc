#include "client/src/device/counters.h"

#include <atomic>
#include <cerrno>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>

#include "client/src/wire/arena.h"
#include "daemon/base/mutex.h"
#include "daemon/base/os/shared_mapping.h"

namespace rueda::client {

Result<std::unique_ptr<DeviceCounters>> DeviceCounters::create(DeviceDriver& driver,
                                                               uint32_t capacity) {
  const size_t words = 2 * sizeof(uint64_t) * size_t{capacity};
  const size_t bytes = (words + kPageBytes - 1) / kPageBytes * kPageBytes;
  UniqueFd memfd(::memfd_create("rueda-counters", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memfd.is_open() || ::ftruncate(memfd.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fallocate(memfd.get(), 0, 0, static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(memfd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return Status{Code::kResourceExhausted, errno_text("cannot make a memfd for counters", errno)};
  }
  std::byte* const memory = map_shared(memfd.get(), bytes);
  if (memory == nullptr) {
    return Status{Code::kResourceExhausted, errno_text("cannot map counters", errno)};
  }
  const Result<uint64_t> on_device = driver.register_host({memory, bytes});
  if (!on_device.is_ok()) {
    unmap_guarded(memory, bytes);
    return on_device.status();
  }
  return std::unique_ptr<DeviceCounters>(
      new DeviceCounters(driver, std::move(memfd), {memory, bytes}, capacity, on_device.value()));
}

DeviceCounters::~DeviceCounters() {
  driver_.unregister_host(memory_.data());
  unmap_guarded(memory_.data(), memory_.size());
}

DeviceCounters& DeviceCounters::keep(std::unique_ptr<DeviceCounters> counters) {
  static Mutex mutex;
  static auto* const kept = new std::vector<std::unique_ptr<DeviceCounters>>;
  const MutexLock lock(mutex);
  kept->push_back(std::move(counters));
  return *kept->back();
}

Status DeviceCounters::announce(StreamBeside stream, uint64_t ticket) {
  return driver_.write_value(stream, on_device_ + ready_at(ticket), ticket);
}

void DeviceCounters::announce_now(uint64_t ticket) { raise(ready_at(ticket), ticket); }

Status DeviceCounters::wait(StreamBeside stream, uint64_t ticket) {
  return driver_.wait_value(stream, on_device_ + done_at(ticket), ticket);
}

void DeviceCounters::release(uint64_t ticket) { raise(done_at(ticket), ticket); }

bool DeviceCounters::has_reached(uint64_t offset, uint64_t value) const {
  const std::atomic_ref counter(*reinterpret_cast<uint64_t*>(memory_.data() + offset));
  return static_cast<int64_t>(counter.load(std::memory_order_acquire) - value) >= 0;
}

void DeviceCounters::raise(uint64_t offset, uint64_t value) {
  if (has_reached(offset, value)) return;
  std::atomic_ref(*reinterpret_cast<uint64_t*>(memory_.data() + offset))
      .store(value, std::memory_order_release);
}

}  // namespace rueda::client
