#include "daemon/engine/device/device_staging.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <fcntl.h>

#include "daemon/base/check.h"
#include "daemon/base/os/shared_mapping.h"

namespace rueda::engine {

Result<std::unique_ptr<DeviceStaging>> DeviceStaging::make(uint64_t bytes) {
  SharedMemory memory = make_shared_memory("rueda-device-staging", bytes);
  if (memory.base == nullptr) {
    return Status(Code::kResourceExhausted,
                  std::to_string(bytes) +
                      " bytes of host memory, through which device memory goes "
                      "between nodes, are not to be had: " +
                      std::strerror(errno));
  }
  return std::unique_ptr<DeviceStaging>(
      new DeviceStaging(std::move(memory.fd), memory.base, bytes));
}

DeviceStaging::~DeviceStaging() { unmap_guarded(base_, bytes_); }

UniqueFd DeviceStaging::duplicate() const {
  return UniqueFd(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
}

std::optional<uint64_t> DeviceStaging::take(uint64_t bytes) {
  const uint64_t whole = std::max(bytes, uint64_t{1});
  uint64_t begin = 0;
  for (const auto& [taken, end] : pieces_) {
    if (taken - begin >= whole) break;
    begin = (end + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (begin > bytes_ || bytes_ - begin < whole) return std::nullopt;
  pieces_.emplace(begin, begin + whole);
  return begin;
}

void DeviceStaging::give_back(uint64_t offset) { RUEDA_CHECK(pieces_.erase(offset) == 1); }

}  // namespace rueda::engine
