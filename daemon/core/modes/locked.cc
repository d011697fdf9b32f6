#include "daemon/core/modes/locked.h"

#include <algorithm>
#include <utility>

#include "daemon/core/model/mutants.h"
#include "daemon/core/modes/locked_agreement.h"

namespace rueda::core {
namespace {

const char* describe(PlanSource source) {
  switch (source) {
    case PlanSource::kDeclared: return "locked as declared";
    case PlanSource::kRecorded: return "locked as recorded";
    case PlanSource::kSeen: break;
  }
  return "locked";
}

}  // namespace

void Locked::on_local_ready(ReadyTensor tensor) {
  if (track_of(*tensor.descriptor) == Track::kDecreed) {
    const std::string& name = *decreed_waiting_.insert(tensor.descriptor->name).first;
    if (is_locked()) hold_against_plan(name);
    exchange_.report(std::move(tensor), now_);
    return;
  }
  const std::string_view name = tensor.descriptor->name;
  const auto it = pool_.emplace(name, std::move(tensor)).first;
  if (is_locked()) {
    hand_to_plan(it->second);
  } else {
    exchange_.report(it->second, now_);
  }
}

void Locked::hand_to_plan(const ReadyTensor& tensor) {
  if (const std::string reason = follower_->on_ready(tensor); !reason.empty()) deviate(reason);
}

// What is a collective of the plan for the others is none for this node.
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
  if (exchange_.is_coordinator()) {
    freeze(Because::kDeviation, describe_node(self_) + ": " + deviation_);
  } else {
    said_.sends.emplace_back(layout_.coordinator(), UnlockRequest{generation_, deviation_});
  }
}

void Locked::on_operation_ended(Seq seq) {
  exchange_.on_operation_ended(seq);
  bound_.erase(seq);
  if (track_of(seq) != Track::kLockable) return;
  last_ended_ = std::max(last_ended_, seq);
  if (follower_) follower_->forget_before(last_ended_);
}

// L9: nobody can complete it, nor what comes after it, until the lock is undone.
Status Locked::on_diverged(Seq seq, uint32_t generation, NodeIndex peer) {
  if (!is_locked() || generation != generation_) return Status::ok();  // it is undone already
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
    // What was ordered in this turn is marked so before the next look.
    if (said_.ordered.empty()) look_for_deviation();
    ask_to_unlock();
  }
  if (exchange_.is_coordinator()) {
    lock_where_possible();
  } else {
    for (Ready& ready : exchange_.take_ready(generation_)) {
      said_.sends.emplace_back(exchange_.reports_to(), std::move(ready));
    }
  }
  output = std::exchange(said_, {});
}

void Locked::take_ready_batches() {
  while (std::optional<OrderedOperation> next = follower_->take_next()) {
    held_up_since_.reset();  // patience is with one place in the plan
    next->generation = generation_;
    note_launch();
    std::vector<Pool::node_type>& bound = bound_[next->seq];
    bound.reserve(next->tensors.size());
    for (const std::string& name : next->tensors) bound.push_back(pool_.extract(name));
    said_.ordered.push_back(std::move(*next));
  }
}

std::optional<NextInPlan> Locked::next_in_plan() const {
  if (!is_locked() || frozen_ || !deviation_.empty() || !pool_.empty()) return std::nullopt;
  return NextInPlan{&follower_->plan(), generation_, follower_->at(), follower_->next_batches()};
}

OrderedOperation Locked::take_next_in_plan(uint32_t batch) {
  OrderedOperation next = follower_->advance(batch);
  next.generation = generation_;
  note_launch();
  return next;
}

// L6: a deviation is found where it happens, before anybody can hang for it.
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
  if (!held_up_since_) held_up_since_ = now_;
  if (now_ - *held_up_since_ < options_.patience_ms) return;
  deviate(follower_->describe_next() + ", is not ready after " +
          std::to_string(options_.patience_ms) + " ms, and others wait for it");
}

std::optional<TicksMs> Locked::wakes_at() const {
  if (!held_up_since_ || asked_to_unlock_ || frozen_) return std::nullopt;
  return *held_up_since_ + options_.patience_ms;
}

Frozen Locked::withdraw() {
  if (!is_locked()) return {};
  if (exchange_.is_coordinator()) {
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
  // What has been reported and not decreed goes with the plan now (L4).
  exchange_.suspend_lockable();
  for (const ReadyTensor* tensor : by_name()) hand_to_plan(*tensor);
  for (const std::string& name : decreed_waiting_) hold_against_plan(name);
}

void Locked::begin_generation() {
  frozen_ = asked_to_unlock_ = false;
  deviation_.clear();
  held_up_since_.reset();
}

// The pool in an order that repeats exactly; a join comes after all that its ranks submitted.
std::vector<const ReadyTensor*> Locked::by_name() const {
  std::vector<const ReadyTensor*> tensors;
  for (const auto& [name, tensor] : pool_) tensors.push_back(&tensor);
  std::sort(tensors.begin(), tensors.end(), [](const ReadyTensor* a, const ReadyTensor* b) {
    const bool joins = a->descriptor->kind == CollectiveKind::kJoin;
    const bool other_joins = b->descriptor->kind == CollectiveKind::kJoin;
    return joins != other_joins ? other_joins : a->descriptor->name < b->descriptor->name;
  });
  return tensors;
}

void Locked::forget_ordered(const OrderedOperation& operation) {
  for (const std::string& name : operation.tensors) {
    pool_.erase(name);
    decreed_waiting_.erase(name);
  }
}

Status Locked::from_coordinator(NodeIndex from) const {
  if (from == layout_.coordinator() && !exchange_.is_coordinator()) return Status::ok();
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
  const Seq expected{exchange_.last(Track::kLockable).value + 1};
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
  exchange_.resume_lockable(resumed.first, follower_->begun_before(resumed.first));
  tell_schedule(resumed.first);
  for (auto it = bound_.lower_bound(resumed.first); it != bound_.end(); it = bound_.erase(it)) {
    for (Pool::node_type& tensor : it->second) pool_.insert(std::move(tensor));
  }
  bound_.clear();
  std::erase_if(said_.ordered, [&](const OrderedOperation& operation) {
    return track_of(operation.seq) == Track::kLockable && operation.seq >= resumed.first;
  });
  said_.cancels.push_back({resumed.first, generation_});
  said_.notes.push_back("unlocked before operation " + std::to_string(number_of(resumed.first)) +
                        ": " + why_frozen_);
  if (resumed.abandons_plan) said_.abandoned_plan = describe_abandoned();
  follower_.reset();
  begin_generation();
  for (const ReadyTensor* tensor : by_name()) exchange_.report(*tensor, now_);
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

Status Locked::on_message(NodeIndex from, const AgreementMessage& message) {
  struct Visitor {
    Locked& to;
    NodeIndex from;
    Status operator()(const Ready& m) {
      return to.exchange_.on_ready(from, m, to.generation_, to.now_);
    }
    Status operator()(const Decree& m) {
      for (const OrderedOperation& operation : m.operations) {
        if (to.is_locked() && track_of(operation.seq) == Track::kLockable) {
          return unexpected_message(to.layout_, from, to.mode());
        }
      }
      const size_t before = to.said_.ordered.size();
      const Status status = to.exchange_.on_decree(from, m, to.said_.ordered);
      for (size_t i = before; i < to.said_.ordered.size(); ++i)
        to.forget_ordered(to.said_.ordered[i]);
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
