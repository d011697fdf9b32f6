// The options with which a job is made. They must be the same on all nodes unless a comment says
// otherwise.
#pragma once

#include <string>

#include "daemon/base/clock.h"
#include "daemon/base/ids.h"
#include "daemon/core/model/inter_node.h"
#include "daemon/core/model/reducer.h"
#include "daemon/core/model/settings.h"
#include "daemon/core/model/tree.h"
#include "daemon/core/order/agreement.h"
#include "daemon/core/recovery/recovery.h"
#include "daemon/core/schedules/algorithm.h"
#include "daemon/core/schedules/ring_order.h"
#include "daemon/core/stall/stall_watch.h"

namespace rueda::core {

struct JobOptions {
  JobId job;
  Epoch first_epoch{1};
  // Tells the others where this node's data plane is; it is this node's alone.
  std::string data_address;
  std::string rack;       // This node's alone; empty if nobody has said.
  Bandwidths bandwidths;  // By node. Only the coordinator uses its own, for the order of the ring.
  AgreementOptions agreement;
  Reducer reducer = Reducer::kNode;
  // The data address of this node speaks gRPC, as that of every node must then.
  bool is_over_grpc = false;
  InterNode inter_node = InterNode::kRueda;
  // L5's W: how far ahead of the oldest operation under way a launch may be, in the lockable track
  // (core/model/track.h has that of the other track).
  int max_launched_operations = 4;
  AlgorithmChoice algorithm = AlgorithmChoice::kAuto;  // How an all-reduce goes between nodes.
  int servers = 1;                                     // Of the central algorithm.
  bool is_tuned = false;              // The job is autotuned, or a plan is replayed.
  TicksMs start_timeout_ms = 60'000;  // The time for all ranks to attach.
  TicksMs join_interval_ms = 300;     // The time between two Joins, which are repeated until Start.
  TicksMs handover_grace_ms = 1'000;  // In a tree: the time for the other nodes to leave, too.
  TicksMs handover_timeout_ms = 5'000;  // The time for a new parent in the tree to answer.
  // The daemon's --failure-timeout, from which its waits derive. It must be the same on all nodes.
  TicksMs failure_timeout_ms = 5'000;
  Settings also_shared;  // What the layers above want to be the same on all nodes.
  // The time for the true cause to arrive after a data channel broke.
  TicksMs suspicion_grace_ms = 1'000;
  StallOptions stall;
  TreeOptions tree;  // Under policy `shrink` there is no tree: all talk to all.
  // What happens when a node dies, and how long that may take. Policy `fail` asks nobody: the first
  // cause that a node knows ends the job.
  RecoveryOptions recovery;
};

}  // namespace rueda::core
