// The events that a job's core (job.h) is told, and its output: what has to be done.
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

// Names a transfer in an epoch: the nodes of its source and its destination, and its number among
// those from the one to the other.
struct TransferKey {
  NodeIndex from;
  NodeIndex to;
  uint64_t number = 0;
  auto operator<=>(const TransferKey&) const = default;
};

// --- Events ---------------------------------------------------------------------------------
// The process of a rank of this node has attached.
struct RankAttached {
  LocalRank rank;
};
// The rank has said goodbye.
struct RankDetached {
  LocalRank rank;
};
// The rank has died, or has broken the rules.
struct RankLost {
  LocalRank rank;
  Status status;
};
// A rank of this node has submitted something.
struct Submitted {
  LocalSubmission submission;
};
// A message of another node has come.
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
  // The data plane waits for the node, or waits no more: the node must not be taken for one that
  // has left.
  bool is_missed = false;
};
// The data plane has completed the operation on this node.
struct OperationDone {
  Seq seq;
  uint32_t process_set = 0;
};
// The rank sleeps until the submission with this ticket ends; with no ticket it sleeps no longer.
// This is a hint, which need not come.
struct RankWaits {
  LocalRank rank;
  std::optional<Ticket> ticket;
};
// The data plane has done this node's part of the transfer: the data has left it, or is there.
struct TransferDone {
  TransferKey key;
};
// The rank takes back its transfer with this ticket. If it has met no other half, it ends with
// kUnavailable; otherwise, or if it has ended, it ends as it would have.
struct TransferCancelled {
  LocalRank rank;
  Ticket ticket;
};
// A message about a transfer has come over the channel from the node. The data plane has checked
// that an answer is one to an open offer, and that both agree on whether data was carried.
struct TransferMessageArrived {
  NodeIndex from;
  Epoch epoch;  // The channel's.
  uint32_t process_set = 0;
  TransferMessage message;
};
// The operation cannot be completed. The status says why, and its origin names the node at which it
// stands still.
struct OperationFailed {
  Seq seq;
  Status status;
};
// The peer has launched another batch of a plan under this number, so nobody can complete the
// operation (L9).
struct OperationDiverged {
  Seq seq;
  uint32_t generation = 0;
  NodeIndex peer;
  uint32_t process_set = 0;
};
// The data plane has come to a stop in the epoch that was sealed. `held` has what it holds of
// operations that were launched and are not done.
struct DataStopped {
  Epoch epoch;
  std::vector<HeldChunks> held;
};
// The job is taken off this node (its launcher went away, the daemon stops).
struct JobClosed {
  Status status;
};
// Somebody has ended the job, on this node, for all nodes.
struct JobEnded {
  Status status;
};
// Some time has passed: the job does what is due by now.
struct TimePassed {};
// Everything known at this moment has been told.
struct TurnEnded {};

using Event = std::variant<RankAttached, RankDetached, RankLost, Submitted, MessageArrived,
                           NodeLost, DataChannelLost, OperationDone, OperationFailed, DataStopped,
                           JobClosed, JobEnded, TimePassed, RankWaits, OperationDiverged,
                           TransferDone, TransferMessageArrived, TransferCancelled, TurnEnded>;

// --- Output ---------------------------------------------------------------------------------
struct LaunchTensor {
  DescriptorPtr descriptor;
  int64_t elements = 0;  // The descriptor's, which is not always in cache.
};
// A batch's tensors, shared because a plan's batch has the same ones each time.
using LaunchTensors = std::shared_ptr<const std::vector<LaunchTensor>>;

// Tells the data plane to carry this operation out, and to answer with OperationDone or
// OperationFailed. Under policy `shrink` a broadcast is done on no node before every member has
// launched it: then an operation that one of them has not launched is done nowhere.
struct Launch {
  Epoch epoch;
  uint32_t process_set = 0;
  Seq seq;
  uint32_t generation = 0;
  // The operation is by a plan, so other nodes may be far from launching it: it has no deadline
  // until they show that they have.
  bool locked = false;
  uint64_t plan_hash = 0;
  DataTuning tuning{};        // By a plan: the plan's; otherwise as configured.
  bool from_partial = false;  // It was decided REDO: P is there, of the epoch before.
  LaunchTensors tensors;      // They have the same kind, dtype, op and scales.
  // The tickets of one tensor after another, for each of the node's ranks in the process set,
  // ascending; none if the rank has joined, and contributes zeros.
  std::vector<std::optional<Ticket>> tickets;

  std::span<const std::optional<Ticket>> tickets_of(size_t tensor) const {
    const size_t ranks = tickets.size() / tensors->size();
    return std::span(tickets).subspan(tensor * ranks, ranks);
  }
};

// Tells the data plane to carry out this node's part of a transfer, and to answer with
// TransferDone. The part of the destination is launched before the source is told to send.
struct TransferLaunch {
  // A submission of a rank of this node.
  struct End {
    LocalRank rank;
    Ticket ticket;
  };
  Epoch epoch;
  TransferKey key;
  int64_t bytes = 0;
  // The data is on this node already, because it came with the offer. There is no source then.
  bool carried = false;
  std::optional<End> source;       // Set where the source is on this node.
  std::optional<End> destination;  // The same for the destination.
};

// Tells the data plane to send a message about a transfer to another node, over the channel to it,
// in the order in which messages come here.
struct TransferSend {
  NodeIndex to;
  uint32_t process_set = 0;
  TransferMessage message;
  std::optional<TransferLaunch::End> source;  // Of an offer: whose data may go with it.
};

// Tells one rank of this node that one of its submissions has ended.
struct Delivery {
  LocalRank rank;
  Ticket ticket;
  Status status;
  // The epoch of the result, which is an earlier one if the operation was carried over.
  Epoch epoch;
  uint32_t contributors = 0;
  Seq seq;
  // The operation's result: a process set's id, the last rank to join, the rank at the other end of
  // a transfer.
  uint32_t value = 0;
  // This is the first of the deliveries that end the same tensor on this node.
  bool is_first = false;
};

struct EpochStarted {
  Epoch epoch;
  std::vector<std::string> data_addresses;  // The index is that of the node.
};

struct ProcessSetAdded {
  uint32_t id = 0;
  std::vector<Rank> ranks;
};

// What has to be done, in this order.
struct Output {
  std::vector<std::pair<NodeIndex, Message>> sends;
  // Policy `shrink` (docs/protocol.md, "Recovery"): the epoch has come to an end that nobody
  // wanted. Its data plane has to be stopped, and DataStopped is the answer.
  std::optional<Epoch> sealed;
  // The next epoch begins, with these members. Operations that it carries over are under way from
  // here on: those to be completed until they are fetched (then OperationDone comes), those to be
  // repeated when they are launched. Whatever else the epoch before had is void.
  std::optional<NextEpoch> recovered;
  std::vector<ProcessSetAdded> sets_added;  // What follows may be theirs.
  std::vector<Cancel> cancels;
  std::vector<Launch> launches;
  // The channels for transfers from and to these nodes have to be opened. Then transfers are
  // launched, and then messages about transfers go out.
  std::vector<NodeIndex> transfer_peers;
  std::vector<TransferLaunch> transfers;
  std::vector<TransferSend> transfer_sends;
  std::vector<Delivery> deliveries;
  // Policy `shrink`, R1: P, or F, of these operations may be freed.
  std::vector<Seq> freed_partials;
  std::vector<Seq> freed_finals;
  std::vector<uint32_t> sets_removed;  // Nothing of them is under way on this node.
  std::optional<EpochStarted> started;
  std::optional<Epoch> finished;  // Every rank has left: the epoch's channels may be closed.
  std::optional<Status> failed;   // The job is over; operations under way have to be dropped.
  uint32_t rounds = 0;  // How many rounds of agreements with a cycle have ended on this node.
  std::vector<std::string> notes;  // What people may want to read in the log.
  // What was wrong with plans that were declared ahead or recorded; people must read it.
  std::vector<std::string> abandoned_plans;
  std::vector<StallLine> stall_lines;
  std::vector<TuningLine> tuning;  // On the coordinator's node: how the search goes.
  // On the coordinator's node: the plan in force, where plans are recorded.
  std::optional<Plan> recorded_plan;
};

}  // namespace rueda::core
