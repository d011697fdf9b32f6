// Sizes as people type them: 4K, 64M, 13e.
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
  bool elements = false;  // "13e": a count of elements, not of bytes

  // Bytes, rounded down to whole elements as nccl-tests does.
  uint64_t bytes(size_t element_bytes) const {
    return elements ? value * element_bytes : value / element_bytes * element_bytes;
  }
};

// Digits and an optional K, M or G (powers of 1024; either case) or e. Nothing for anything else
// and for what does not fit.
std::optional<SizeText> parse_size(std::string_view text);

// begin, begin * factor, ... up to end, in whole elements, without repetitions. From 0 the ladder
// is 0, then one element, and up from there. factor < 2: begin and end alone.
std::vector<uint64_t> size_ladder(uint64_t begin_bytes, uint64_t end_bytes, uint64_t factor,
                                  size_t element_bytes);

// Iterations when nobody asked for a number: enough for a 99th percentile of small operations, few
// enough to end soon for large ones. Depends on the size alone, so that all ranks agree.
int default_iterations(uint64_t bytes);

}  // namespace rueda::bench
