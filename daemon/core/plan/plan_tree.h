// Makes a plan of steps as they were seen: tensors are fused by plan, and alternatives become a
// tree (rule L9).
#pragma once

#include <optional>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/core/messages/fusion.h"
#include "daemon/core/messages/plan.h"

namespace rueda::core {

// One tensor of a step, with what happened to it, by a count of events, and when it was ready.
struct Occurrence {
  DescriptorPtr descriptor;
  uint64_t first_reported = 0;
  TicksMs ready_at = 0;         // When the last node reported it.
  uint64_t ended = UINT64_MAX;  // When it was complete.
};
// The tensors of a step, in the order in which they were decreed.
using StepRecord = std::vector<Occurrence>;

struct PlanTree {
  Plan plan;
  std::vector<PlanPlace> ends;  // For each step: where in the plan it ends.
};

// Makes a plan of the steps, of which there must be 1 to 32. Returns none if the steps cannot be
// told apart in a tree.
//
// Tensors share a batch if they can be fused and fit under the threshold, if the same steps have
// both, and if, in all of these, they were ready within the fusion window and none was complete
// before another was reported: a framework may compute the second from the first. Batches are in
// the order in which they were ready in the first step that has them, so that none waits behind one
// that is ready later.
//
// What all steps have comes first; then they part. A branch begins with a batch that only its steps
// have; where there is none, with the tensor that its steps have next.
std::optional<PlanTree> make_plan_tree(const std::vector<const StepRecord*>& steps,
                                       const FusionOptions& fusion, TicksMs fusion_window_ms);

}  // namespace rueda::core
