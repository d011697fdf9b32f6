// A value that is not finite, in what a rank has contributed to a reduction.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/base/ids.h"

namespace rueda::engine {

enum class NonfiniteKind : uint8_t { kNaN = 0, kInfinity = 1, kMinusInfinity = 2 };
inline constexpr uint32_t kNonfiniteKindCount = 3;

struct Nonfinite {
  // The step: how often the rank had submitted a reduction of this name in this epoch, this one
  // included.
  uint64_t step = 0;
  Rank rank;
  uint64_t submission = 0;  // It counts the submissions of the rank's node.
  uint64_t element = 0;     // The place in the rank's input.
  NonfiniteKind kind = NonfiniteKind::kNaN;
  std::string tensor;
  uint32_t process_set = 0;

  bool operator==(const Nonfinite&) const = default;
};

// Orders findings by step, then by rank, then by the rank's order of submissions.
bool comes_before(const Nonfinite& a, const Nonfinite& b);

// Returns one sentence about the value. `node_id` is where the rank is.
std::string describe(const Nonfinite& value, const std::string& node_id);

}  // namespace rueda::engine
