#include "bench/base/sizes.h"

#include <charconv>
#include <limits>

namespace rueda::bench {

std::optional<SizeText> parse_size(std::string_view text) {
  SizeText size;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, size.value);
  if (error != std::errc() || end - rest > 1) return std::nullopt;
  if (rest == end) return size;
  int shift = 0;
  switch (*rest) {
    case 'e': size.elements = true; return size;
    case 'K':
    case 'k': shift = 10; break;
    case 'M':
    case 'm': shift = 20; break;
    case 'G':
    case 'g': shift = 30; break;
    default: return std::nullopt;
  }
  if (size.value > std::numeric_limits<uint64_t>::max() >> shift) return std::nullopt;
  size.value <<= shift;
  return size;
}

std::vector<uint64_t> size_ladder(uint64_t begin_bytes, uint64_t end_bytes, uint64_t factor,
                                  size_t element_bytes) {
  std::vector<uint64_t> sizes;
  const auto add = [&](uint64_t bytes) {
    bytes = bytes / element_bytes * element_bytes;
    if (sizes.empty() || sizes.back() != bytes) sizes.push_back(bytes);
  };
  add(begin_bytes);
  if (factor < 2) {
    add(end_bytes);
    return sizes;
  }
  uint64_t bytes = begin_bytes == 0 ? element_bytes : begin_bytes;
  while (bytes <= end_bytes) {
    add(bytes);
    if (bytes > end_bytes / factor) break;
    bytes *= factor;
  }
  return sizes;
}

int default_iterations(uint64_t bytes) {
  constexpr uint64_t kSmall = 64u << 10;
  constexpr uint64_t kMedium = 4u << 20;
  if (bytes <= kSmall) return 200;
  return bytes <= kMedium ? 50 : 20;
}

}  // namespace rueda::bench
