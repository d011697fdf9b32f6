#include "tests/sim/setup/segments.h"

#include "daemon/base/check.h"

namespace rueda::sim {

SegmentTally::SegmentTally(size_t segments, MixedEpochs policy)
    : policy_(policy), segments_(segments), missing_(segments) {
  RUEDA_CHECK(segments >= 1);
}

std::optional<TensorResult> SegmentTally::complete(size_t segment, SegmentResult result) {
  RUEDA_CHECK(segment < segments_.size() && !segments_[segment]);
  segments_[segment] = result;
  if (--missing_ > 0) return std::nullopt;
  TensorResult tensor;
  for (const std::optional<SegmentResult>& each : segments_) {
    tensor.mixed |= each->epoch != segments_.front()->epoch;
    tensor.segments.push_back(*each);
  }
  tensor.refused = tensor.mixed && policy_ == MixedEpochs::kRefuse;
  return tensor;
}

}  // namespace rueda::sim
