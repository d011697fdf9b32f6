// The training steps of one rank, as far as its daemon sees them: a step ends when a tensor is
// submitted that it has had already. It is told of batches in the order in which they are launched,
// which need not be that of their submission. The class is pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace rueda::observe {

// The times of one step, in nanoseconds on one clock: the end of the step before (for the first
// step: its first submission), its first and last submission, and its last result.
struct TraceStep {
  uint64_t number = 0;  // It counts from 1.
  int64_t begin_ns = 0;
  int64_t first_submitted_ns = 0;
  int64_t last_submitted_ns = 0;
  int64_t end_ns = 0;
};

class StepWatch {
 public:
  // Tensors are numbers below `tensors`; others are ignored.
  explicit StepWatch(size_t tensors) : had_in_(tensors, 0) {}

  // Notes the submission of one batch. Returns the step that has ended by it, if one has.
  std::optional<TraceStep> on_submitted(std::span<const uint32_t> tensors, int64_t first_ns,
                                        int64_t last_ns);
  void on_delivered(int64_t now_ns) { last_delivered_ns_ = now_ns; }
  // Ends the step that goes on, and returns it, if there is one.
  std::optional<TraceStep> finish();

 private:
  TraceStep step_;  // The step that goes on; its number is 0 if there is none yet.
  int64_t last_delivered_ns_ = 0;
  std::vector<uint64_t> had_in_;  // By tensor: the number of the last step that had it.
};

}  // namespace rueda::observe
