// The interface through which the nodes of a job agree on the order of operations. Every mode
// implements it (docs/protocol.md).
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
  Coordination mode = kDefaultCoordination;  // All nodes of a job have the same mode.
  FusionOptions fusion;
  // How many operations may be decreed and not yet complete at the coordinator, in each track.
  // While that many are under way, ready tensors gather and are fused: the network's own pace sets
  // the size of the batches, no cycle does.
  int max_open_operations = 4;
  // How many tensors the response cache holds before it forgets those seen least lately; it grows
  // when a step has more.
  size_t cache_capacity = 1024;
  // Mode `locked`: this many identical steps are seen before a lock.
  int lock_after_steps = 3;
  // Mode `locked`: tensors that became ready further apart than this do not share a batch of a
  // plan.
  TicksMs fusion_window_ms = 5;
  // Mode `locked`: how long something of the plan may be ready while the head batch is incomplete
  // and nothing more becomes ready (L6, those who poll). A declared plan has kPatienceOfDeclared
  // times this, because nobody knows yet how far apart its tensors become ready.
  TicksMs patience_ms = 200;
  // Modes with a cycle (has_cycle() in coordination.h): the time from the beginning of a cycle to
  // that of the next, if the cycle's work takes no longer (HOROVOD_CYCLE_TIME; its default since
  // Horovod 0.21.0). Above 0; all nodes have the same.
  TicksUs cycle_time_us = 1'000;
  // Mode `global-sleep`: after every so many cycles all nodes agree on one sleep; the N of Pumma et
  // al., section IV-A, who found 1 to be the best. At least 1; all nodes have the same.
  int sleep_agreed_every = 1;
  // If not 0, reports go up the members' tree of this fan-in (tree.h), combined on the way unless
  // the mode has a cycle, and what is for all goes down the tree. With 0 every node talks to the
  // coordinator alone.
  int tree_fan_in = 0;
  // These three are for the coordinator in mode `locked`: how to search for a setting; a plan that
  // is in force from the first operation on, or null; and whether to tell the caller each plan that
  // comes into force.
  TuningOptions tuning{};
  std::shared_ptr<const Plan> replayed{};
  bool records_plans = false;
  // The last number of each track of the epoch that is taken already, by what an epoch before has
  // left over.
  std::array<Seq, kTracks> taken{before_first_of(Track::kLockable),
                                 before_first_of(Track::kDecreed)};
  // Groups of which an epoch before has left some tensors over. Their other tensors come without
  // these, which need no order any more.
  BegunGroups begun{};
  uint32_t process_set = 0;  // The process set whose order it is.

  // Makes these the options of a process set that was added. Such a set has no tree, which is that
  // of the job's nodes, and no search and no recorded plan, which are about the job's step.
  void be_of_added_set(uint32_t id) {
    process_set = id;
    tree_fan_in = 0;
    tuning.is_enabled = false;
    replayed = nullptr;
    records_plans = false;
  }
};

// Says that the operations of the lockable track from `first` on are cancelled on this node; their
// numbers come again, in this generation (L7).
struct Cancel {
  Seq first;
  uint32_t generation = 0;
  uint32_t process_set = 0;  // It is set in a job's Output.
};

// Where this node is in the plan that is in force.
struct NextInPlan {
  const Plan* plan;
  uint32_t generation;
  PlanPlace at;
  std::span<const uint32_t> batches;  // The batches that may be next.
};

struct AgreementOutput {
  // Messages, each with its destination: a node, or one along the tree (messages.h).
  std::vector<std::pair<NodeIndex, AgreementMessage>> sends;
  std::vector<Cancel> cancels;            // Cancels are carried out before `ordered`.
  std::vector<OrderedOperation> ordered;  // The next operations of each track, in order.
  std::vector<std::string> notes;         // What people may want to read in the log.
  uint32_t rounds = 0;  // In modes with a cycle: how many rounds have ended on this node.
  // What was wrong with a declared or recorded plan that is given up now; empty if none is.
  std::string abandoned_plan;
  std::vector<TuningLine> tuning;  // How the search for a setting goes.
  std::optional<Plan> recorded;    // The plan that came into force, if plans are recorded.
};

class Agreement {
 public:
  virtual ~Agreement() = default;
  virtual Coordination mode() const = 0;
  // Must be called before anything else is told: what time it is.
  void set_now(TicksUs now) {
    now_us_ = now;
    now_ = to_ms(now);
  }

  // Every local rank has submitted the tensor.
  virtual void on_local_ready(ReadyTensor tensor) = 0;
  // An error means that the peer broke the protocol: the epoch must end.
  virtual Status on_message(NodeIndex from, const AgreementMessage& message) = 0;
  // The rank has left; what needs it and is not decreed yet will be decreed as an error. Must not
  // be called while is_locked().
  virtual void on_rank_left(Rank rank) = 0;
  // The node has stopped, after all its ranks had left.
  virtual void on_node_gone(NodeIndex /*node*/) {}
  // This node has completed the operation, or ended it, if it was decreed as an error.
  virtual void on_operation_ended(Seq seq) = 0;
  // The data plane has found that the peer launched another batch of a plan under this number, in
  // this generation. An error ends the epoch.
  virtual Status on_diverged(Seq /*seq*/, uint32_t /*generation*/, NodeIndex /*peer*/) {
    return Status::ok();
  }
  // Everything known at this moment has been told: leaves in `output` what is to be done.
  virtual void end_turn(AgreementOutput& output) = 0;

  // Returns when end_turn() must be called again even if nothing happens, or none if nothing is due
  // before something happens.
  virtual std::optional<TicksUs> wakes_at_us() const { return std::nullopt; }

  // --- Modes that lock override these; in the others no plan is ever in force
  virtual bool is_locked() const { return false; }
  // Returns the plan in force, for people to read about; null if there is none.
  virtual const Plan* plan() const { return nullptr; }
  // Returns where this node is in the plan, or none unless a plan is in force and nothing stands
  // against it, so that all of the plan's tensors that were told to be ready are launched.
  virtual std::optional<NextInPlan> next_in_plan() const { return std::nullopt; }
  // Launches one of the batches that next_in_plan() named. Every local rank must have submitted it,
  // as the plan has it and before any other of them. The operation does not name its tensors, which
  // were not told by on_local_ready(); if it is cancelled, they are.
  virtual OrderedOperation take_next_in_plan(uint32_t /*batch*/) { return {}; }
  // Makes this node follow the plan no longer, and returns how far it is. On the coordinator's node
  // the unlocking begins. The generation returned is 0 if there is nothing to tell others.
  virtual Frozen withdraw() { return {}; }

 protected:
  TicksUs now_us_ = 0;
  TicksMs now_ = 0;  // The same time.
};

// Returns the text of why a tensor can never complete once a rank that it needs has said goodbye.
std::string describe_left(const std::string& tensor, Rank rank);

// Two helpers for the modes: the error for a message of another mode, which ends the epoch; and
// sending a message to all other nodes.
Status unexpected_message(const Layout& layout, NodeIndex from, Coordination mode);
void send_to_members(const Layout& layout, NodeIndex self, const AgreementOptions& options,
                     const AgreementMessage& message, AgreementOutput& output);

// Makes the agreement for options.mode. Layout and submissions must outlive it.
std::unique_ptr<Agreement> make_agreement(const Layout& layout, NodeIndex self,
                                          const SubmissionTable& submissions,
                                          const AgreementOptions& options);

}  // namespace rueda::core
