// The table that describes a batch to the kernel.
//
// It has a row of 64-bit words for each segment: the number of its first tile, its elements, its
// head, the address of the partial (or 0), those of the sources, and those of the destinations. A
// tile is the work that a block of threads does at a time. The head is the number of elements
// before the first 16-byte vector of the sources: every address is aligned behind the head. It is
// kNoVectors if no such number exists.
#pragma once

#include <cstdint>
#include <span>

#include "daemon/gpu/batch.h"

namespace rueda::gpu::cuda {

inline constexpr uint32_t kVectorBytes = 16;
inline constexpr uint32_t kThreads = 256;  // The threads of a block.
inline constexpr uint32_t kVectorsPerThread = 4;
inline constexpr uint32_t kTileVectors = kThreads * kVectorsPerThread;
inline constexpr uint64_t kNoVectors = UINT64_MAX;

// The positions of the words in a row.
inline constexpr uint32_t kFirstTile = 0;
inline constexpr uint32_t kCount = 1;
inline constexpr uint32_t kHead = 2;
inline constexpr uint32_t kPartial = 3;
inline constexpr uint32_t kSources = 4;

struct Shape {
  uint32_t segments = 0;
  uint32_t sources = 0;
  uint32_t destinations = 0;
  uint32_t row_words = 0;
  uint64_t tiles = 0;  // The tiles of all segments.
};

// Fills `words`, which must have room for table_bytes(batch). The batch must have passed
// check_batch() and have segments.
Shape fill_table(const Batch& batch, std::span<uint64_t> words);

}  // namespace rueda::gpu::cuda
