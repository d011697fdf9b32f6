#include "daemon/gpu/worker/parts.h"

#include <algorithm>
#include <numeric>

namespace rueda::gpu {
namespace {

constexpr uint64_t kAlignedElements = 64;

// Returns where in a segment a cut lies that is made at an element of the batch.
uint64_t cut_in(uint64_t first, uint64_t count, uint64_t element) {
  if (element >= first + count) return count;
  return element <= first ? 0 : (element - first) / kAlignedElements * kAlignedElements;
}

}  // namespace

size_t parts_of(uint64_t bytes, size_t gpus) {
  return std::clamp<uint64_t>(bytes / kLeastPartBytes, 1, gpus);
}

std::vector<std::vector<SegmentPart>> cut_into_parts(std::span<const uint64_t> counts,
                                                     size_t parts) {
  const uint64_t all = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  const uint64_t length = (all + parts - 1) / parts;
  std::vector<std::vector<SegmentPart>> found(parts);
  uint64_t first = 0;
  for (size_t segment = 0; segment < counts.size(); ++segment) {
    const uint64_t count = counts[segment];
    for (size_t part = 0; part < parts; ++part) {
      const uint64_t begin = cut_in(first, count, part * length);
      const uint64_t end = part + 1 == parts ? count : cut_in(first, count, (part + 1) * length);
      if (begin < end) found[part].push_back({segment, begin, end});
    }
    first += count;
  }
  return found;
}

}  // namespace rueda::gpu
