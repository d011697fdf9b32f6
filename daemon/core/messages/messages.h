// What the cores of a job's nodes say to each other. Plain structs: service/ turns them into
// protobuf.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/status.h"
#include "daemon/core/messages/plan.h"
#include "daemon/core/messages/recovery_messages.h"
#include "daemon/core/messages/stall_messages.h"
#include "daemon/core/model/coordination.h"
#include "daemon/core/model/descriptor.h"
#include "daemon/core/model/inter_node.h"
#include "daemon/core/model/reducer.h"
#include "daemon/core/schedules/algorithm.h"

namespace rueda::core {

// Where a message may go along the tree (tree.h), beside to a node: to all below its sender, each
// of whom passes it on; and to the sender's parent, whoever that is.
inline constexpr NodeIndex kEverybodyBelow{-1};
inline constexpr NodeIndex kNodeAbove{-2};

// A tensor that every local rank of a node has submitted, or has joined instead (L11).
struct ReadyTensor {
  DescriptorPtr descriptor;  // of `rank`
  Rank rank;                 // the lowest that has submitted it; of a join, the last
  std::string mismatch;      // not empty: it must fail on every rank, with these words
  Rank absent{-1};           // has joined, and has not submitted it; -1: all have
};

// "Batch B is operation number s": docs/protocol.md's decree.
struct OrderedOperation {
  Seq seq;
  uint32_t generation = 0;  // the lock generation under which it may be launched
  bool locked = false;      // by a plan: other nodes may not have its tensors yet
  // Over the batch's descriptors; by a plan, over all batches since the lock. 0 with an error.
  uint64_t plan_hash = 0;
  std::vector<std::string> tensors;  // names, in the order of the batch
  std::vector<uint32_t> cached;      // in a Decree: the tensors by cache slot, in place of names
  // L11: the same as descriptors, for nodes that have not seen them because all their ranks have
  // joined; empty: no rank has. On the node: null where it has submissions, empty where it has all.
  std::vector<DescriptorPtr> descriptors;
  Status error;  // not ok: nothing is launched, the tensors fail with it
  // Nothing is launched, it is done at its place in the order, with this result. In a Decree: of a
  // join, the last rank that did so.
  std::optional<uint32_t> outcome;
  bool from_partial = false;  // decided REDO, never decreed: P is of the epoch before
  DataTuning tuning{};        // on the node: the plan's
  // Set on the node alone: the operation began on the fast path (plan_fast_path.h), so the
  // agreement was not told of its tensors.
  bool is_fast = false;
  // The plan's batch, while the operation is on the fast path; `tensors` is empty then. Once the
  // tensors are in the tables of names, there is none.
  std::optional<uint32_t> batch;
};

// To the coordinator: which ranks are attached on the sender and on the nodes below it, as far as
// it has heard. Sent to the parent, again and again until Start arrives.
struct Join {
  struct Below {
    NodeIndex node;
    std::string data_address;
    std::vector<Rank> attached;
    std::string rack{};
  };

  uint64_t layout_hash = 0;
  std::string data_address;  // "host:port" of the data plane
  std::vector<Rank> attached;
  // What all nodes must have been told alike (AgreementOptions).
  Coordination coordination = kDefaultCoordination;
  size_t cache_capacity = 0;
  int fan_in = 0;  // of the tree
  Reducer reducer = Reducer::kNode;
  InterNode inter_node = InterNode::kRueda;
  std::vector<Below> below;
  AlgorithmChoice algorithm = AlgorithmChoice::kAuto;
  std::string rack{};     // where the node stands; empty: nobody has said
  bool is_tuned = false;  // JobOptions; the same on all nodes, too
};

// Coordinator to members: every rank is there; the epoch begins.
struct Start {
  std::vector<std::string> data_addresses;  // by node index
  std::vector<NodeIndex> ring{};            // the members in their order; empty: ascending
};

// Member to coordinator: these tensors are ready here. In a tree to the parent: here and on all
// nodes below.
struct Ready {
  std::vector<ReadyTensor> entries;
  // Of the sender; lockable tensors of another generation are ignored (L4).
  uint32_t generation = 0;
  // More tensors, by slot of the cache: bit s % 64 of word s / 64. Decoded with the cache as it was
  // after `cache_version` decreed operations.
  std::vector<uint64_t> cached;
  uint64_t cache_version = 0;
  // Modes with a cycle: the round that this ends the report of; 0: there is more to come.
  uint64_t round = 0;
  // In a tree, where reports are not combined any more: ready on this node alone.
  std::optional<NodeIndex> of{};
};

struct Decree {
  std::vector<OrderedOperation> operations;
  // Modes with a cycle: the round is over; 0 asks for the reports of the round that now runs.
  uint64_t round = 0;
  TicksMs sleep_ms = 0;  // global-sleep: how long everybody sleeps before the next round
};

// --- Locked schedules (rules L3 to L8) --------------------------------------------------------
// Generations count up by one with every Lock and every Resume: odd ones are locked.

// Where a plan comes from.
enum class PlanSource : uint8_t {
  kSeen,      // steps repeated
  kDeclared,  // ahead, by all ranks; nobody has seen it hold, nor the next
  kRecorded,  // in another run
};

// Coordinator to members: from `first` on, the plan's batches are launched in turn, undecreed.
struct Lock {
  uint32_t generation = 0;
  Seq first;
  Plan plan;
  PlanPlace at = kPlanStart;  // what comes after this batch is first
  PlanSource source = PlanSource::kSeen;
};
// Member to coordinator: this node cannot follow the plan.
struct UnlockRequest {
  uint32_t generation = 0;
  std::string reason;
};
// Coordinator to members: launch no more, and say how far you are.
struct Freeze {
  uint32_t generation = 0;
  std::string reason;  // for people
};
struct Frozen {
  uint32_t generation = 0;
  Seq launched;  // the highest lockable operation that this node has launched, or is bound to
  // The plan's batches of the last operations up to there, those not complete here at the least;
  // empty if the plan has no alternatives. Nodes may have chosen different ones.
  std::vector<uint32_t> walked;
};
// Coordinator to members: operations from `first` on are cancelled, their tensors are ready again.
struct Resume {
  uint32_t generation = 0;  // the new one
  Seq first;
  bool abandons_plan = false;  // a node could not follow a plan that was declared, or recorded
};

// The first member to a coordinator that has no rank in the process set: these have ended here.
struct Ended {
  std::vector<Seq> operations;
};

// What an agreement says to its like on other nodes.
using AgreementMessage =
    std::variant<Ready, Decree, Lock, UnlockRequest, Freeze, Frozen, Resume, Ended>;

// Member to coordinator: a rank said goodbye. The node follows no plan from here on.
struct Leave {
  Rank rank;
  Frozen frozen;  // generation 0: there was no lock
};
// Coordinator to members: from this place in the order on, no operation can have the rank.
struct Left {
  Rank rank;
};

// In a tree: a node that leaves hands its children over to its parent (docs/protocol.md,
// "Leaving").
struct Handover {
  enum class Step : uint8_t {
    kMove,      // leaver to child: `node` is your new parent
    kLastUp,    // child to its new parent, through the leaver: no more from me this way
    kAttach,    // child to its new parent, straight, again and again
    kLastDown,  // new parent to child, through the leaver: no more from me this way
    kAttached,  // new parent to child, straight
    kGone,      // leaver to its parent: I have no children any more
  };
  Step step = Step::kMove;
  NodeIndex node{};
};

// The epoch is over, for this reason. Either way.
struct Fail {
  Status status;
};

struct Message {
  NodeIndex from;
  Epoch epoch;
  // Counts the messages from one node to another within an epoch, from 1. A repeated number is
  // dropped, a gap ends the epoch. 0: outside the count (Join, Start, Fail, who attaches, and
  // those of recovery: idempotent). A heartbeat has the number of the last one that was sent before
  // it.
  uint64_t number = 0;
  std::variant<Join, Start, AgreementMessage, Leave, Left, Fail, StallMessage, RecoveryBody,
               Handover>
      body;
  uint32_t process_set = 0;  // whose order, or whose stalls, it is about
  // In a tree. For whom it is: a node, or kEverybodyBelow; none: the receiver.
  std::optional<NodeIndex> to{};
  std::optional<NodeIndex> passed_on_by{};  // none: it comes from its author

  NodeIndex sender() const { return passed_on_by.value_or(from); }
};

}  // namespace rueda::core
