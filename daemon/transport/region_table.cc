#include "daemon/transport/region_table.h"

#include <cerrno>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include <sys/mman.h>

#include "daemon/base/check.h"

namespace rueda::transport {

Result<RegionKey> RegionTable::add(std::span<std::byte> memory) {
  if (memory.empty()) {
    return Status(Code::kInvalidArgument, "a region of 0 bytes cannot be registered");
  }
  const RegionKey key{++last_key_};
  RUEDA_CHECK(key.value != 0);
  regions_.emplace(key.value, memory);
  return key;
}

Result<DeviceRegion> RegionTable::add_device(uint64_t bytes) {
  void* const base =
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    return Status(Code::kResourceExhausted,
                  "there are no addresses for " + std::to_string(bytes) +
                      " bytes of a device's memory: " + std::strerror(errno));
  }
  std::unique_ptr<std::byte, Unmap> reserved(static_cast<std::byte*>(base), Unmap{bytes});
  const Result<RegionKey> key = add({reserved.get(), bytes});
  if (!key.is_ok()) return key.status();
  const std::byte* const at = reserved.get();
  reserved_.emplace(key.value().value, std::move(reserved));
  return DeviceRegion{key.value(), at};
}

void RegionTable::Unmap::operator()(std::byte* base) const { ::munmap(base, bytes); }

void RegionTable::remove(RegionKey key) {
  RUEDA_CHECK(regions_.erase(key.value) == 1);
  reserved_.erase(key.value);
}

bool RegionTable::contains(RegionKey key, const std::byte* data, size_t bytes) const {
  if (bytes == 0) return true;
  const auto found = regions_.find(key.value);
  if (found == regions_.end()) return false;
  const std::span<std::byte> region = found->second;
  const std::less<const std::byte*> before;
  if (before(data, region.data()) || before(region.data() + region.size(), data)) return false;
  return bytes <= static_cast<size_t>(region.data() + region.size() - data);
}

}  // namespace rueda::transport
