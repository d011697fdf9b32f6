// The activity of one node's ranks, over all process sets of a job. The stall inspector of each set
// (stall.h) writes down what it sees, and reads what the others have: a rank that is missing in one
// set may be busy in another.
#pragma once

#include <cstdint>
#include <map>

#include "daemon/base/clock.h"
#include "daemon/base/ids.h"
#include "daemon/core/model/descriptor.h"
#include "daemon/core/order/submissions.h"

namespace rueda::core {

// The last acts of each of the node's ranks. This belongs to the loop that runs the job's core.
struct NodeActivity {
  struct Act {
    DescriptorPtr tensor;  // Null if the rank has done nothing of this kind yet.
    uint32_t process_set = 0;
    TicksMs at_ms = 0;
  };
  struct OfRank {
    Act submitted;  // The last act of this kind.
    Act completed;
    bool has_left = false;
  };

  // Forgets what ranks did, because an epoch begins or ends. References to ranks stay good.
  void forget() {
    for (auto& [rank, activity] : ranks) activity = {};
  }

  std::map<Rank, OfRank> ranks;
  std::map<uint32_t, const SubmissionTable*> in_flight;  // The key is the process set's id.
};

}  // namespace rueda::core
