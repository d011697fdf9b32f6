// A data job is made with these options, and tells its owner these events.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/handler_watch.h"
#include "daemon/base/ids.h"
#include "daemon/base/status.h"
#include "daemon/base/turns.h"
#include "daemon/core/job/job_events.h"
#include "daemon/core/recovery/decision.h"
#include "daemon/core/schedules/algorithm.h"
#include "daemon/engine/memory/pass_threads.h"
#include "daemon/transport/frame.h"

namespace rueda::engine {

// A data job calls these on its data loop.
struct DataEvents {
  std::function<void(Seq, double seconds)> on_done;
  std::function<void(Seq, const Status&)> on_failed;
  // The neighbour means another batch by the name of this operation of a plan (L9). The operation
  // is to be cancelled.
  std::function<void(Seq, uint32_t generation, NodeIndex peer)> on_diverged;
  // A node is lost. `is_missed` says that what is under way here cannot end without the node;
  // otherwise its ranks may just have left.
  std::function<void(NodeIndex, const Status&, bool is_missed)> on_channel_lost;
  // What comes from a node cannot be used: it breaks the rules, or was changed on its way. If this
  // is not set, the node counts as lost.
  std::function<void(NodeIndex, const Status&)> on_unusable;
  // The first `rounds` rounds are done of a part's share of an operation whose inputs come round by
  // round, and others are not.
  std::function<void(Seq, uint32_t generation, uint32_t part, int share, int rounds)>
      on_rounds_done = [](Seq, uint32_t, uint32_t, int, int) {};
  // This node's part of a transfer between ranks is done (transfer_job.h).
  std::function<void(const core::TransferKey&)> on_transfer_done = [](const core::TransferKey&) {};
  // A message about a transfer has come from a node, with the data that an offer carries, or null.
  std::function<void(NodeIndex from, uint32_t process_set, const core::TransferMessage&,
                     const std::shared_ptr<const std::vector<std::byte>>& data)>
      on_transfer_message = [](NodeIndex, uint32_t, const core::TransferMessage&,
                               const std::shared_ptr<const std::vector<std::byte>>&) {};
  // A small operation goes on: what comes next is microseconds away.
  std::function<void()> on_small = [] {};
};

struct DataJobOptions {
  JobId job;
  transport::JobKey key;  // The job's name on the data plane (ports/proof.h).
  Epoch epoch;
  uint32_t process_set = 0;
  uint32_t part = 0;  // the number of the process set's data job on this node (data_parts.h)
  transport::JobToken token{};
  // The nodes are the members of the ring, in its order: the nodes of the process set, or its
  // ranks. Ranks of one node have the same id and address.
  NodeIndex self;
  std::vector<std::string> node_ids;
  std::vector<std::string> data_addresses;
  // Of transfers: how many offers each node may have open, by node.
  std::vector<size_t> most_offers;
  int lanes = 4;
  uint64_t chunk_bytes = 256 * 1024;
  uint64_t widest_chunk_bytes = 0;     // the most that an operation may be tuned to, if larger
  uint64_t staging_bytes = 64u << 20;  // bound of slots and send buffers, and of held values
  TicksMs timeout_ms = 5'000;          // to connect, and without progress
  bool corrupt = false;                // a fault that tests plant
  bool shares_staging = false;         // another process adds (Operation::gpu_reduce)
  // Under kFail nothing is held beyond what the ring needs. All nodes have the same policy, and the
  // same algorithm.
  core::DeathPolicy policy = core::DeathPolicy::kFail;
  core::AlgorithmChoice algorithm = core::AlgorithmChoice::kAuto;  // under kShrink: the ring
  int servers = 1;  // Of the central algorithm (core/schedules/pairwise_schedule.h).
  DataEvents events;
  std::shared_ptr<const Cause> cause;  // The job, for the loop's watch; may be null.
  // The loop's turns, which the jobs of the loop share by their names. A job is charged with the
  // bytes of each rank that a pass goes over. They outlive the job.
  Turns* turns = nullptr;
  // The threads do the passes over memory of a job on one node. They outlive the job.
  PassThreads* pass_threads = nullptr;

  int nodes() const { return static_cast<int>(node_ids.size()); }
  NodeIndex next() const { return NodeIndex{(self.value + 1) % nodes()}; }
  NodeIndex previous() const { return NodeIndex{(self.value + nodes() - 1) % nodes()}; }
  const std::string& id(NodeIndex node) const { return node_ids[static_cast<size_t>(node.value)]; }
};

// A turn of the loop works on so many bytes of a job at most, so that other jobs, and an abort, get
// theirs.
inline constexpr int64_t kTurnBytes = 8 << 20;
// Many small operations in one turn go on for so long at most.
inline constexpr std::chrono::milliseconds kLongestTurn{5};

}  // namespace rueda::engine
