// The table that tells the kernel what a batch consists of.
//
// A row for each segment, of 64-bit words: the number of its first tile, its elements, its head,
// the address of the partial (or 0), the sources' and the destinations'. A tile is what a block of
// threads does at a time. Vectors of 16 bytes of sources begin behind the head: so many elements
// that every address is aligned there, or kNoVectors if there is no such number.
#pragma once

#include <cstdint>
#include <span>

#include "daemon/gpu/batch.h"

namespace rueda::gpu::cuda {

inline constexpr uint32_t kVectorBytes = 16;
inline constexpr uint32_t kThreads = 256;  // of a block
inline constexpr uint32_t kVectorsPerThread = 4;
inline constexpr uint32_t kTileVectors = kThreads * kVectorsPerThread;
inline constexpr uint64_t kNoVectors = UINT64_MAX;

// Words of a row.
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
  uint64_t tiles = 0;  // of all segments
};

// Fills `words`, which has room for table_bytes(batch). The batch has passed check_batch() and has
// segments.
Shape fill_table(const Batch& batch, std::span<uint64_t> words);

}  // namespace rueda::gpu::cuda
