#include "daemon/observe/step_watch.h"

#include <algorithm>
#include <utility>

namespace rueda::observe {

std::optional<TraceStep> StepWatch::on_submitted(std::span<const uint32_t> tensors,
                                                 int64_t first_ns, int64_t last_ns) {
  std::optional<TraceStep> ended;
  const bool is_next =
      step_.number == 0 || std::any_of(tensors.begin(), tensors.end(), [&](uint32_t tensor) {
        return tensor < had_in_.size() && had_in_[tensor] == step_.number;
      });
  if (is_next) {
    ended = finish();
    if (ended) {
      first_ns = std::max(first_ns, ended->last_submitted_ns);
      ended->end_ns = std::min(ended->end_ns, first_ns);
    }
    ++step_.number;
    step_.begin_ns = ended ? ended->end_ns : first_ns;
    step_.first_submitted_ns = first_ns;
    step_.last_submitted_ns = first_ns;
  }
  for (const uint32_t tensor : tensors) {
    if (tensor < had_in_.size()) had_in_[tensor] = step_.number;
  }
  step_.first_submitted_ns = std::max(std::min(step_.first_submitted_ns, first_ns), step_.begin_ns);
  step_.last_submitted_ns = std::max(step_.last_submitted_ns, last_ns);
  return ended;
}

std::optional<TraceStep> StepWatch::finish() {
  if (step_.number == 0) return std::nullopt;
  TraceStep ended = step_;
  ended.end_ns = std::max(last_delivered_ns_, ended.last_submitted_ns);
  return ended;
}

}  // namespace rueda::observe
