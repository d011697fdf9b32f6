// The interface through which the ways of a batch (HostPath, DevicePath, StagedPath, NcclPath) use
// the job that they belong to. Everything here belongs to the control loop.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/base/handler_watch.h"
#include "daemon/core/job/collectives.h"
#include "daemon/engine/data/data_loops.h"
#include "daemon/engine/job/submission_ledger.h"

namespace rueda::engine {

class PathHost {
 public:
  // Returns the process set, or null if there is none of that id.
  virtual const core::Collectives* find_set(uint32_t id) const = 0;
  virtual Rank global_rank(LocalRank rank) const = 0;
  virtual Epoch epoch() const = 0;
  // All parts of the operation have ended well. The core hears of it before this returns.
  virtual void end_operation(OperationKey key) = 0;
  // An operation has failed, and with it the epoch. The core hears of it before this returns.
  virtual void fail_operation(Seq seq, const Status& why) = 0;
  // This node's part of a transfer is done. The core hears of it before this returns.
  virtual void end_transfer(const core::TransferKey& key) = 0;
  // The job cannot go on on this node. The core hears of it before this returns.
  virtual void end_by(const Status& why) = 0;
  // Returns the job, for the watches of the loops.
  virtual std::shared_ptr<const Cause> cause() const = 0;
  // Returns what the data loops call with news of a process set, whose `ring` has a node for each
  // of its members.
  virtual DataEvents data_events(uint32_t process_set, const std::vector<NodeIndex>& ring) = 0;
  // A rank's device memory can be used, or `status` says why not.
  virtual void device_memory_added(LocalRank rank, uint32_t id, const Status& status) = 0;

 protected:
  ~PathHost() = default;
};

}  // namespace rueda::engine
