// Implements rule R6: a large tensor is cut into segments, each an operation with a seq and a
// decision of its own. A death between two of them may leave them with results of different epochs,
// that is, with different numbers of contributors. That is reported, and never hidden.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/base/ids.h"

namespace rueda::sim {

// Says what to do with a tensor whose segments differ in epoch.
enum class MixedEpochs : uint8_t {
  kRefuse,   // the tensor fails; its caller submits it again
  kAverage,  // each segment is averaged with the divisor of its own epoch
};

struct SegmentResult {
  Epoch epoch;
  uint32_t contributors = 0;  // the ranks that an average of this segment divides by

  bool operator==(const SegmentResult&) const = default;
};

// Holds what the tensor's clients are told, once.
struct TensorResult {
  bool refused = false;
  bool mixed = false;
  std::vector<SegmentResult> segments;
};

// Collects the segments of one submission, which complete in any order.
class SegmentTally {
 public:
  // Makes a tally; segments >= 1.
  SegmentTally(size_t segments, MixedEpochs policy);

  // Returns the tensor's result when this was the last segment. Each segment completes once
  // (checked).
  std::optional<TensorResult> complete(size_t segment, SegmentResult result);

 private:
  MixedEpochs policy_;
  std::vector<std::optional<SegmentResult>> segments_;
  size_t missing_;
};

}  // namespace rueda::sim
