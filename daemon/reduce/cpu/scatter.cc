// Hands one result back to every local rank.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "daemon/reduce/kernels.h"

namespace rueda::reduce {

void scatter(std::span<void* const> destinations, const void* src, size_t bytes, bool streams) {
  const bool skips = std::find(destinations.begin(), destinations.end(), src) != destinations.end();
  if (streams && !skips && !destinations.empty()) {
    return reduce({.dtype = DType::kUInt8,
                   .dst = destinations[0],
                   .copies = destinations.subspan(1),
                   .sources = {&src, 1},
                   .count = bytes,
                   .streams = true});
  }
  // A block is small enough to stay in the first-level cache while it goes to every destination, so
  // that src is read from memory once. One destination alone leaves the choice of the copy to
  // memcpy.
  constexpr size_t kBlockBytes = 16 * 1024;
  const size_t block_bytes = destinations.size() > 1 ? kBlockBytes : bytes;
  const auto* from = static_cast<const uint8_t*>(src);
  for (size_t offset = 0; offset < bytes; offset += block_bytes) {
    const size_t length = std::min(block_bytes, bytes - offset);
    for (void* destination : destinations) {
      if (destination == src) continue;
      std::memcpy(static_cast<uint8_t*>(destination) + offset, from + offset, length);
    }
  }
}

}  // namespace rueda::reduce
