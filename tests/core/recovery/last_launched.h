// Does what a data plane would have to do before core::decide(), if its operations ended before all
// nodes have launched them (L1: broadcasts).
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

#include "daemon/core/recovery/decision.h"

namespace rueda::core {

// Extends the reports to the last operation that one of them knows: a node that has not launched it
// holds nothing of it, and has no P of its own to lose. Recovery does not do this, because a node
// may not even know the tensors of an operation that it has not launched; there broadcasts wait
// until all nodes have launched them (Launch, in job_events.h).
inline void extend_to_last_launched(std::map<NodeIndex, Report>& reports) {
  uint64_t last = 0;
  for (const auto& [node, report] : reports) {
    last = std::max(last, report.freed.value + report.operations.size());
  }
  for (auto& [node, report] : reports) {
    report.operations.resize(last - report.freed.value, Holding{{}, true, false, {}, nullptr});
  }
}

}  // namespace rueda::core
