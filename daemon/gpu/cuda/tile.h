// The work of one thread of a block on one tile. Threads share nothing and wait for nothing, so
// that a test can run them one after the other on a CPU, where addresses are the host's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "daemon/gpu/cuda/table.h"
#include "daemon/gpu/element.h"

namespace rueda::gpu::cuda {

// Names the words of a row of the table.
struct Row {
  const uint64_t* words;
  uint32_t sources;

  RUEDA_HOST_DEVICE uint64_t first_tile() const { return words[kFirstTile]; }
  RUEDA_HOST_DEVICE uint64_t count() const { return words[kCount]; }
  RUEDA_HOST_DEVICE uint64_t head() const { return words[kHead]; }
  RUEDA_HOST_DEVICE DeviceAddress partial() const { return words[kPartial]; }
  RUEDA_HOST_DEVICE DeviceAddress source(uint32_t i) const { return words[kSources + i]; }
  RUEDA_HOST_DEVICE DeviceAddress destination(uint32_t i) const {
    return words[kSources + sources + i];
  }
};

// Returns the row that a tile is in: the last row whose first tile is this tile or an earlier one.
RUEDA_HOST_DEVICE uint32_t row_of_tile(const uint64_t* words, const Shape& shape, uint64_t tile) {
  uint32_t low = 0;
  uint32_t high = shape.segments;
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    if (words[size_t{middle} * shape.row_words + kFirstTile] <= tile) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// The elements that one instruction reads or writes, of 16 bytes or less. It consists of words,
// because the compiler would access an array of bytes byte by byte.
template <size_t kBytes>
struct alignas(kBytes) Words {
  uint32_t word[kBytes / sizeof(uint32_t)];
};
template <>
struct alignas(2) Words<2> {
  uint16_t word;
};

template <class Element, int kLanes>
struct Lanes {
  using Stored = typename Element::Stored;
  using Memory = Words<sizeof(Stored) * kLanes>;

  static RUEDA_HOST_DEVICE void load(DeviceAddress address, uint64_t vector, Stored (&to)[kLanes]) {
    const Memory memory = reinterpret_cast<const Memory*>(address)[vector];
    memcpy(to, &memory, sizeof memory);
  }
  static RUEDA_HOST_DEVICE void store(DeviceAddress address, uint64_t vector,
                                      const Stored (&from)[kLanes]) {
    Memory memory;
    memcpy(&memory, from, sizeof memory);
    reinterpret_cast<Memory*>(address)[vector] = memory;
  }
};

template <class K>
class Tile {
  using Value = typename K::Value;
  static constexpr int kLanes = kVectorBytes / sizeof(typename K::Source::Stored);
  // The number of vectors of each source that a thread reads at once: more are in flight then, but
  // take more registers, too.
  static constexpr int kAtOnce = kLanes <= 4 ? 4 : kLanes == 8 ? 2 : 1;

 public:
  RUEDA_HOST_DEVICE Tile(const Row& row, const Shape& shape, const Scaler<Value>& scaler)
      : row_(row), shape_(shape), scaler_(scaler) {}

  // Does one tile; `tile` is counted from the row's first.
  RUEDA_HOST_DEVICE void run(uint64_t tile, uint32_t thread) const {
    const uint64_t count = row_.count();
    const uint64_t head = row_.head();
    if (head == kNoVectors) {
      constexpr uint64_t kElements = uint64_t{kTileVectors} * kLanes;
      const uint64_t end = (tile + 1) * kElements;
      return elements(tile * kElements + thread, end < count ? end : count);
    }
    const uint64_t vectors = (count - head) / kLanes;
    const uint64_t end = (tile + 1) * kTileVectors;
    for (uint64_t at = tile * kTileVectors; at < end; at += kAtOnce * kThreads) {
      run_vectors(head, at + thread, vectors);
    }
    if (tile > 0) return;
    elements(thread, head);
    elements(head + vectors * kLanes + thread, count);
  }

 private:
  template <class Element>
  static RUEDA_HOST_DEVICE Value element(DeviceAddress address, uint64_t i) {
    return Element::load(reinterpret_cast<const typename Element::Stored*>(address)[i]);
  }

  // Does every kThreads-th element.
  RUEDA_HOST_DEVICE void elements(uint64_t begin, uint64_t end) const {
    for (uint64_t i = begin; i < end; i += kThreads) {
      const bool has_partial = row_.partial() != 0;
      Value sum = has_partial ? element<typename K::Partial>(row_.partial(), i)
                              : scaler_.source(element<typename K::Source>(row_.source(0), i));
      for (uint32_t k = has_partial ? 0 : 1; k < shape_.sources; ++k) {
        sum = combine<K::kOp>(sum, scaler_.source(element<typename K::Source>(row_.source(k), i)));
      }
      const auto out = K::Dst::store(scaler_.finish(sum));
      for (uint32_t k = 0; k < shape_.destinations; ++k) {
        reinterpret_cast<typename K::Dst::Stored*>(row_.destination(k))[i] = out;
      }
    }
  }

  // Does kAtOnce vectors from `first`, kThreads apart, as far as they are before `end`. All sources
  // are read before anything is written, because a destination may be one of the sources.
  RUEDA_HOST_DEVICE void run_vectors(uint64_t head, uint64_t first, uint64_t end) const {
    Value sums[kAtOnce][kLanes];
    uint32_t next = 0;
    if (row_.partial() != 0) {
      read<typename K::Partial, true>(row_.partial(), head, first, end, sums);
    } else {
      read<typename K::Source, false>(row_.source(0), head, first, end, sums);
      next = 1;
    }
    for (uint32_t k = next; k < shape_.sources; ++k) {
      Value values[kAtOnce][kLanes];
      read<typename K::Source, false>(row_.source(k), head, first, end, values);
      for (int i = 0; i < kAtOnce; ++i) {
        for (int lane = 0; lane < kLanes; ++lane) {
          sums[i][lane] = combine<K::kOp>(sums[i][lane], values[i][lane]);
        }
      }
    }
    using Out = Lanes<typename K::Dst, kLanes>;
    typename Out::Stored out[kAtOnce][kLanes];
    for (int i = 0; i < kAtOnce; ++i) {
      for (int lane = 0; lane < kLanes; ++lane) {
        out[i][lane] = K::Dst::store(scaler_.finish(sums[i][lane]));
      }
    }
    for (uint32_t k = 0; k < shape_.destinations; ++k) {
      const DeviceAddress to = row_.destination(k) + head * sizeof(typename Out::Stored);
      for (int i = 0; i < kAtOnce; ++i) {
        const uint64_t vector = first + uint64_t{kThreads} * i;
        if (vector < end) Out::store(to, vector, out[i]);
      }
    }
  }

  // Reads vectors. Those behind the end become zeros, which are not stored.
  template <class Element, bool kIsPartial>
  RUEDA_HOST_DEVICE void read(DeviceAddress address, uint64_t head, uint64_t first, uint64_t end,
                              Value (&values)[kAtOnce][kLanes]) const {
    using In = Lanes<Element, kLanes>;
    typename In::Stored stored[kAtOnce][kLanes] = {};
    address += head * sizeof(typename In::Stored);
    for (int i = 0; i < kAtOnce; ++i) {
      const uint64_t vector = first + uint64_t{kThreads} * i;
      if (vector < end) In::load(address, vector, stored[i]);
    }
    for (int i = 0; i < kAtOnce; ++i) {
      for (int lane = 0; lane < kLanes; ++lane) {
        const Value value = Element::load(stored[i][lane]);
        values[i][lane] = kIsPartial ? value : scaler_.source(value);
      }
    }
  }

  const Row row_;
  const Shape& shape_;
  const Scaler<Value>& scaler_;
};

// Does the work of a block: its share of all tiles is contiguous, so that it looks up a row only
// once.
template <class K>
RUEDA_HOST_DEVICE void run_block(const uint64_t* words, const Shape& shape, const Scales& scales,
                                 uint64_t block, uint64_t blocks, uint32_t thread) {
  const Scaler<typename K::Value> scaler(scales);
  // This avoids a product of two large numbers.
  const uint64_t each = shape.tiles / blocks;
  const uint64_t left = shape.tiles % blocks;
  const uint64_t begin = each * block + (block < left ? block : left);
  const uint64_t end = begin + each + (block < left ? 1 : 0);
  if (begin == end) return;
  uint32_t index = row_of_tile(words, shape, begin);
  for (uint64_t tile = begin; tile < end; ++tile) {
    const auto words_of = [&](uint32_t row) { return words + size_t{row} * shape.row_words; };
    if (index + 1 < shape.segments && words_of(index + 1)[kFirstTile] <= tile) ++index;
    const Row row{words_of(index), shape.sources};
    Tile<K>(row, shape, scaler).run(tile - row.first_tile(), thread);
  }
}

}  // namespace rueda::gpu::cuda
