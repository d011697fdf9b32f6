// The ways of an operation between nodes (RingPath, PairwisePath) share a context with the data job
// that they belong to, and ask some things of it. Everything here belongs to the data loop.
#pragma once

#include <span>

#include "daemon/base/turns.h"
#include "daemon/engine/data/data_job_options.h"
#include "daemon/engine/data/epoch_faults.h"
#include "daemon/engine/data/operation_table.h"
#include "daemon/engine/data/progress_watch.h"
#include "daemon/engine/data/running_operation.h"

namespace rueda::engine {

// A host is the data job, as its ways see it. Nothing of this is asked for each chunk or message.
class DataHost {
 public:
  // All channels of a way are open.
  virtual void on_open() = 0;
  // A frame has come round the ring that is neither a chunk nor an acknowledgement.
  virtual void on_notice(const transport::FrameHeader& header, std::span<std::byte> payload) = 0;
  // While the network is measured: what was sent has left.
  virtual void on_probe_sent() = 0;
  // Launches those operations that wait and for which there is room.
  virtual void launch_waiting() = 0;
  // All values of the operation are here. The operation may be gone when this returns.
  virtual void complete(RunningOperation& running) = 0;
  // A frame of that peer cannot be: the operation fails, or the peer is lost.
  virtual void refuse(const transport::FrameHeader& header, NodeIndex from,
                      const Status& status) = 0;
  // Nothing more can be done with the peer, and so in this epoch.
  virtual void give_up(NodeIndex peer, const Status& status) = 0;

 protected:
  ~DataHost() = default;
};

// The ways between nodes share this with each other and with their data job, which owns it. All of
// it outlives the ways.
struct WayContext {
  const DataJobOptions& options;
  OperationKernels& kernels;
  OperationTable& operations;
  EpochFaults& faults;
  ProgressWatch& watch;
  DataHost& host;
  Turns::Party& turns;  // The job's.
};

}  // namespace rueda::engine
