// The stalls of a job (daemon/core/stall/stall.h) as an operator sees them.
#pragma once

#include <string>
#include <vector>

#include "daemon/base/principal.h"
#include "daemon/core/messages/stall_messages.h"
#include "daemon/core/model/layout.h"

namespace rueda::engine {

struct StallSnapshot {
  struct MissingRank {
    std::string node_id;
    core::RankActivity activity;
    // Names in flight on the rank, in the same process set.
    std::vector<std::string> similar_names;
    // Process sets in which this very name is in flight on the rank.
    std::vector<uint32_t> other_sets;
  };

  JobId job;
  uint32_t process_set = 0;
  core::Stall stall;
  std::vector<MissingRank> missing;  // They are in the order of stall.missing.
  std::string text;                  // It is one sentence.
  Principal owner;                   // Who has registered the job.
};

// Returns the stalls of one process set; the layout is the set's.
std::vector<StallSnapshot> snapshot_stalls(const JobId& job, uint32_t process_set,
                                           const core::Layout& layout,
                                           const core::StallNotice& notice);

}  // namespace rueda::engine
