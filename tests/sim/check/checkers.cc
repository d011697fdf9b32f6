#include "tests/sim/check/checkers.h"

#include <algorithm>

#include "tests/sim/setup/names.h"

namespace rueda::sim {
namespace {

bool is_sealed(core::JobState state) {
  return state == core::JobState::kSuspecting || state == core::JobState::kSealed ||
         state == core::JobState::kFailed;
}

}  // namespace

Checkers::Checkers(const core::Layout& layout, int window, uint32_t process_set, bool has_witness)
    : layout_(layout),
      window_(window),
      process_set_(process_set),
      has_witness_(has_witness),
      nodes_(static_cast<size_t>(layout.node_count())),
      open_(static_cast<size_t>(layout.world_size())),
      dead_(static_cast<size_t>(layout.world_size())),
      joined_(dead_.size()),
      gone_on_without_(dead_.size()) {}

void Checkers::violated(const std::string& what) {
  if (violation_.empty()) violation_ = what;
}

Checkers::Key Checkers::key(Epoch epoch, Seq seq, Name name) {
  return {epoch.value, seq, core::track_of(seq) == core::Track::kDecreed ? Name{} : name};
}

Checkers::Name Checkers::name_in(const core::Launch& launch) {
  return {launch.generation, launch.locked ? launch.plan_hash : 0};
}

bool Checkers::is_locked(const core::JobCore& core) const {
  for (const core::Collectives* set : core.process_sets()) {
    if (set->id() == process_set_) return set->is_locked();
  }
  return false;
}

// --- Events --------------------------------------------------------------------------------------

void Checkers::before_step(NodeIndex node, const core::JobCore& core, const core::Event& event) {
  Node& model = at(node);
  model.sealed = is_sealed(core.state());
  model.was_locked = is_locked(core);
  anybody_leaves_ = anybody_leaves_ || std::holds_alternative<core::RankDetached>(event);
  if (const auto* submitted = std::get_if<core::Submitted>(&event)) {
    const core::LocalSubmission& submission = submitted->submission;
    open(rank_of(node, submission.rank)).emplace(submission.ticket.value, submission.descriptor);
    if (submission.descriptor->kind == CollectiveKind::kDeclarePlan) {
      declared_ = submission.descriptor;
    }
    if (submission.descriptor->kind == CollectiveKind::kJoin) {
      joined_[static_cast<size_t>(rank_of(node, submission.rank).value)] = true;
    }
  } else if (const auto* done = std::get_if<core::OperationDone>(&event)) {
    on_done(node, *done);
  }
}

void Checkers::on_done(NodeIndex node, const core::OperationDone& done) {
  Node& model = at(node);
  const auto it = model.under_way.find(done.seq);
  if (it == model.under_way.end()) return;
  const Name name = it->second.name;
  Operation& operation = operations_[key(Epoch{model.epoch}, done.seq, name)];
  operation.completed_on.insert(node.value);
  check_cancelled(operation, done.seq);
  model.completed[done.seq] = name;
  model.under_way.erase(it);
}

void Checkers::after_step(NodeIndex node, const core::JobCore& core, const core::Output& output) {
  Node& model = at(node);
  for (const auto& [to, message] : output.sends) on_vote(node, message);
  if (output.recovered) on_recovered(node, *output.recovered);
  // An epoch that all leave as they enter it is over by now, and the ring belongs to no epoch.
  if (output.started || (output.recovered && output.recovered->epoch == core.epoch())) {
    check_ring(node, core.layout(), core.epoch());
  }
  if (output.started) {
    on_started(node, *output.started);
    model.members.clear();
    for (const NodeIndex member : core.layout().members()) {
      if (layout_.is_member(member)) model.members.push_back(member);
    }
  }
  for (const auto& [to, message] : output.sends) {
    if (message.passed_on_by) continue;  // its author has been heard before
    on_message(node, message);
    const bool is_about_order = std::holds_alternative<core::AgreementMessage>(message.body);
    const bool is_settled = model.was_locked && is_locked(core) && !anybody_leaves_;
    if (is_about_order && is_settled) ++messages_while_locked_;
    if (is_about_order && !anybody_leaves_) ++order_messages_;
  }
  for (const core::Cancel& cancel : output.cancels) on_cancel(node, cancel);
  ending_.clear();
  for (const core::Delivery& delivery : output.deliveries) {
    ending_.emplace(rank_of(node, delivery.rank).value, delivery.ticket.value);
  }
  // A suspicion that turned out to be wrong lifts the seal.
  const bool sealed = model.sealed && is_sealed(core.state());
  if (sealed && !output.launches.empty()) violated("R3: " + name_of(node) + " launched after seal");
  for (const core::Launch& launch : output.launches) on_launch(node, launch);
  for (const core::Delivery& delivery : output.deliveries) {
    if (sealed && delivery.status.is_ok()) {
      violated("R3: " + name_of(node) + " delivered after seal");
    }
    on_delivery(node, delivery);
  }
  if (output.finished && !model.under_way.empty()) {
    violated("I5: " + name_of(node) + " finished an epoch under " +
             name_of(model.under_way.begin()->first));
  }
  if (output.failed) {
    model.under_way.clear();
    model.failed = true;
  }
}

void Checkers::check_ring(NodeIndex node, const core::Layout& layout, Epoch epoch) {
  const std::vector<NodeIndex>& ring = layout.ring();
  const auto [first, is_new] = rings_.try_emplace(epoch.value, ring);
  if (first->second != ring) violated("ring: " + name_of(node) + " has another one than others");
}

void Checkers::on_started(NodeIndex node, const core::EpochStarted& started) {
  Node& model = at(node);
  if (started.epoch.value <= model.epoch) {
    violated("I5: an epoch came twice on " + name_of(node));
  }
  model.epoch = started.epoch.value;
  model.generation = 0;
  model.resumed_at = Seq{0};
  anybody_leaves_ = false;
  model.last[0] = core::before_first_of(core::Track::kLockable);
  model.last[1] = core::before_first_of(core::Track::kDecreed);
  model.completed.clear();
}

// --- Locks (L4, L7) ------------------------------------------------------------------------------

void Checkers::on_message(NodeIndex node, const core::Message& message) {
  if (decreed_epoch_ > message.epoch.value) return;
  if (decreed_epoch_ < message.epoch.value) {
    decreed_epoch_ = message.epoch.value;
    decreed_ = Seq{0};
    last_generation_ = 0;
  }
  const auto report = [&](const core::Frozen& frozen) {
    if (frozen.generation == 0) return;
    unlockings_[{message.epoch.value, frozen.generation + 1}].reports.emplace(node.value,
                                                                              frozen.launched);
  };
  if (const auto* leave = std::get_if<core::Leave>(&message.body)) report(leave->frozen);
  const auto* agreed = std::get_if<core::AgreementMessage>(&message.body);
  if (!agreed) return;
  if (const auto* frozen = std::get_if<core::Frozen>(agreed)) report(*frozen);
  if (const auto* lock = std::get_if<core::Lock>(agreed)) on_lock(*lock);
  if (const auto* decree = std::get_if<core::Decree>(agreed)) {
    for (const core::OrderedOperation& operation : decree->operations) {
      if (core::track_of(operation.seq) == core::Track::kLockable) decreed_ = operation.seq;
    }
  }
  if (const auto* resume = std::get_if<core::Resume>(agreed)) {
    decreed_ = Seq{resume->first.value - 1};
    last_generation_ = resume->generation;
  }
}

void Checkers::on_lock(const core::Lock& lock) {
  if (lock.generation == last_generation_) return;  // another node was told the same before
  if (lock.first.value != decreed_.value + 1) {
    violated("L4: a lock from " + name_of(lock.first) + " on, and " + name_of(decreed_) +
             " is the last that was decreed");
  }
  if (lock.generation != last_generation_ + 1) {
    violated("L4: generation " + std::to_string(lock.generation) + " after " +
             std::to_string(last_generation_));
  }
  last_generation_ = lock.generation;
  check_alternatives(lock.plan);
  if (lock.source == core::PlanSource::kDeclared) check_declared(lock.plan);
}

void Checkers::check_declared(const core::Plan& plan) {
  // Maps each tensor, by name, to everything that it comes after, on whatever way.
  std::map<std::string, std::set<std::string>> before;
  for (const core::PlannedTensor& planned : declared_->plan) {
    std::set<std::string>& all = before[planned.tensor->name];
    for (const uint32_t place : planned.after) {
      const std::string& name = declared_->plan[place].tensor->name;
      all.insert(name);
      all.insert(before[name].begin(), before[name].end());
    }
  }
  if (before.size() != plan.tensors()) violated("plan: it has not the tensors that are declared");
  for (const core::PlanBatch& batch : plan.batches) {
    for (const core::DescriptorPtr& one : batch.tensors) {
      for (const core::DescriptorPtr& other : batch.tensors) {
        if (!before[one->name].contains(other->name)) continue;
        violated("plan: " + one->name + " is fused with " + other->name + ", which it comes after");
      }
    }
  }
}

void Checkers::check_alternatives(const core::Plan& plan) {
  // Maps each tensor, by name, to the ends of rounds that have it.
  std::map<std::string, std::set<size_t>> alternatives;
  std::map<core::PlanPlace, std::set<std::string>> next;
  for (size_t i = 0; i < plan.batches.size(); ++i) {
    auto place = static_cast<core::PlanPlace>(i);
    for (; plan.batches[i].ends && place != core::kPlanStart;
         place = plan.batches[static_cast<size_t>(place)].after) {
      for (const auto& tensor : plan.batches[static_cast<size_t>(place)].tensors) {
        alternatives[tensor->name].insert(i);
      }
    }
    for (const core::DescriptorPtr& tensor : plan.batches[i].tensors) {
      if (next[plan.batches[i].after].insert(tensor->name).second) continue;
      violated("L9: " + tensor->name + " is in two batches of a plan that may be next");
    }
  }
  for (const core::PlanBatch& batch : plan.batches) {
    for (const core::DescriptorPtr& tensor : batch.tensors) {
      if (alternatives[tensor->name] == alternatives[batch.tensors.front()->name]) continue;
      violated("L9: " + tensor->name + " is fused with " + batch.tensors.front()->name +
               ", and other alternatives have it");
    }
  }
}

void Checkers::on_cancel(NodeIndex node, const core::Cancel& cancel) {
  Node& model = at(node);
  ++cancels_;
  Unlocking& unlocking = unlockings_[{model.epoch, cancel.generation}];
  if (!unlocking.first) unlocking.first = cancel.first;
  if (*unlocking.first != cancel.first) {
    violated("L7: " + name_of(node) + " resumes at " + name_of(cancel.first) +
             ", and another node at " + name_of(*unlocking.first));
  }
  for (const auto& [reporter, launched] : unlocking.reports) {
    if (cancel.first.value <= launched.value + 1) continue;
    violated("L7: resumed at " + name_of(cancel.first) + ", and n" + std::to_string(reporter) +
             " had launched only up to " + name_of(launched));
  }
  if (cancel.generation <= model.generation) {
    violated("L7: " + name_of(node) + " resumed in generation " +
             std::to_string(cancel.generation) + " after " + std::to_string(model.generation));
  }
  model.generation = cancel.generation;
  model.resumed_at = cancel.first;
  Seq& last = model.last[core::index_of(core::Track::kLockable)];
  last = std::min(last, Seq{cancel.first.value - 1});
  for (auto it = model.under_way.lower_bound(cancel.first);
       it != model.under_way.end() && core::track_of(it->first) == core::Track::kLockable;
       it = model.under_way.erase(it)) {
    Operation& operation = operations_[key(Epoch{model.epoch}, it->first, it->second.name)];
    operation.cancelled_on.insert(node.value);
    check_cancelled(operation, it->first);
  }
  const auto done = model.completed.lower_bound(cancel.first);
  if (done != model.completed.end() && core::track_of(done->first) == core::Track::kLockable &&
      done->second.generation < cancel.generation) {
    violated("L7: " + name_of(node) + " completed " + name_of(done->first) +
             ", which the unlock cancels");
  }
}

void Checkers::check_cancelled(const Operation& operation, Seq seq) {
  if (operation.cancelled_on.empty() || operation.completed_on.empty()) return;
  violated("L7: " + name_of(seq) + " was cancelled on n" +
           std::to_string(*operation.cancelled_on.begin()) + " and completed on n" +
           std::to_string(*operation.completed_on.begin()));
}

// --- Launches ------------------------------------------------------------------------------------

void Checkers::on_launch(NodeIndex node, const core::Launch& launch) {
  if (launch.tensors->empty()) {
    violated("I5: " + name_of(launch.seq) + " carries nothing");
    return;
  }
  const bool is_lockable = core::track_of(launch.seq) == core::Track::kLockable;
  if (is_lockable && launch.generation < at(node).generation && launch.seq >= at(node).resumed_at) {
    violated("L3: " + name_of(node) + " launched " + name_of(launch.seq) + " of generation " +
             std::to_string(launch.generation) + " in generation " +
             std::to_string(at(node).generation));
  }
  locked_launches_ += launch.locked;
  check_order(node, launch);
  check_window(node, launch);
  check_descriptors(node, launch);
  check_same_everywhere(node, launch);
}

void Checkers::check_order(NodeIndex node, const core::Launch& launch) {
  Node& model = at(node);
  if (launch.epoch.value != model.epoch) {
    violated("I5: " + name_of(launch.seq) + " of epoch " + std::to_string(launch.epoch.value) +
             " launched on " + name_of(node) + " in epoch " + std::to_string(model.epoch));
  }
  Seq& last = model.last[core::index_of(core::track_of(launch.seq))];
  if (launch.seq <= last) {
    violated("L5: " + name_of(node) + " launched " + name_of(launch.seq) + " after " +
             name_of(last));
  }
  // An operation that it passed over must be one that failed, which nobody launches.
  for (Seq seq{last.value + 1}; seq < launch.seq; ++seq.value) {
    const auto carried = operations_.find(key(launch.epoch, seq, {}));
    if (carried != operations_.end() && carried->second.carried) continue;
    Operation& passed = operations_[key(launch.epoch, seq, {launch.generation, 0})];
    if (!passed.launched_on.empty()) {
      violated("I5: " + name_of(node) + " passed over " + name_of(seq) + ", which n" +
               std::to_string(*passed.launched_on.begin()) + " launched");
    }
    passed.failed = true;
  }
  last = launch.seq;
}

void Checkers::check_window(NodeIndex node, const core::Launch& launch) {
  Node& model = at(node);
  const core::Track track = core::track_of(launch.seq);
  const auto window = static_cast<uint64_t>(core::window_of(track, window_));
  for (const auto& [other, launched] : model.under_way) {
    if (core::track_of(other) != track) continue;
    if (launch.seq.value >= other.value + window) {
      violated("L5: " + name_of(node) + " launched " + name_of(launch.seq) + " while " +
               name_of(other) + " was not complete");
    }
    if (other.value % window == launch.seq.value % window) {
      violated("credit: " + name_of(launch.seq) + " and " + name_of(other) + " share a lane on " +
               name_of(node));
    }
  }
  model.under_way[launch.seq] = {name_in(launch), launch};
}

void Checkers::check_descriptors(NodeIndex node, const core::Launch& launch) {
  const std::vector<Rank>& ranks = layout_.node(node).ranks;
  const core::TensorDescriptor& first = *launch.tensors->front().descriptor;
  for (size_t t = 0; t < launch.tensors->size(); ++t) {
    const core::TensorDescriptor& descriptor = *(*launch.tensors)[t].descriptor;
    const auto tickets = launch.tickets_of(t);
    if (&descriptor != &first && !core::can_fuse(first, descriptor)) {
      violated("agreement: " + name_of(launch.seq) + " fuses " + first.name + " and " +
               descriptor.name + ", which are unlike");
    }
    if (tickets.size() != ranks.size()) {
      violated("agreement: " + name_of(launch.seq) + " lacks a rank of " + name_of(node));
      return;
    }
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (!tickets[i]) {
        check_absent(node, launch, descriptor, i);
        continue;
      }
      if (is_in_another(node, launch.seq, i, *tickets[i])) {
        violated("I5: " + name_of(launch.seq) + " takes " + descriptor.name + " of " +
                 name_of(ranks[i]) + ", which another operation has");
      }
      const auto it = open(ranks[i]).find(tickets[i]->value);
      if (it == open(ranks[i]).end()) {
        if (!dead_[static_cast<size_t>(ranks[i].value)]) {
          violated("agreement: " + name_of(launch.seq) + " takes " + descriptor.name + " of " +
                   name_of(ranks[i]) + ", which has not submitted it");
        }
      } else if (*it->second != descriptor) {
        violated("agreement: " + name_of(launch.seq) + " takes " + descriptor.name + " of " +
                 name_of(ranks[i]) + ", which submitted another descriptor");
      }
    }
  }
}

// Returns whether another operation that is under way on the node has the submission.
bool Checkers::is_in_another(NodeIndex node, Seq seq, size_t local, Ticket ticket) {
  for (const auto& [other, launched] : at(node).under_way) {
    if (other == seq) continue;
    for (size_t t = 0; t < launched.launch.tensors->size(); ++t) {
      if (launched.launch.tickets_of(t)[local] == ticket) return true;
    }
  }
  return false;
}

void Checkers::check_same_everywhere(NodeIndex node, const core::Launch& launch) {
  Operation& operation = operations_[key(launch.epoch, launch.seq, name_in(launch))];
  if (operation.failed) {
    violated("I5: " + name_of(node) + " launched " + name_of(launch.seq) +
             ", which failed elsewhere");
  }
  if (operation.launched_on.empty()) {
    operation.epoch = launch.epoch.value;
    operation.members = at(node).members;
    operation.plan_hash = launch.plan_hash;
    operation.tuning = launch.tuning;
    operation.kind = launch.tensors->front().descriptor->kind;
    for (const core::LaunchTensor& tensor : *launch.tensors) {
      operation.tensors.push_back(tensor.descriptor);
    }
  } else if (operation.plan_hash != launch.plan_hash ||
             !std::equal(operation.tensors.begin(), operation.tensors.end(),
                         launch.tensors->begin(), launch.tensors->end(),
                         [](const core::DescriptorPtr& a, const core::LaunchTensor& b) {
                           return *a == *b.descriptor;
                         })) {
    violated("I5: " + name_of(launch.seq) + " is another batch on " + name_of(node) + " than on n" +
             std::to_string(*operation.launched_on.begin()));
  }
  if (operation.tuning != launch.tuning ||
      (!launch.locked && launch.tuning != core::DataTuning{})) {
    violated("tuning: " + name_of(launch.seq) + " goes another way on " + name_of(node) +
             " than on n" + std::to_string(*operation.launched_on.begin()));
  }
  operation.launched_on.insert(node.value);
}

// --- Ends ----------------------------------------------------------------------------------------

void Checkers::on_delivery(NodeIndex node, const core::Delivery& delivery) {
  const Rank rank = rank_of(node, delivery.rank);
  const auto it = open(rank).find(delivery.ticket.value);
  if (it == open(rank).end()) {
    if (!dead_[static_cast<size_t>(rank.value)]) {
      violated("I5: ticket " + std::to_string(delivery.ticket.value) + " of " + name_of(rank) +
               " ended twice");
    }
    return;
  }
  const core::DescriptorPtr descriptor = it->second;
  open(rank).erase(it);
  if (descriptor->kind == CollectiveKind::kJoin) on_join_ended(rank, delivery);
  if (delivery.status.is_ok() && !moves_data(descriptor->kind)) {
    check_change(delivery);
  } else if (delivery.status.is_ok()) {
    check_value(node, delivery, *descriptor);
  } else {
    on_error(node, delivery);
  }
}

void Checkers::on_error(NodeIndex node, const core::Delivery& delivery) {
  Node& model = at(node);
  if (delivery.status.message().empty()) violated("I5: an error without a sentence");
  if (delivery.seq.value == 0) return;
  for (const auto& [seq, launched] : model.under_way) {
    for (size_t t = 0; t < launched.launch.tensors->size(); ++t) {
      const auto local = static_cast<size_t>(delivery.rank.value);
      if (launched.launch.tickets_of(t)[local] != delivery.ticket) continue;
      violated("I5: " + name_of(seq) + " is under way on " + name_of(node) + ", and " +
               (*launched.launch.tensors)[t].descriptor->name + " in it ended with " +
               delivery.status.to_string());
    }
  }
  Operation& operation = operations_[key(delivery.epoch, delivery.seq, {model.generation, 0})];
  if (!operation.launched_on.empty()) {
    violated("I5: " + name_of(delivery.seq) + " failed by decree on " + name_of(node) +
             " and was launched on n" + std::to_string(*operation.launched_on.begin()));
  }
  operation.failed = true;
}

void Checkers::check_change(const core::Delivery& delivery) {
  const auto [it, is_new] =
      changes_.emplace(std::pair(delivery.epoch.value, delivery.seq), delivery.value);
  if (it->second == delivery.value) return;
  violated("L2: a change of process sets, or a join, gave " + std::to_string(it->second) +
           " on one node and " + std::to_string(delivery.value) + " on another");
}

void Checkers::check_value(NodeIndex node, const core::Delivery& delivery,
                           const core::TensorDescriptor& descriptor) {
  Node& model = at(node);
  check_fenced(node);
  const auto completed = model.completed.find(delivery.seq);
  if (completed == model.completed.end()) {
    violated("I5: " + name_of(node) + " delivered " + name_of(delivery.seq) +
             " before it was complete");
    return;
  }
  Operation& operation = operations_[key(Epoch{model.epoch}, delivery.seq, completed->second)];
  operation.delivered_on.insert(node.value);
  note_absent(rank_of(node, delivery.rank), operation);
  if (delivery.epoch.value != operation.epoch) violated("I5: a delivery of another epoch");
  if (std::none_of(operation.tensors.begin(), operation.tensors.end(),
                   [&](const core::DescriptorPtr& tensor) { return *tensor == descriptor; })) {
    violated("agreement: " + name_of(delivery.seq) + " delivered " + descriptor.name +
             ", which is not in it as submitted");
  }
  if (delivery.contributors != ranks_of(operation.members)) {
    violated("R6: a delivery names " + std::to_string(delivery.contributors) + " contributors");
  }
  for (const NodeIndex member : operation.members) {
    const int other = member.value;
    if (operation.launched_on.contains(other)) continue;
    if (!has_root(operation.kind)) {
      violated("L1: " + name_of(node) + " delivered " + name_of(delivery.seq) + " before n" +
               std::to_string(other) + " launched it");
    }
    // An operation with a root may end here before another member begins; but all have agreed to
    // it.
    for (const Rank rank : layout_.node(NodeIndex{other}).ranks) {
      if (!has_submitted(rank, descriptor)) {
        violated("agreement: " + name_of(node) + " delivered " + descriptor.name + " before " +
                 name_of(rank) + " submitted it");
      }
    }
  }
}

bool Checkers::has_submitted(Rank rank, const core::TensorDescriptor& descriptor) const {
  if (dead_[static_cast<size_t>(rank.value)]) return true;
  const Node& node = nodes_[static_cast<size_t>(layout_.node_of(rank).value)];
  if (!node.alive || node.failed) return true;
  return std::any_of(open(rank).begin(), open(rank).end(),
                     [&](const auto& entry) { return *entry.second == descriptor; });
}

void Checkers::on_rank_died(Rank rank) {
  dead_[static_cast<size_t>(rank.value)] = true;
  open(rank).clear();
}

void Checkers::on_node_died(NodeIndex node) {
  at(node).alive = false;
  for (Rank rank : layout_.node(node).ranks) on_rank_died(rank);
}

bool Checkers::anything_open() const {
  return std::any_of(open_.begin(), open_.end(), [](const auto& open) { return !open.empty(); });
}

void Checkers::at_end() {
  for (int32_t rank = 0; rank < layout_.world_size(); ++rank) {
    if (open(Rank{rank}).empty()) continue;
    violated("liveness: " + name_of(Rank{rank}) + " waits for " +
             open(Rank{rank}).begin()->second->name + " for ever");
  }
  for (int node = 0; node < layout_.node_count(); ++node) {
    const Node& model = nodes_[static_cast<size_t>(node)];
    if (!model.alive || model.under_way.empty()) continue;
    violated("credit: n" + std::to_string(node) + " never gave back the lane of " +
             name_of(model.under_way.begin()->first));
  }
}

}  // namespace rueda::sim
