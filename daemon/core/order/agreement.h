// How the nodes of a job agree on the order of operations. One interface for every mode
// (docs/protocol.md).
//
// An Agreement lives for one epoch on one node. On the coordinator's node it plays both parts. It
// is pure: it is told what happened and leaves what is to be done in its Output.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/messages/fusion.h"
#include "daemon/core/messages/messages.h"
#include "daemon/core/model/coordination.h"
#include "daemon/core/model/layout.h"
#include "daemon/core/model/track.h"
#include "daemon/core/model/tuning.h"
#include "daemon/core/order/begun_groups.h"
#include "daemon/core/order/submissions.h"

namespace rueda::core {

struct AgreementOptions {
  Coordination mode = kDefaultCoordination;  // the same on all nodes
  FusionOptions fusion;
  // Operations decreed and not yet complete at the coordinator, in each track. While that many are
  // under way, ready tensors gather and are fused: the network's own pace sets the size of the
  // batches, no cycle does.
  int max_open_operations = 4;
  // Tensors that the response cache holds before it forgets those seen least lately; it grows when
  // a step has more.
  size_t cache_capacity = 1024;
  // locked: identical steps before a lock.
  int lock_after_steps = 3;
  // locked: tensors that became ready further apart than this do not share a batch of a plan.
  TicksMs fusion_window_ms = 5;
  // locked: how long the head batch may be incomplete while a later one is ready (L6, those who
  // poll).
  TicksMs patience_ms = 200;
  // cached, global-sleep: a cycle's length (Horovod's HOROVOD_CYCLE_TIME), and after how many
  // cycles the length is agreed anew, between the first and the last.
  TicksMs cycle_ms = 1;
  int cycles_between_agreements = 50;
  TicksMs longest_cycle_ms = 16;
  // Not 0: reports go up the members' tree of this fan-in (tree.h), combined on the way unless the
  // mode has a cycle, and what is for all goes down the tree. 0: all go straight.
  int tree_fan_in = 0;
  // locked: likewise of the coordinator. A plan that is in force from the first operation on; null:
  // there is none. Whether to say what plan is in force.
  TuningOptions tuning{};
  std::shared_ptr<const Plan> replayed{};
  bool records_plans = false;
  // Of the epoch, by track: up to here numbers are taken, by what an epoch before has left over.
  std::array<Seq, kTracks> taken{before_first_of(Track::kLockable),
                                 before_first_of(Track::kDecreed)};
  // Likewise: the rest of these comes without the others, which need no order any more.
  BegunGroups begun{};
  uint32_t process_set = 0;  // whose order it is

  // Not of the set of all ranks: the tree is that of the job's nodes, and what is searched for and
  // recorded is the job's step.
  void be_of_added_set(uint32_t id) {
    process_set = id;
    tree_fan_in = 0;
    tuning.is_enabled = false;
    replayed = nullptr;
    records_plans = false;
  }
};

// L7: the operations of the lockable track from `first` on are cancelled here; their numbers come
// again, in this generation.
struct Cancel {
  Seq first;
  uint32_t generation = 0;
  uint32_t process_set = 0;  // in a job's Output
};

// What comes next by a plan in force.
struct NextInPlan {
  const Plan* plan;
  uint32_t generation;
  PlanPlace at;
  std::span<const uint32_t> batches;  // that may be next
};

struct AgreementOutput {
  // To a node, or along the tree (messages.h).
  std::vector<std::pair<NodeIndex, AgreementMessage>> sends;
  std::vector<Cancel> cancels;            // to be carried out before `ordered`
  std::vector<OrderedOperation> ordered;  // the next operations of each track, in order
  std::vector<std::string> notes;         // what people may want to read in the log
  // What was wrong with a plan that was declared, and is given up; empty: none is.
  std::string abandoned_plan;
  std::vector<TuningLine> tuning;  // how the search for a setting goes
  std::optional<Plan> recorded;    // a plan came into force, and plans are recorded
};

class Agreement {
 public:
  virtual ~Agreement() = default;
  virtual Coordination mode() const = 0;
  // Before anything else is told: what time it is.
  void set_now(TicksMs now) { now_ = now; }

  // Every local rank has submitted the tensor.
  virtual void on_local_ready(ReadyTensor tensor) = 0;
  // An error means that the peer broke the protocol: the epoch must end.
  virtual Status on_message(NodeIndex from, const AgreementMessage& message) = 0;
  // The rank has left; what needs it and is not decreed yet will be decreed as an error. Not while
  // is_locked().
  virtual void on_rank_left(Rank rank) = 0;
  // The node has stopped, after all its ranks had left.
  virtual void on_node_gone(NodeIndex /*node*/) {}
  // This node has completed (or, for an error, ended) the operation.
  virtual void on_operation_ended(Seq seq) = 0;
  // The data plane: the peer has launched another batch by this name, which is one of a plan, in
  // this generation. An error ends the epoch.
  virtual Status on_diverged(Seq /*seq*/, uint32_t /*generation*/, NodeIndex /*peer*/) {
    return Status::ok();
  }
  // Everything known at this moment has been told: act on it.
  virtual void end_turn(AgreementOutput& output) = 0;

  // When end_turn must be called again even if nothing happens; none: not before something does.
  virtual std::optional<TicksMs> wakes_at() const { return std::nullopt; }

  // --- Modes that lock; the others are never locked.
  virtual bool is_locked() const { return false; }
  // Batches of the plan in force, for people; null when there is none.
  virtual const Plan* plan() const { return nullptr; }
  // None unless this node is where the plan is and nothing stands against it: all of the plan's
  // tensors that were told to be ready are launched.
  virtual std::optional<NextInPlan> next_in_plan() const { return std::nullopt; }
  // Every local rank has submitted this one of those that may be next, as the plan has it, and
  // before any other of them: to be launched now. Its tensors are not named, and were not told by
  // on_local_ready(); if it is cancelled, they are.
  virtual OrderedOperation take_next_in_plan(uint32_t /*batch*/) { return {}; }
  // This node follows the plan no longer, and says how far it is. On the coordinator's node the
  // unlocking begins. generation 0: there is no lock.
  virtual Frozen withdraw() { return {}; }

 protected:
  TicksMs now_ = 0;
};

// Why a tensor can never complete once a rank it needs has said goodbye.
std::string describe_left(const std::string& tensor, Rank rank);

// For the modes: a message of another mode, which ends the epoch; and the same to all other nodes.
Status unexpected_message(const Layout& layout, NodeIndex from, Coordination mode);
void send_to_members(const Layout& layout, NodeIndex self, const AgreementOptions& options,
                     const AgreementMessage& message, AgreementOutput& output);

// Layout and submissions outlive the agreement.
std::unique_ptr<Agreement> make_agreement(const Layout& layout, NodeIndex self,
                                          const SubmissionTable& submissions,
                                          const AgreementOptions& options);

}  // namespace rueda::core
