// The memory that a transport may use, by key. Transports that need no registration use the table
// too, so that code which forgets to register fails on them, and not first on RDMA. The table is
// not thread-safe; it belongs to its transport's loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>

#include "daemon/base/status.h"
#include "daemon/transport/transport.h"

namespace rueda::transport {

class RegionTable {
 public:
  // Returns kInvalidArgument for empty memory. Keys are never used twice.
  Result<RegionKey> add(std::span<std::byte> memory);
  // Adds a device's memory of so many bytes, and returns addresses for it at which the host has
  // nothing; they are kept until it is removed. Returns kResourceExhausted if there are none left.
  Result<DeviceRegion> add_device(uint64_t bytes);
  bool is_device(RegionKey key) const { return reserved_.contains(key.value); }
  // Removes a region. An unknown key is a bug of the caller.
  void remove(RegionKey key);
  // Returns true if [data, data + bytes) lies inside the region. An empty range lies in every
  // region.
  bool contains(RegionKey key, const std::byte* data, size_t bytes) const;

 private:
  struct Unmap {
    size_t bytes = 0;
    void operator()(std::byte* base) const;
  };
  std::unordered_map<uint32_t, std::span<std::byte>> regions_;
  std::unordered_map<uint32_t, std::unique_ptr<std::byte, Unmap>> reserved_;  // Of devices' memory.
  uint32_t last_key_ = 0;
};

}  // namespace rueda::transport
