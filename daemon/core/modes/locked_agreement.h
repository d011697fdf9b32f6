// The class of the `locked` mode; other rooms use locked.h. It has more than 40 methods because it
// has both parts of one protocol, the node's and the coordinator's, whose every message changes the
// same generation: what could be apart from that is in ReadyPool, PlanFollower, UnlockTally and
// Retuning.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "daemon/core/modes/negotiation.h"
#include "daemon/core/modes/ready_pool.h"
#include "daemon/core/order/agreement.h"
#include "daemon/core/plan/plan_follower.h"
#include "daemon/core/plan/retuning.h"
#include "daemon/core/plan/unlock_tally.h"

namespace rueda::core {

class Locked final : public Agreement {
 public:
  Locked(const Layout& layout, NodeIndex self, const SubmissionTable& submissions,
         const AgreementOptions& options)
      : layout_(layout),
        self_(self),
        options_(options),
        submissions_(submissions),
        negotiation_(layout, self, submissions, options,
                     {.cache = true, .schedule = true, .combines = true}),
        steps_to_lock_(options.lock_after_steps),
        replayed_(negotiation_.is_coordinator() ? options.replayed : nullptr),
        retuning_(negotiation_.is_coordinator() && !replayed_ ? options.tuning : TuningOptions{}) {}

  Coordination mode() const override { return Coordination::kLocked; }
  bool is_locked() const override { return generation_ % 2 == 1; }
  const Plan* plan() const override { return follower_ ? &follower_->plan() : nullptr; }

  void on_local_ready(ReadyTensor tensor) override;
  Status on_message(NodeIndex from, const AgreementMessage& message) override;
  void on_rank_left(Rank rank) override {
    anybody_left_ = true;
    negotiation_.on_rank_left(rank);
  }
  void on_node_gone(NodeIndex node) override;
  void on_operation_ended(Seq seq) override;
  Status on_diverged(Seq seq, uint32_t generation, NodeIndex peer) override;
  void end_turn(AgreementOutput& output) override;
  std::optional<TicksUs> wakes_at_us() const override;
  Frozen withdraw() override;
  std::optional<NextInPlan> next_in_plan() const override;
  OrderedOperation take_next_in_plan(uint32_t batch) override;

 private:
  // --- Messages
  Status on_lock(NodeIndex from, const Lock& lock);
  Status on_unlock_request(NodeIndex from, const UnlockRequest& request);
  Status on_freeze(NodeIndex from, const Freeze& freeze);
  Status on_frozen(NodeIndex from, const Frozen& frozen);
  Status on_resume(NodeIndex from, const Resume& resume);
  Status from_coordinator(NodeIndex from) const;

  // --- Both parts
  void follow(Lock lock);
  void begin_generation();
  void hand_to_plan(const ReadyTensor& tensor);
  void hold_against_plan(const std::string& name);
  void take_ready_batches();
  void look_for_deviation();
  void deviate(const std::string& reason);
  void ask_to_unlock();
  Frozen how_far() const;
  std::string describe_node(NodeIndex node) const { return "node " + layout_.node(node).node_id; }
  void resume(const Resume& resume);
  TicksMs patience_ms() const;
  // Returns whether a deviation means that the plan was wrong, which people are told.
  bool is_given_up() const;
  std::string describe_abandoned() const;

  // --- The coordinator's part
  void lock_where_possible();
  void call();
  bool may_lock();
  void lock_if_declared();
  void lock_the_next_plan();
  void lock(Plan plan, PlanPlace at, PlanSource source);
  enum class Because { kDeviation, kTuning, kOther };
  void freeze(Because because, const std::string& reason);
  Status check_frozen(NodeIndex from, const Frozen& frozen) const;
  void resume_if_all_frozen();
  void tell_schedule(Seq first);
  void note_launch();
  void try_next_setting();
  void say(const AgreementMessage& message);  // Sends it to all members.

  const Layout& layout_;
  const NodeIndex self_;
  const AgreementOptions options_;
  const SubmissionTable& submissions_;
  Negotiation negotiation_;

  uint32_t generation_ = 0;  // While it is odd, a plan is in force.
  ReadyPool pool_;
  bool anybody_left_ = false;
  AgreementOutput said_;  // What end_turn() hands out next.

  // These are about the plan in force.
  std::optional<PlanFollower> follower_;
  PlanSource source_ = PlanSource::kSeen;  // The origin of the plan.
  bool frozen_ = false;
  std::string why_frozen_;
  std::string deviation_;  // Why this node cannot follow the plan; empty if it can.
  bool asked_to_unlock_ = false;
  std::optional<TicksMs> held_up_since_;
  size_t held_up_tensors_ = 0;  // So many were ready then.

  // On the coordinator, while it freezes the members: how far each of them is.
  UnlockTally frozen_nodes_;
  bool freezing_ = false;
  Because because_ = Because::kOther;  // The reason for the freeze.
  Seq lock_first_;
  Seq last_ended_;  // The highest lockable operation that has ended on this node.
  int steps_to_lock_;
  DescriptorPtr declared_;  // A declared plan that comes into force as soon as may be, or null.
  std::shared_ptr<const Plan> replayed_;  // A recorded plan that does so, or null.
  Retuning retuning_;
  bool is_to_be_remade_ = false;  // The plan is made once more, with the tuner's setting.
};

}  // namespace rueda::core
