// The messages that the cores of a job's nodes send to each other. They are plain structs, which
// service/ turns into protobuf.
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
#include "daemon/core/messages/transfer_messages.h"
#include "daemon/core/model/descriptor.h"
#include "daemon/core/model/settings.h"

namespace rueda::core {

// Two destinations of a message along the tree (tree.h), beside a single node: all nodes below its
// sender, each of which passes it on; and the sender's parent, whoever that is.
inline constexpr NodeIndex kEverybodyBelow{-1};
inline constexpr NodeIndex kNodeAbove{-2};

// A tensor that every local rank of a node has submitted, or has joined instead (L11).
struct ReadyTensor {
  DescriptorPtr descriptor;  // It is the descriptor that `rank` submitted.
  Rank rank;                 // The lowest rank that has submitted the tensor; for a join, the last.
  std::string mismatch;      // If set, the tensor must fail on every rank with this text.
  Rank absent{-1};  // A rank that has joined without submitting the tensor; -1 if there is none.
};

// An operation and its place in the order: "batch B is operation number s", the decree of
// docs/protocol.md.
struct OrderedOperation {
  Seq seq;
  uint32_t generation = 0;  // The lock generation under which it may be launched.
  bool locked = false;      // A plan ordered the operation, so other nodes may lack its tensors.
  // A hash over the batch's descriptors; by a plan, over all batches since the lock. It is 0 with
  // an error.
  uint64_t plan_hash = 0;
  std::vector<std::string> tensors;  // The names, in the order of the batch.
  std::vector<uint32_t> cached;      // In a Decree: the tensors by cache slot, in place of names.
  // L11: the descriptors of the same tensors, for nodes that have not seen them because all their
  // ranks have joined; empty if no rank has joined. On the node that launches it, an entry is null
  // where the node has submissions, and the vector is empty where the node has all.
  std::vector<DescriptorPtr> descriptors;
  Status error;  // If it is not ok, nothing is launched, and the tensors fail with it.
  // If set, nothing is launched: the operation is done at its place in the order, with this result.
  // In the Decree of a join, it is the last rank that has joined.
  std::optional<uint32_t> outcome;
  // The operation was decided REDO, not decreed: P is of the epoch before.
  bool from_partial = false;
  DataTuning tuning{};  // The plan's tuning, on the node that launches the operation.
  // Set on the node alone: the operation began on the fast path (plan_fast_path.h), so the
  // agreement was not told of its tensors.
  bool is_fast = false;
  // The index of the plan's batch, while the operation is on the fast path; `tensors` is empty
  // then. It is none once the tensors are in the tables of names.
  std::optional<uint32_t> batch;
};

// Tells the coordinator which ranks are attached on the sender and on the nodes below it, as far as
// it has heard. It is sent to the parent, again and again until Start arrives.
struct Join {
  // What the sender has heard from a node below it.
  struct Below {
    NodeIndex node;
    std::string data_address;
    std::vector<Rank> attached;
    std::string rack{};
  };

  uint64_t layout_hash = 0;
  std::string data_address;  // "host:port" of the sender's data plane.
  std::vector<Rank> attached;
  Settings settings;  // They must be the same on all nodes.
  std::vector<Below> below{};
  std::string rack{};  // Where the node stands; empty if nobody has said.
};

// Tells the members, from the coordinator, that every rank is there and the epoch begins.
struct Start {
  std::vector<std::string> data_addresses;  // The index is that of the node.
  std::vector<NodeIndex> ring{};  // The members as they stand in the ring; empty: ascending.
};

// Tells the coordinator, from a member, that these tensors are ready on the member. In a tree it
// goes to the parent, and the tensors are ready on the sender and on all nodes below it.
struct Ready {
  std::vector<ReadyTensor> entries;
  // The lock generation of the sender; lockable tensors of another generation are ignored (L4).
  uint32_t generation = 0;
  // The other tensors, by slot of the cache: bit s % 64 of word s / 64. They are decoded with the
  // cache as it was after `cache_version` decreed operations.
  std::vector<uint64_t> cached;
  uint64_t cache_version = 0;
  // In modes with a cycle: the round whose report this message ends; 0 if there is more to come.
  uint64_t round = 0;
  // In `global-sleep`: no tensors; `round` is over on the sender, who would sleep so long now. In a
  // tree it is the least sleep of the sender and of all nodes below it, or that of `of` alone.
  std::optional<TicksUs> sleep_us{};
  // In a tree where reports are not combined any more: the only node on which the tensors are
  // ready.
  std::optional<NodeIndex> of{};
};

// Tells the members, from the coordinator, which operations come next in the order.
struct Decree {
  std::vector<OrderedOperation> operations;
  // In modes with a cycle: the round that is over; 0 asks for the reports of the round that now
  // runs.
  uint64_t round = 0;
  // In `global-sleep`: no operations; after `round` everybody sleeps so long.
  std::optional<TicksUs> sleep_us{};
};

// --- Locked schedules (rules L3 to L8) --------------------------------------------------------
// Generations count up by one with every Lock and every Resume; while a generation is odd, a plan
// is in force.

// The origin of a plan.
enum class PlanSource : uint8_t {
  kSeen,      // Steps have repeated.
  kDeclared,  // All ranks declared it ahead; like kRecorded, it has not been seen to hold.
  kRecorded,  // It was recorded in another run.
};

// Tells the members, from the coordinator, that from `first` on the plan's batches are launched in
// turn, without decrees.
struct Lock {
  uint32_t generation = 0;
  Seq first;
  Plan plan;
  PlanPlace at = kPlanStart;  // Operation `first` is what comes after this batch.
  PlanSource source = PlanSource::kSeen;
};
// Tells the coordinator, from a member, that the member cannot follow the plan.
struct UnlockRequest {
  uint32_t generation = 0;
  std::string reason;
};
// Tells the members, from the coordinator, to launch no more, and to answer with Frozen.
struct Freeze {
  uint32_t generation = 0;
  std::string reason;  // The reason is for people to read.
};
// Tells the coordinator, from a member, how far the member is in a plan that it follows no longer.
struct Frozen {
  uint32_t generation = 0;
  Seq launched;  // The highest lockable operation that it has launched, or is bound to.
  // The plan's batches of the last operations up to `launched`, at the least of those that are not
  // complete on the member; empty if the plan has no alternatives. Nodes may have chosen different
  // batches.
  std::vector<uint32_t> walked;
};
// Tells the members, from the coordinator, that operations from `first` on are cancelled, and their
// tensors are ready again.
struct Resume {
  uint32_t generation = 0;  // The generation that begins.
  Seq first;
  bool abandons_plan = false;  // A node could not follow a declared or recorded plan.
};

// Tells a coordinator that has no rank in the process set, from the set's first member, which
// operations have ended there.
struct Ended {
  std::vector<Seq> operations;
};

// The messages between the agreements of one process set on different nodes.
using AgreementMessage =
    std::variant<Ready, Decree, Lock, UnlockRequest, Freeze, Frozen, Resume, Ended>;

// Tells the coordinator, from a member, that a rank has said goodbye. The node follows no plan from
// here on.
struct Leave {
  Rank rank;
  Frozen frozen;  // Its generation is 0 if there was no lock.
};
// Tells the members, from the coordinator, that from this place in the order on no operation can
// have the rank.
struct Left {
  Rank rank;
};

// A step by which a node that leaves the tree hands its children over to its parent
// (docs/protocol.md, "Leaving").
struct Handover {
  enum class Step : uint8_t {
    kMove,    // From the leaver to a child: `node` is your new parent.
    kLastUp,  // From a child to its new parent, through the leaver: no more comes from me this way.
    kAttach,  // From a child to its new parent, over a link of their own, again and again.
    // The new parent tells the child, through the leaver: no more comes from me this way.
    kLastDown,
    kAttached,  // From the new parent to the child, over their own link.
    kGone,      // From the leaver to its parent: I have no children any more.
  };
  Step step = Step::kMove;
  NodeIndex node{};
};

// Tells any node that the epoch is over, and why. It goes both ways.
struct Fail {
  Status status;
};

struct Message {
  NodeIndex from;
  Epoch epoch;
  // Counts the messages from one node to another within an epoch, from 1. A repeated number is
  // dropped, a gap ends the epoch. 0 stands outside the count: Join, Start, Fail, the attaching of
  // a handover, and the messages of recovery, all of which may come twice and do no harm. A
  // heartbeat has the number of the last counted message before it.
  uint64_t number = 0;
  std::variant<Join, Start, AgreementMessage, Leave, Left, Fail, StallMessage, RecoveryBody,
               Handover, TransferOpen>
      body;
  // The process set whose order or stalls the message is about.
  uint32_t process_set = 0;
  // In a tree: the node that the message is for, or kEverybodyBelow; none: it is for the receiver.
  std::optional<NodeIndex> to{};
  std::optional<NodeIndex> passed_on_by{};  // None: it comes from its author.

  NodeIndex sender() const { return passed_on_by.value_or(from); }
};

}  // namespace rueda::core
