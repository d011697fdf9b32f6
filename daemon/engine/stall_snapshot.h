// The stalls of a job (daemon/core/stall.h) as an operator sees them.
#pragma once

#include <string>
#include <vector>

#include "daemon/core/layout.h"
#include "daemon/core/stall_messages.h"

namespace rueda::engine {

struct StallSnapshot {
  struct MissingRank {
    std::string node_id;
    core::RankActivity activity;
    std::vector<std::string> similar_names;  // in flight there
  };

  JobId job;
  core::Stall stall;
  std::vector<MissingRank> missing;  // in the order of stall.missing
  std::string text;                  // one sentence
};

std::vector<StallSnapshot> snapshot_stalls(const JobId& job, const core::Layout& layout,
                                           const core::StallNotice& notice);

}  // namespace rueda::engine
