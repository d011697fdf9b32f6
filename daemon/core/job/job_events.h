// What a job's core (job.h) is told, and what it says is to be done.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/core/messages/messages.h"
#include "daemon/core/order/agreement.h"
#include "daemon/core/order/submissions.h"
#include "daemon/core/recovery/recovery.h"
#include "daemon/core/stall/stall.h"

namespace rueda::core {

// --- Events ---------------------------------------------------------------------------------
struct RankAttached {
  LocalRank rank;
};
struct RankDetached {
  LocalRank rank;
};  // said goodbye
struct RankLost {
  LocalRank rank;
  Status status;
};  // died, or broke the rules
struct Submitted {
  LocalSubmission submission;
};
struct MessageArrived {
  Message message;
};
// The control link to the node is gone for good.
struct NodeLost {
  NodeIndex node;
  Status status;
};
// A data channel broke. The cause may be the peer's death, or that it has ended the epoch already.
struct DataChannelLost {
  NodeIndex node;
  Status status;
  uint32_t process_set = 0;
  // The data plane waits for the node, or waits no more: it must not be taken for one that has
  // left.
  bool is_missed = false;
};
struct OperationDone {
  Seq seq;
  uint32_t process_set = 0;
};
// The rank sleeps until the submission ends; none: it sleeps no longer. A hint, which need not
// come.
struct RankWaits {
  LocalRank rank;
  std::optional<Ticket> ticket;
};
struct OperationFailed {
  Seq seq;
  Status status;
};
// Of a plan: the peer has launched another batch by this name, so nobody can complete it (L9).
struct OperationDiverged {
  Seq seq;
  uint32_t generation = 0;
  NodeIndex peer;
  uint32_t process_set = 0;
};
// The data plane has come to a stop in the epoch that was sealed. What it has of operations that
// were launched and are not done.
struct DataStopped {
  Epoch epoch;
  std::vector<HeldChunks> held;
};
// The job is taken off this node (its launcher went away, the daemon stops).
struct JobClosed {
  Status status;
};
struct TimePassed {};
// Everything known at this moment has been told.
struct TurnEnded {};

using Event = std::variant<RankAttached, RankDetached, RankLost, Submitted, MessageArrived,
                           NodeLost, DataChannelLost, OperationDone, OperationFailed, DataStopped,
                           JobClosed, TimePassed, RankWaits, OperationDiverged, TurnEnded>;

// --- Output ---------------------------------------------------------------------------------
struct LaunchTensor {
  DescriptorPtr descriptor;
  int64_t elements = 0;  // the descriptor's, which is not always in cache
};
// A plan's batch has the same ones each time.
using LaunchTensors = std::shared_ptr<const std::vector<LaunchTensor>>;

// Carry this operation out; answer with OperationDone or OperationFailed. Under policy `shrink` a
// broadcast is done on no node before every member has launched it: then an operation that one of
// them has not launched is done nowhere.
struct Launch {
  Epoch epoch;
  uint32_t process_set = 0;
  Seq seq;
  uint32_t generation = 0;
  // By a plan: other nodes may be far from launching it. No deadline until they show that they
  // have.
  bool locked = false;
  uint64_t plan_hash = 0;
  DataTuning tuning{};        // likewise; otherwise as configured
  bool from_partial = false;  // decided REDO: P is there, of the epoch before
  LaunchTensors tensors;      // of one kind, dtype, op and scale
  // Of one tensor after another, for each of the node's ranks in the process set, ascending; none:
  // the rank has joined, and contributes zeros.
  std::vector<std::optional<Ticket>> tickets;

  std::span<const std::optional<Ticket>> tickets_of(size_t tensor) const {
    const size_t ranks = tickets.size() / tensors->size();
    return std::span(tickets).subspan(tensor * ranks, ranks);
  }
};

// The end of one submission.
struct Delivery {
  LocalRank rank;
  Ticket ticket;
  Status status;
  Epoch epoch;  // of the result: before the one that runs, if the operation was carried over
  uint32_t contributors = 0;
  Seq seq;
  uint32_t value = 0;  // what came of the operation: a process set's id, the last rank to join
  // Of those that end the same tensor on this node.
  bool is_first = false;
};

struct EpochStarted {
  Epoch epoch;
  std::vector<std::string> data_addresses;  // by node index
};

struct ProcessSetAdded {
  uint32_t id = 0;
  std::vector<Rank> ranks;
};

// To be carried out in this order.
struct Output {
  std::vector<std::pair<NodeIndex, Message>> sends;
  // Policy `shrink` (docs/protocol.md, "Recovery"). The epoch has come to an end that nobody
  // wanted: stop its data plane, and answer with DataStopped.
  std::optional<Epoch> sealed;
  // The next one begins, with these members. Operations that it carries over are under way from
  // here on: those to be completed until they are fetched (then OperationDone), those to be
  // repeated when they are launched. Whatever else the epoch before had is void.
  std::optional<NextEpoch> recovered;
  std::vector<ProcessSetAdded> sets_added;  // what follows may be theirs
  std::vector<Cancel> cancels;
  std::vector<Launch> launches;
  std::vector<Delivery> deliveries;
  // Policy `shrink`, R1: P, or F, of these operations may go.
  std::vector<Seq> freed_partials;
  std::vector<Seq> freed_finals;
  std::vector<uint32_t> sets_removed;  // nothing of them is under way on this node
  std::optional<EpochStarted> started;
  std::optional<Epoch> finished;   // every rank has left: the epoch's channels may be closed
  std::optional<Status> failed;    // the job is over; operations under way are to be dropped
  std::vector<std::string> notes;  // what people may want to read in the log
  std::vector<std::string> abandoned_plans;  // declared ahead, and wrong: what people must read
  std::vector<StallLine> stall_lines;
  std::vector<TuningLine> tuning;     // on the coordinator's node: how the search goes
  std::optional<Plan> recorded_plan;  // likewise: the plan in force, where plans are recorded
};

}  // namespace rueda::core
