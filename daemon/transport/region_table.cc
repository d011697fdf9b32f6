#include "daemon/transport/region_table.h"

#include <functional>

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

void RegionTable::remove(RegionKey key) { RUEDA_CHECK(regions_.erase(key.value) == 1); }

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
