// The coordinator's part of the `locked` mode: what is decreed, when a plan comes into force and
// when it is given up, and which plans autotuning tries.

#include <algorithm>
#include <utility>

#include "daemon/core/model/mutants.h"
#include "daemon/core/modes/locked_agreement.h"
#include "daemon/core/plan/declared_plan.h"

namespace rueda::core {
namespace {

// After a lock that did not hold the next one waits for twice as many steps, but no more than this.
constexpr int kMostSteps = 1024;
// For a place between two rounds.
constexpr uint64_t kRoundsToWait = 2;

}  // namespace

// --- Decrees and locks ---------------------------------------------------------------------------

void Locked::call() {
  Decree decree;
  std::vector<OrderedOperation> called;
  if (!exchange_.call(generation_, called, decree)) return;
  for (const OrderedOperation& operation : called) {
    forget_ordered(operation);
    if (!operation.error.is_ok() || operation.tensors.front() != kPlanName) continue;
    // Another collective may have that name, and where we have no rank it is one.
    const PendingTensor* tensor = submissions_.find(kPlanName);
    const DescriptorPtr descriptor = tensor ? tensor->first().descriptor : nullptr;
    if (descriptor && descriptor->kind == CollectiveKind::kDeclarePlan) declared_ = descriptor;
  }
  std::move(called.begin(), called.end(), std::back_inserter(said_.ordered));
  if (!declared_) return say(decree);
  // Who hears that the plan is declared follows it already: so the first step sends nothing.
  Decree lockable;
  const auto rest = std::stable_partition(
      decree.operations.begin(), decree.operations.end(),
      [](const OrderedOperation& item) { return track_of(item.seq) == Track::kLockable; });
  lockable.operations.assign(decree.operations.begin(), rest);
  decree.operations.erase(decree.operations.begin(), rest);
  if (!lockable.operations.empty()) say(lockable);
  lock_if_declared();
  say(decree);
}

bool Locked::may_lock() {
  // A mismatch is found among reports, and a lock would forget them. Nor does a lock begin within a
  // group.
  return !is_locked() && !anybody_left_ && !exchange_.caller()->has_anybody_joined() &&
         !exchange_.caller()->has_unfinished_mismatch() && !exchange_.caller()->is_within_group();
}

void Locked::lock_if_declared() {
  if (!declared_) return;
  if (is_locked()) freeze(Because::kOther, "another plan is declared");
  if (!may_lock()) return;
  Plan plan = exchange_.schedule()->plan_ahead(step_of(std::exchange(declared_, nullptr)->plan));
  lock(std::move(plan), kPlanStart, PlanSource::kDeclared);
}

void Locked::lock_if_replayed() {
  if (!replayed_ || !may_lock()) return;
  const std::shared_ptr<const Plan> plan = std::exchange(replayed_, nullptr);
  exchange_.schedule()->follow(*plan);
  lock(*plan, kPlanStart, PlanSource::kRecorded);
}

// Where a step ends. If what is decreed is not the plan's any more, the next one is learned.
void Locked::lock_if_tuned() {
  if (!is_to_be_remade_ || !may_lock()) return;
  if (std::optional<Schedule::Proposal> proposal = exchange_.schedule()->remake_plan()) {
    lock(std::move(proposal->plan), proposal->at, PlanSource::kSeen);
  }
}

void Locked::lock_if_repeated() {
  Schedule& schedule = *exchange_.schedule();
  if (!schedule.has_repeated(steps_to_lock_) || !may_lock()) return;
  Schedule::Proposal proposal = schedule.make_plan(steps_to_lock_);
  lock(std::move(proposal.plan), proposal.at, PlanSource::kSeen);
}

void Locked::lock(Plan plan, PlanPlace at, PlanSource source) {
  Lock lock;
  lock.generation = generation_ + 1;
  lock.first = Seq{exchange_.last(Track::kLockable).value + 1};
  if (RUEDA_MUTANT(kLockAppliedOneSeqEarly)) --lock.first.value;
  lock.plan = std::move(plan);
  if (tuner_) lock.plan.tuning = tuner_->setting().data;
  lock.at = at;
  lock.source = source;
  is_to_be_remade_ = false;
  retunes_since_.reset();
  rounds_ = 0;
  if (tuner_) tuner_->on_locked();
  if (options_.records_plans && !is_tuning()) said_.recorded = lock.plan;
  say(lock);
  follow(std::move(lock));
}

// --- Unlock (L7) ---------------------------------------------------------------------------------

void Locked::freeze(Because because, const std::string& reason) {
  if (std::exchange(freezing_, true)) return;
  because_ = because;
  frozen_ = true;
  why_frozen_ = reason;
  if (layout_.is_member(self_)) frozen_nodes_.add(self_, how_far());
  say(Freeze{generation_, reason});
  resume_if_all_frozen();
}

Status Locked::on_unlock_request(NodeIndex from, const UnlockRequest& request) {
  if (!exchange_.is_coordinator()) return unexpected_message(layout_, from, mode());
  if (request.generation == generation_ && is_locked()) {
    freeze(Because::kDeviation, describe_node(from) + ": " + request.reason);
  }
  return Status::ok();
}

Status Locked::on_frozen(NodeIndex from, const Frozen& frozen) {
  if (!exchange_.is_coordinator()) return unexpected_message(layout_, from, mode());
  // A node that withdrew may answer again when it is asked.
  if (!is_locked() || frozen.generation != generation_) return Status::ok();
  if (Status status = check_frozen(from, frozen); !status.is_ok()) return status;
  frozen_nodes_.add(from, frozen);
  freeze(Because::kOther, "a rank on " + describe_node(from) + " leaves the job");
  resume_if_all_frozen();
  return Status::ok();
}

Status Locked::check_frozen(NodeIndex from, const Frozen& frozen) const {
  // What is complete here was launched by all.
  const bool is_possible = track_of(frozen.launched) == Track::kLockable &&
                           frozen.launched.value + 1 >= lock_first_.value &&
                           frozen.launched >= last_ended_;
  const size_t batches = follower_->plan().batches.size();
  const bool is_in_plan =
      std::all_of(frozen.walked.begin(), frozen.walked.end(),
                  [&](uint32_t batch) { return batch < batches; }) &&
      (!is_possible || frozen.walked.size() <= frozen.launched.value + 1 - lock_first_.value);
  if (is_possible && is_in_plan) return Status::ok();
  return Status(Code::kInternal,
                describe_node(from) + " says that it has launched up to operation " +
                    std::to_string(number_of(frozen.launched)) + ", which cannot be");
}

// It answers no more. If its goodbye did not say how far it was, it had not seen the plan.
void Locked::on_node_gone(NodeIndex node) {
  if (!exchange_.is_coordinator() || !is_locked()) return;
  frozen_nodes_.add(node, Frozen{generation_, Seq{lock_first_.value - 1}, {}});
  freeze(Because::kOther, "the ranks on " + describe_node(node) + " have left the job");
  resume_if_all_frozen();
}

void Locked::say(const AgreementMessage& message) {
  send_to_members(layout_, self_, options_, message, said_);
}

void Locked::resume_if_all_frozen() {
  if (!freezing_ || frozen_nodes_.count() != layout_.members().size()) return;
  const Resume all{generation_ + 1, frozen_nodes_.first_not_common(lock_first_),
                   source_ != PlanSource::kSeen && because_ == Because::kDeviation};
  // A lock that is undone at once costs more than it saves.
  if (because_ == Because::kTuning) {
    is_to_be_remade_ = true;
  } else if (follower_->rounds() >= kRoundsOfALockThatHeld || source_ != PlanSource::kSeen) {
    steps_to_lock_ = options_.lock_after_steps;
  } else {
    steps_to_lock_ = std::max(options_.lock_after_steps, std::min(steps_to_lock_ * 2, kMostSteps));
  }
  frozen_nodes_.clear();
  freezing_ = false;
  say(all);
  resume(all);
}

// The steps of the plan that were not undone are part of the schedule.
void Locked::tell_schedule(Seq first) {
  if (!exchange_.is_coordinator()) return;
  const Plan& plan = follower_->plan();
  Schedule::Unlocked unlocked;
  for (const uint32_t batch : plan.path_to(follower_->place_before(first))) {
    unlocked.round.push_back(plan.batches[batch].tensors);
  }
  unlocked.is_within_group = exchange_.caller()->is_within_group();
  unlocked.ended = follower_->ended();
  unlocked.is_to_be_remade = is_to_be_remade_;
  exchange_.schedule()->on_unlocked(unlocked, now_);
  if (tuner_ && !is_to_be_remade_) tuner_->on_lost();
}

// --- Autotuning ----------------------------------------------------------------------------------

void Locked::prepare_plans() {
  replayed_ = options_.replayed;
  if (options_.tuning.is_enabled && !replayed_) tuner_.emplace(options_.tuning);
}

// A round is measured from the launch of its first batch to that of the next one's: all nodes keep
// this pace.
void Locked::note_launch() {
  if (!tuner_ || follower_->rounds() == rounds_) return;
  rounds_ = follower_->rounds();
  if (retunes_since_) return;  // the plan in force is not what is measured next
  const bool was_tuning = is_tuning();
  if (tuner_->on_round(now_)) {
    retunes_since_ = rounds_;
  } else if (was_tuning && !is_tuning() && options_.records_plans) {
    said_.recorded = follower_->plan();
  }
}

// Where a round has just ended there is least to be undone; a program that never stops there does
// not put it off for ever.
void Locked::try_next_setting() {
  if (!retunes_since_ || !is_locked() || freezing_) return;
  const PlanPlace at = follower_->at();
  const bool is_between_rounds =
      at != kPlanStart && follower_->plan().batches[static_cast<size_t>(at)].ends;
  if (!is_between_rounds && rounds_ < *retunes_since_ + kRoundsToWait) return;
  freeze(Because::kTuning,
         tuner_->is_settled() ? "autotuning has settled" : "autotuning tries another setting");
}

void Locked::lock_where_possible() {
  if (tuner_) exchange_.schedule()->set_fusion_threshold(tuner_->setting().fusion_bytes);
  try_next_setting();
  call();
  lock_if_replayed();
  lock_if_declared();
  lock_if_tuned();
  lock_if_repeated();
  if (tuner_) said_.tuning = tuner_->take_lines();
}

}  // namespace rueda::core
