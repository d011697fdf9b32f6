// What a job is told when it is made; the same on all nodes unless it says otherwise.
#pragma once

#include <string>

#include "daemon/base/clock.h"
#include "daemon/base/ids.h"
#include "daemon/core/model/inter_node.h"
#include "daemon/core/model/reducer.h"
#include "daemon/core/model/tree.h"
#include "daemon/core/order/agreement.h"
#include "daemon/core/recovery/recovery.h"
#include "daemon/core/schedules/algorithm.h"
#include "daemon/core/schedules/ring_order.h"
#include "daemon/core/stall/stall_watch.h"

namespace rueda::core {

struct JobOptions {
  JobId job;
  std::string data_address;  // this node's, told to the others, as is the next
  std::string rack;          // empty: nobody has said
  Bandwidths bandwidths;     // by node; the coordinator's count, for the order of the ring
  AgreementOptions agreement;
  Reducer reducer = Reducer::kNode;
  InterNode inter_node = InterNode::kRueda;
  // L5's W: how far ahead of the oldest operation under way a launch may be, in the lockable track
  // (core/model/track.h has that of the other). The same on all nodes.
  int max_launched_operations = 4;
  AlgorithmChoice algorithm = AlgorithmChoice::kAuto;  // likewise, as the next
  bool is_tuned = false;                               // autotuned, or a plan is replayed
  TicksMs start_timeout_ms = 60'000;                   // for all ranks to attach
  TicksMs join_interval_ms = 300;                      // Join is repeated until Start
  TicksMs handover_grace_ms = 1'000;                   // in a tree, for the others to leave, too
  TicksMs handover_timeout_ms = 10'000;                // for a new parent in the tree to answer
  TicksMs suspicion_grace_ms = 1'000;  // after a data channel broke: for the true cause to arrive
  StallOptions stall;
  TreeOptions tree;  // under policy `shrink` there is none: all talk to all
  // What happens when a node dies, and how long that may take. Policy `fail` asks nobody: the first
  // cause that a node knows ends the job.
  RecoveryOptions recovery;
};

}  // namespace rueda::core
