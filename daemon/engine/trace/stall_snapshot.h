// The stalls of a job (daemon/core/stall/stall.h) as an operator sees them.
#pragma once

#include <string>
#include <vector>

#include "daemon/core/messages/stall_messages.h"
#include "daemon/core/model/layout.h"

namespace rueda::engine {

struct StallSnapshot {
  struct MissingRank {
    std::string node_id;
    core::RankActivity activity;
    std::vector<std::string> similar_names;  // in flight there, in the same process set
    std::vector<uint32_t> other_sets;        // in which this very name is in flight there
  };

  JobId job;
  uint32_t process_set = 0;
  core::Stall stall;
  std::vector<MissingRank> missing;  // in the order of stall.missing
  std::string text;                  // one sentence
};

// Of one process set; the layout is the set's.
std::vector<StallSnapshot> snapshot_stalls(const JobId& job, uint32_t process_set,
                                           const core::Layout& layout,
                                           const core::StallNotice& notice);

}  // namespace rueda::engine
