// How a batch is shared out among GPUs: each takes a part of its elements, and reads and writes
// those of all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rueda::gpu {

// What is less takes longer to share out than to do; see docs/decisions/0058.
inline constexpr uint64_t kLeastPartBytes = uint64_t{256} << 10;

// Elements of one segment.
struct SegmentPart {
  size_t segment = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
};

// How many of so many GPUs a batch of so many bytes is worth: one at least.
size_t parts_of(uint64_t bytes, size_t gpus);

// Every element of the segments once, in order, by part: nearly equal parts, which may be empty. A
// segment is cut at multiples of 64 elements, so that a part is aligned as its beginning is.
std::vector<std::vector<SegmentPart>> cut_into_parts(std::span<const uint64_t> counts,
                                                     size_t parts);

}  // namespace rueda::gpu
