// Shares a batch out among GPUs: each GPU does a part of its elements, and reads and writes that
// part of all ranks' tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rueda::gpu {

// Sharing out a smaller part takes longer than doing it; see docs/decisions/0058.
inline constexpr uint64_t kLeastPartBytes = uint64_t{256} << 10;

// A range of elements of one segment.
struct SegmentPart {
  size_t segment = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Returns how many of the GPUs should share a batch of so many bytes: at least one.
size_t parts_of(uint64_t bytes, size_t gpus);

// Cuts the segments into nearly equal parts, which may be empty: every element is in one part, and
// the parts are in order. A segment is cut at multiples of 64 elements, so that a part is aligned
// as the segment's beginning is.
std::vector<std::vector<SegmentPart>> cut_into_parts(std::span<const uint64_t> counts,
                                                     size_t parts);

}  // namespace rueda::gpu
