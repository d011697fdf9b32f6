#include "daemon/gpu/cuda/table.h"

#include <algorithm>

#include "daemon/base/check.h"

namespace rueda::gpu::cuda {
namespace {

// Returns the number of elements in a vector. Where types differ, float32 sources have the largest
// elements.
uint64_t lanes_of(DType dtype) { return kVectorBytes / element_bytes(dtype); }

uint64_t head_of(const Batch& batch, const Segment& segment) {
  const uint64_t lanes = lanes_of(batch.dtype);
  const auto is_aligned = [&](DeviceAddress address, DType dtype, uint64_t head) {
    const uint64_t size = element_bytes(dtype);
    return (address + head * size) % (lanes * size) == 0;
  };
  const DType dst = batch.dst_dtype.value_or(batch.dtype);
  const DType partial = batch.partial_dtype.value_or(batch.dtype);
  for (uint64_t head = 0; head < lanes; ++head) {
    const bool sources =
        std::all_of(segment.sources.begin(), segment.sources.end(),
                    [&](DeviceAddress source) { return is_aligned(source, batch.dtype, head); });
    const bool destinations =
        std::all_of(segment.destinations.begin(), segment.destinations.end(),
                    [&](DeviceAddress destination) { return is_aligned(destination, dst, head); });
    const bool first = segment.partial == 0 || is_aligned(segment.partial, partial, head);
    if (sources && destinations && first) return std::min(head, segment.count);
  }
  return kNoVectors;
}

uint64_t tiles_of(uint64_t count, uint64_t head, uint64_t lanes) {
  // Without vectors a tile has as many elements as it would have in vectors. The unaligned ends
  // belong to the first tile.
  const uint64_t vectors =
      head == kNoVectors ? (count + lanes - 1) / lanes : (count - head) / lanes;
  return std::max<uint64_t>(1, (vectors + kTileVectors - 1) / kTileVectors);
}

}  // namespace

Shape fill_table(const Batch& batch, std::span<uint64_t> words) {
  const Segment& first = batch.segments[0];
  Shape shape{.segments = static_cast<uint32_t>(batch.segments.size()),
              .sources = static_cast<uint32_t>(first.sources.size()),
              .destinations = static_cast<uint32_t>(first.destinations.size())};
  shape.row_words = kSources + shape.sources + shape.destinations;
  RUEDA_CHECK(words.size() >= size_t{shape.segments} * shape.row_words);
  uint64_t* row = words.data();
  for (const Segment& segment : batch.segments) {
    row[kFirstTile] = shape.tiles;
    row[kCount] = segment.count;
    row[kHead] = head_of(batch, segment);
    row[kPartial] = segment.partial;
    std::copy(segment.sources.begin(), segment.sources.end(), row + kSources);
    std::copy(segment.destinations.begin(), segment.destinations.end(),
              row + kSources + shape.sources);
    shape.tiles += tiles_of(segment.count, row[kHead], lanes_of(batch.dtype));
    row += shape.row_words;
  }
  return shape;
}

}  // namespace rueda::gpu::cuda
