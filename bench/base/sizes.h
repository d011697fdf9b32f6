// Reads sizes as people type them: 4K, 64M, 13e.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rueda::bench {

struct SizeText {
  uint64_t value = 0;
  bool elements = false;  // true for "13e", a number of elements and not of bytes

  // Returns the size in bytes, rounded down to whole elements as nccl-tests does.
  uint64_t bytes(size_t element_bytes) const {
    return elements ? value * element_bytes : value / element_bytes * element_bytes;
  }
};

// Parses digits and an optional K, M or G (powers of 1024; either case) or e. Returns nullopt for
// anything else, and for a number that is too large.
std::optional<SizeText> parse_size(std::string_view text);

// Returns begin, begin * factor, ... up to end, in whole elements, without repetitions. A ladder
// from 0 begins with 0 and one element. If factor < 2 it has begin and end alone.
std::vector<uint64_t> size_ladder(uint64_t begin_bytes, uint64_t end_bytes, uint64_t factor,
                                  size_t element_bytes);

// Returns the number of iterations if the user gave none: enough for a 99th percentile of small
// operations, and few enough to end soon for large ones. The number depends on the size alone, so
// that all ranks agree.
int default_iterations(uint64_t bytes);

}  // namespace rueda::bench
