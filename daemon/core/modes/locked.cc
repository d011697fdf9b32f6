#include "daemon/core/modes/locked.h"

#include <algorithm>
#include <utility>

#include "daemon/core/model/mutants.h"
#include "daemon/core/modes/locked_agreement.h"
#include "daemon/core/plan/declared_plan.h"

namespace rueda::core {
namespace {

// After a lock that did not hold, the next one waits for twice as many steps, but for no more than
// this.
constexpr int kMaxSteps = 1024;
constexpr TicksMs kPatienceOfDeclared = 25;

const char* describe(PlanSource source) {
  switch (source) {
    case PlanSource::kDeclared: return "locked as declared";
    case PlanSource::kRecorded: return "locked as recorded";
    case PlanSource::kSeen: break;
  }
  return "locked";
}

}  // namespace

// --- Ready tensors and the plan ------------------------------------------------------------------

void Locked::on_local_ready(ReadyTensor tensor) {
  if (track_of(*tensor.descriptor) == Track::kDecreed) {
    pool_.add_decreed(tensor.descriptor->name);
    if (is_locked()) hold_against_plan(tensor.descriptor->name);
    negotiation_.report(std::move(tensor), now_);
    return;
  }
  const ReadyTensor& added = pool_.add(std::move(tensor));
  if (is_locked()) {
    hand_to_plan(added);
  } else {
    negotiation_.report(added, now_);
  }
}

void Locked::hand_to_plan(const ReadyTensor& tensor) {
  if (const std::string reason = follower_->on_ready(tensor); !reason.empty()) deviate(reason);
}

// For this node the tensor is always decreed, so it is no collective of the plan, as it is for the
// others.
void Locked::hold_against_plan(const std::string& name) {
  if (follower_->has(name)) {
    deviate("tensor \"" + name + "\" is a broadcast, or for NCCL, and not in the plan");
  }
}

void Locked::deviate(const std::string& reason) {
  if (deviation_.empty()) deviation_ = reason;
}

void Locked::ask_to_unlock() {
  if (deviation_.empty() || frozen_ || std::exchange(asked_to_unlock_, true)) return;
  if (negotiation_.is_coordinator()) {
    freeze(Because::kDeviation, describe_node(self_) + ": " + deviation_);
  } else {
    said_.sends.emplace_back(layout_.coordinator(), UnlockRequest{generation_, deviation_});
  }
}

void Locked::on_operation_ended(Seq seq) {
  negotiation_.on_operation_ended(seq);
  pool_.forget_bound(seq);
  if (track_of(seq) != Track::kLockable) return;
  last_ended_ = std::max(last_ended_, seq);
  if (follower_) follower_->forget_before(last_ended_);
}

// Nobody can complete the operation, nor what comes after it, until the lock is undone (L9).
Status Locked::on_diverged(Seq seq, uint32_t generation, NodeIndex peer) {
  // The lock is undone already.
  if (!is_locked() || generation != generation_) return Status::ok();
  if (!follower_->has_alternatives()) {
    return Status(Code::kMismatch,
                  describe_node(peer) + " means another batch by operation " +
                      std::to_string(number_of(seq)) + " than " + describe_node(self_),
                  Origin{layout_.node(peer).node_id, {}});
  }
  deviate("operation " + std::to_string(number_of(seq)) +
          " is another alternative of the plan on " + describe_node(peer));
  return Status::ok();
}

void Locked::end_turn(AgreementOutput& output) {
  if (is_locked() && !frozen_) {
    take_ready_batches();
    // The submissions that this turn has ordered are marked so only before the next turn, so the
    // look for a deviation waits until then.
    if (said_.ordered.empty()) look_for_deviation();
    ask_to_unlock();
  }
  if (negotiation_.is_coordinator()) {
    lock_where_possible();
  } else {
    for (Ready& ready : negotiation_.take_ready(generation_)) {
      said_.sends.emplace_back(negotiation_.reports_to(), std::move(ready));
    }
  }
  output = std::exchange(said_, {});
}

void Locked::take_ready_batches() {
  while (std::optional<OrderedOperation> next = follower_->take_next()) {
    held_up_since_.reset();  // The patience counts for one place in the plan.
    next->generation = generation_;
    note_launch();
    pool_.bind(next->seq, next->tensors);
    said_.ordered.push_back(std::move(*next));
  }
}

std::optional<NextInPlan> Locked::next_in_plan() const {
  if (!is_locked() || frozen_ || !deviation_.empty() || !pool_.is_empty()) return std::nullopt;
  return NextInPlan{&follower_->plan(), generation_, follower_->at(), follower_->next_batches()};
}

OrderedOperation Locked::take_next_in_plan(uint32_t batch) {
  OrderedOperation next = follower_->advance(batch);
  next.generation = generation_;
  note_launch();
  return next;
}

TicksMs Locked::patience_ms() const {
  return options_.patience_ms * (source_ == PlanSource::kDeclared ? kPatienceOfDeclared : 1);
}

// A deviation is found on the node where it happens, before anybody can hang for it (L6).
void Locked::look_for_deviation() {
  if (!deviation_.empty()) return;
  if (const std::string reason = follower_->find_deviation(submissions_); !reason.empty()) {
    deviate(reason);
    return;
  }
  if (!follower_->is_held_up()) {
    held_up_since_.reset();
    return;
  }
  const size_t ready = follower_->ready_tensors();
  if (!held_up_since_ || held_up_tensors_ != ready) {
    held_up_since_ = now_;
    held_up_tensors_ = ready;
  }
  if (now_ - *held_up_since_ < patience_ms()) return;
  deviate(follower_->describe_next() + ", is not ready after " + std::to_string(patience_ms()) +
          " ms, and others wait for it");
}

std::optional<TicksUs> Locked::wakes_at_us() const {
  if (!held_up_since_ || asked_to_unlock_ || frozen_) return std::nullopt;
  return to_us(*held_up_since_ + patience_ms());
}

Frozen Locked::withdraw() {
  if (!is_locked()) return {};
  if (negotiation_.is_coordinator()) {
    freeze(Because::kOther, "a rank on " + describe_node(self_) + " leaves the job");
    return {};
  }
  frozen_ = true;
  return how_far();
}

Frozen Locked::how_far() const {
  Frozen frozen{generation_, Seq{follower_->next().value - 1}, {}};
  if (follower_->has_alternatives()) frozen.walked = follower_->walked();
  return frozen;
}

void Locked::follow(Lock lock) {
  generation_ = lock.generation;
  source_ = lock.source;
  follower_.emplace(std::move(lock.plan), lock.first, lock.at);
  lock_first_ = lock.first;
  begin_generation();
  const Plan& plan = follower_->plan();
  const auto ends = std::count_if(plan.batches.begin(), plan.batches.end(),
                                  [](const PlanBatch& batch) { return batch.ends; });
  std::string note = std::string(describe(source_)) + " from operation " +
                     std::to_string(number_of(lock.first)) +
                     " on: " + std::to_string(plan.tensors()) + " tensors a step, in " +
                     std::to_string(plan.batches.size()) + " batches";
  if (ends > 1) note += ", with " + std::to_string(ends) + " alternatives";
  said_.notes.push_back(std::move(note));
  // Tensors that have been reported and not decreed are the plan's now (L4).
  negotiation_.suspend_lockable();
  for (const ReadyTensor* tensor : pool_.by_name()) hand_to_plan(*tensor);
  for (const std::string& name : pool_.decreed()) hold_against_plan(name);
}

void Locked::begin_generation() {
  frozen_ = asked_to_unlock_ = false;
  deviation_.clear();
  held_up_since_.reset();
}

Status Locked::from_coordinator(NodeIndex from) const {
  if (from == layout_.coordinator() && !negotiation_.is_coordinator()) return Status::ok();
  return Status(Code::kInternal, "node " + layout_.node(from).node_id +
                                     " sent a lock's message and does not coordinate");
}

Status Locked::on_lock(NodeIndex from, const Lock& lock) {
  if (Status status = from_coordinator(from); !status.is_ok()) return status;
  const auto broken = [&](const std::string& what) {
    return Status(Code::kInternal,
                  "the coordinator on node " + layout_.node(from).node_id + " locked " + what);
  };
  if (is_locked() || lock.generation != generation_ + 1) {
    return broken("generation " + std::to_string(lock.generation) + " in generation " +
                  std::to_string(generation_));
  }
  const Seq expected{negotiation_.last(Track::kLockable).value + 1};
  if (lock.first != expected && !RUEDA_MUTANT(kLockAppliedOneSeqEarly)) {
    return broken("from operation " + std::to_string(number_of(lock.first)) + " on, and " +
                  std::to_string(number_of(expected)) + " is next");
  }
  const std::string flaw = find_flaw(lock.plan, options_.process_set, layout_);
  if (!flaw.empty()) return broken(flaw);
  if (lock.at < kPlanStart || lock.at >= static_cast<PlanPlace>(lock.plan.batches.size())) {
    return broken("a plan at batch " + std::to_string(lock.at));
  }
  follow(lock);
  return Status::ok();
}

Status Locked::on_freeze(NodeIndex from, const Freeze& freeze) {
  if (Status status = from_coordinator(from); !status.is_ok()) return status;
  if (!is_locked() || freeze.generation != generation_) {
    return Status(Code::kInternal, "the coordinator on node " + layout_.node(from).node_id +
                                       " froze generation " + std::to_string(freeze.generation) +
                                       " in generation " + std::to_string(generation_));
  }
  frozen_ = true;
  why_frozen_ = freeze.reason;
  said_.sends.emplace_back(from, how_far());
  return Status::ok();
}

Status Locked::on_resume(NodeIndex from, const Resume& resumed) {
  if (Status status = from_coordinator(from); !status.is_ok()) return status;
  if (!is_locked() || resumed.generation != generation_ + 1 || !frozen_) {
    return Status(Code::kInternal, "the coordinator on node " + layout_.node(from).node_id +
                                       " resumed with generation " +
                                       std::to_string(resumed.generation) + " in generation " +
                                       std::to_string(generation_));
  }
  if (resumed.first < lock_first_ || resumed.first > follower_->next() ||
      resumed.first <= last_ended_) {
    return Status(Code::kInternal,
                  "the coordinator on " + describe_node(from) + " resumes at operation " +
                      std::to_string(number_of(resumed.first)) + ", which cannot be");
  }
  resume(resumed);
  return Status::ok();
}

void Locked::resume(const Resume& resumed) {
  generation_ = resumed.generation;
  negotiation_.resume_lockable(resumed.first, follower_->begun_before(resumed.first));
  tell_schedule(resumed.first);
  pool_.unbind_from(resumed.first);
  std::erase_if(said_.ordered, [&](const OrderedOperation& operation) {
    return track_of(operation.seq) == Track::kLockable && operation.seq >= resumed.first;
  });
  said_.cancels.push_back({resumed.first, generation_});
  said_.notes.push_back("unlocked before operation " + std::to_string(number_of(resumed.first)) +
                        ": " + why_frozen_);
  if (resumed.abandons_plan) said_.abandoned_plan = describe_abandoned();
  follower_.reset();
  begin_generation();
  for (const ReadyTensor* tensor : pool_.by_name()) negotiation_.report(*tensor, now_);
}

// A declared plan that has led through a step was right, and may be followed by something else as
// any other may. A recorded one is to be the same each time.
bool Locked::is_given_up() const {
  return source_ == PlanSource::kRecorded ||
         (source_ == PlanSource::kDeclared && !follower_->has_led_through_a_round());
}

std::string Locked::describe_abandoned() const {
  const bool is_declared = source_ == PlanSource::kDeclared;
  return std::string("the ") + (is_declared ? "declared" : "recorded") +
         " plan is abandoned after " + std::to_string(follower_->rounds()) +
         " steps, because ranks did something else (" + why_frozen_ +
         "); the order is agreed on by messages until it repeats. " +
         (is_declared
              ? "Declare all tensors of a step, each after those that it is computed from, in "
                "the order in which they are ready"
              : "Record the plan anew, with the program as it is now");
}

// --- Decrees and locks ---------------------------------------------------------------------------

void Locked::call() {
  Decree decree;
  std::vector<OrderedOperation> called;
  if (!negotiation_.call(generation_, called, decree)) return;
  for (const OrderedOperation& operation : called) {
    pool_.forget(operation);
    if (!operation.error.is_ok() || operation.tensors.front() != kPlanName) continue;
    // Another kind of collective may have that name, and where this node has no rank, the tensor is
    // no declaration that it could follow.
    const PendingTensor* tensor = submissions_.find(kPlanName);
    const DescriptorPtr descriptor = tensor ? tensor->first().descriptor : nullptr;
    if (!descriptor || descriptor->kind != CollectiveKind::kDeclarePlan) continue;
    if (descriptor->plan.empty()) continue;  // All ranks say that they have none.
    if (is_locked() && source_ == PlanSource::kRecorded) {
      said_.notes.push_back("a plan was declared, and the recorded one stays in force");
    } else {
      declared_ = descriptor;
    }
  }
  std::move(called.begin(), called.end(), std::back_inserter(said_.ordered));
  if (!declared_) return say(decree);
  // A member must follow the plan before it hears that the declaration is done, so that the first
  // step sends nothing. So the lockable operations go before the lock, and the others after it.
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
  // A lock would forget the reports among which a mismatch is found. Nor may it begin within a
  // group.
  return !is_locked() && !anybody_left_ && !negotiation_.coordinator()->has_anybody_joined() &&
         !negotiation_.coordinator()->has_unfinished_mismatch() &&
         !negotiation_.coordinator()->is_within_group();
}

void Locked::lock_if_declared() {
  if (!declared_) return;
  if (is_locked()) freeze(Because::kOther, "another plan is declared");
  if (!may_lock()) return;
  Plan plan =
      negotiation_.step_detector()->plan_ahead(step_of(std::exchange(declared_, nullptr)->plan));
  lock(std::move(plan), kPlanStart, PlanSource::kDeclared);
}

// A recorded plan goes before a declared one, and both go before what the program is seen to do.
void Locked::lock_the_next_plan() {
  if (replayed_ && may_lock()) {
    const std::shared_ptr<const Plan> plan = std::exchange(replayed_, nullptr);
    negotiation_.step_detector()->follow(*plan);
    lock(*plan, kPlanStart, PlanSource::kRecorded);
  }
  lock_if_declared();
  // A plan is made once more only where a step ends. If what is decreed is not the plan's any more,
  // the next plan is learned.
  std::optional<StepDetector::Proposal> proposal;
  if (is_to_be_remade_ && may_lock()) proposal = negotiation_.step_detector()->remake_plan();
  if (!proposal && negotiation_.step_detector()->has_repeated(steps_to_lock_) && may_lock()) {
    proposal = negotiation_.step_detector()->make_plan(steps_to_lock_);
  }
  if (proposal) lock(std::move(proposal->plan), proposal->at, PlanSource::kSeen);
}

void Locked::lock(Plan plan, PlanPlace at, PlanSource source) {
  Lock lock;
  lock.generation = generation_ + 1;
  lock.first = Seq{negotiation_.last(Track::kLockable).value + 1};
  if (RUEDA_MUTANT(kLockAppliedOneSeqEarly)) --lock.first.value;
  lock.plan = std::move(plan);
  if (retuning_.is_enabled()) lock.plan.tuning = retuning_.setting().data;
  lock.at = at;
  lock.source = source;
  is_to_be_remade_ = false;
  retuning_.on_locked();
  if (options_.records_plans && !retuning_.is_tuning()) said_.recorded = lock.plan;
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
  if (!negotiation_.is_coordinator()) return unexpected_message(layout_, from, mode());
  if (request.generation == generation_ && is_locked()) {
    freeze(Because::kDeviation, describe_node(from) + ": " + request.reason);
  }
  return Status::ok();
}

Status Locked::on_frozen(NodeIndex from, const Frozen& frozen) {
  if (!negotiation_.is_coordinator()) return unexpected_message(layout_, from, mode());
  // A node that withdrew may answer again when it is asked, and its second answer may come late.
  if (!is_locked() || frozen.generation != generation_) return Status::ok();
  if (Status status = check_frozen(from, frozen); !status.is_ok()) return status;
  frozen_nodes_.add(from, frozen);
  freeze(Because::kOther, "a rank on " + describe_node(from) + " leaves the job");
  resume_if_all_frozen();
  return Status::ok();
}

Status Locked::check_frozen(NodeIndex from, const Frozen& frozen) const {
  // An operation that is complete here was launched by all, so no node can be behind it.
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

// The node answers no more. If its goodbye did not say how far it was, it had not seen the plan.
void Locked::on_node_gone(NodeIndex node) {
  if (!negotiation_.is_coordinator() || !is_locked()) return;
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
                   because_ == Because::kDeviation && is_given_up()};
  // A lock that is undone at once costs more than it saves, so the next one waits for more steps.
  if (because_ == Because::kTuning) {
    is_to_be_remade_ = true;
  } else if (follower_->rounds() >= kRoundsOfALockThatHeld || source_ != PlanSource::kSeen) {
    steps_to_lock_ = options_.lock_after_steps;
  } else {
    steps_to_lock_ = std::max(options_.lock_after_steps, std::min(steps_to_lock_ * 2, kMaxSteps));
  }
  frozen_nodes_.clear();
  freezing_ = false;
  say(all);
  resume(all);
}

// The steps of the plan that were not undone are part of the schedule, and the step detector is
// told of them.
void Locked::tell_schedule(Seq first) {
  if (!negotiation_.is_coordinator()) return;
  const Plan& plan = follower_->plan();
  StepDetector::Unlocked unlocked;
  for (const uint32_t batch : plan.path_to(follower_->place_before(first))) {
    unlocked.round.push_back(plan.batches[batch].tensors);
  }
  unlocked.is_within_group = negotiation_.coordinator()->is_within_group();
  unlocked.ended = follower_->ended();
  unlocked.is_to_be_remade = is_to_be_remade_;
  negotiation_.step_detector()->on_unlocked(unlocked, now_);
  if (!is_to_be_remade_) retuning_.on_lost();
}

// --- Autotuning ----------------------------------------------------------------------------------

void Locked::note_launch() {
  if (!retuning_.is_enabled()) return;
  const bool has_settled = retuning_.on_launch(follower_->rounds(), now_);
  if (has_settled && options_.records_plans) said_.recorded = follower_->plan();
}

void Locked::try_next_setting() {
  if (!is_locked() || freezing_) return;
  const std::optional<std::string> reason = retuning_.reason_to_unlock(*follower_);
  if (reason) freeze(Because::kTuning, *reason);
}

void Locked::lock_where_possible() {
  if (retuning_.is_enabled()) {
    negotiation_.step_detector()->set_fusion_threshold(retuning_.setting().fusion_bytes);
  }
  try_next_setting();
  call();
  lock_the_next_plan();
  said_.tuning = retuning_.take_lines();
}

// --- Messages ------------------------------------------------------------------------------------

Status Locked::on_message(NodeIndex from, const AgreementMessage& message) {
  struct Visitor {
    Locked& to;
    NodeIndex from;
    Status operator()(const Ready& m) {
      return to.negotiation_.on_ready(from, m, to.generation_, to.now_);
    }
    Status operator()(const Decree& m) {
      for (const OrderedOperation& operation : m.operations) {
        if (to.is_locked() && track_of(operation.seq) == Track::kLockable) {
          return unexpected_message(to.layout_, from, to.mode());
        }
      }
      const size_t before = to.said_.ordered.size();
      const Status status = to.negotiation_.on_decree(from, m, to.said_.ordered);
      for (size_t i = before; i < to.said_.ordered.size(); ++i)
        to.pool_.forget(to.said_.ordered[i]);
      return status;
    }
    Status operator()(const Lock& m) { return to.on_lock(from, m); }
    Status operator()(const UnlockRequest& m) { return to.on_unlock_request(from, m); }
    Status operator()(const Freeze& m) { return to.on_freeze(from, m); }
    Status operator()(const Frozen& m) { return to.on_frozen(from, m); }
    Status operator()(const Resume& m) { return to.on_resume(from, m); }
    Status operator()(const Ended&) { return unexpected_message(to.layout_, from, to.mode()); }
  };
  return std::visit(Visitor{*this, from}, message);
}

std::unique_ptr<Agreement> make_locked_agreement(const Layout& layout, NodeIndex self,
                                                 const SubmissionTable& submissions,
                                                 const AgreementOptions& options) {
  return std::make_unique<Locked>(layout, self, submissions, options);
}

}  // namespace rueda::core
