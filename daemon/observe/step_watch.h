// The training steps of one rank, as far as its daemon sees them: a step ends when a tensor is
// submitted that it has had already. It is told of batches in the order in which they are launched,
// which need not be that of their submission. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace rueda::observe {

// Nanoseconds on one clock, in this order: the end of the step before (of the first step: its first
// submission), first and last submission, last result.
struct TraceStep {
  uint64_t number = 0;  // from 1
  int64_t begin_ns = 0;
  int64_t first_submitted_ns = 0;
  int64_t last_submitted_ns = 0;
  int64_t end_ns = 0;
};

class StepWatch {
 public:
  // Tensors are numbers below that; of others it takes no notice.
  explicit StepWatch(size_t tensors) : had_in_(tensors, 0) {}

  // Notes the submission of one batch. Returns the step that has ended by it, if one has.
  std::optional<TraceStep> on_submitted(std::span<const uint32_t> tensors, int64_t first_ns,
                                        int64_t last_ns);
  void on_delivered(int64_t now_ns) { last_delivered_ns_ = now_ns; }
  // What has been going on ends here.
  std::optional<TraceStep> finish();

 private:
  TraceStep step_;  // that goes on; number 0: none yet
  int64_t last_delivered_ns_ = 0;
  std::vector<uint64_t> had_in_;  // by tensor: the last step that had it
};

}  // namespace rueda::observe
