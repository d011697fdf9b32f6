// Room for the sums of an average on their way between nodes (docs/decisions/0064-averages.md).
#pragma once

#include <cstdint>

#include "daemon/base/dtype.h"

namespace rueda::engine {

// Returns what a node's part of a reduction is divided by before it goes to other nodes, and the
// result is multiplied by: a power of two, 1 where none is needed. In an average in float16 no sum
// is then larger than the largest contribution. Scales are applied in float32, where this changes
// no bit.
constexpr double headroom_of(CollectiveKind kind, ReduceOp op, DType between_nodes,
                             int64_t contributors, bool goes_between_nodes) {
  const bool is_needed = goes_between_nodes && reduces(kind) && op == ReduceOp::kAverage &&
                         between_nodes == DType::kFloat16;
  double headroom = 1;
  while (is_needed && headroom < static_cast<double>(contributors)) headroom *= 2;
  return headroom;
}

}  // namespace rueda::engine
