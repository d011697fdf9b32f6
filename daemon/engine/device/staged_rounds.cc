#include "daemon/engine/device/staged_rounds.h"

#include <algorithm>

namespace rueda::engine {
namespace {

// A round has at least so many bytes: copying them takes far longer than asking for it; see
// docs/decisions/0052.
constexpr int64_t kLeastRoundBytes = 4 << 20;
// The least bytes of a shard in a round, which are a chunk of the ring.
constexpr int64_t kLeastShardBytes = 256 << 10;
// There are at most so many rounds. The copies of the first and of the last one overlap with
// nothing.
constexpr int64_t kMaxRounds = 32;
constexpr int64_t kAlignedElements = 64;

}  // namespace

std::vector<ElementRange> cut_into_rounds(int64_t elements, size_t element_bytes, int nodes) {
  const auto size = static_cast<int64_t>(element_bytes);
  const int64_t least = std::max(kLeastRoundBytes, nodes * kLeastShardBytes) / size;
  const int64_t wanted = std::max(least, (elements + kMaxRounds - 1) / kMaxRounds);
  const int64_t length = (wanted + kAlignedElements - 1) / kAlignedElements * kAlignedElements;
  std::vector<ElementRange> rounds;
  int64_t begin = 0;
  // Elements that are left over at the end go with the last round.
  for (; elements - begin >= 2 * length; begin += length) rounds.push_back({begin, begin + length});
  rounds.push_back({begin, elements});
  return rounds;
}

}  // namespace rueda::engine
