#include "daemon/observe/step_watch.h"

#include <algorithm>
#include <utility>

namespace rueda::observe {

std::optional<TraceStep> StepWatch::on_submitted(uint32_t tensor, int64_t now_ns) {
  if (tensor >= had_in_.size()) had_in_.resize(tensor + size_t{1}, 0);
  std::optional<TraceStep> ended;
  const bool is_first = step_.number == 0;
  if (is_first || had_in_[tensor] == step_.number) {
    ended = finish();
    if (ended) ended->end_ns = std::min(ended->end_ns, now_ns);
    ++step_.number;
    step_.begin_ns = ended ? ended->end_ns : now_ns;
    step_.first_submitted_ns = now_ns;
  }
  had_in_[tensor] = step_.number;
  step_.last_submitted_ns = now_ns;
  return ended;
}

std::optional<TraceStep> StepWatch::finish() {
  if (step_.number == 0) return std::nullopt;
  TraceStep ended = step_;
  ended.end_ns = std::max(last_delivered_ns_, ended.last_submitted_ns);
  return ended;
}

}  // namespace rueda::observe
