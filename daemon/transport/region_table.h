// The memory a transport may use, by key. Shared by the transports that need no registration, so
// that code which forgets to register fails on them too, and not first on RDMA.
// Not thread-safe: belongs to its transport's loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>

#include "daemon/base/status.h"
#include "daemon/transport/transport.h"

namespace rueda::transport {

class RegionTable {
 public:
  // Fails with kInvalidArgument for empty memory. Keys are never used twice.
  Result<RegionKey> add(std::span<std::byte> memory);
  // An unknown key is a bug of the caller.
  void remove(RegionKey key);
  // Whether [data, data + bytes) lies inside the region. No bytes lie in every region.
  bool contains(RegionKey key, const std::byte* data, size_t bytes) const;

 private:
  std::unordered_map<uint32_t, std::span<std::byte>> regions_;
  uint32_t last_key_ = 0;
};

}  // namespace rueda::transport
