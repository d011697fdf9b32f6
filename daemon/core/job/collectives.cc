#include "daemon/core/job/collectives.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "daemon/core/messages/batch_check.h"
#include "daemon/core/messages/fusion.h"
#include "daemon/core/model/mutants.h"

namespace rueda::core {
Collectives::Collectives(uint32_t id, const Layout& layout, std::vector<LocalRank> locals,
                         NodeIndex self, const JobOptions& options, NodeActivity& activity)
    : id_(id),
      layout_(layout),
      locals_(std::move(locals)),
      self_(self),
      options_(options),
      submissions_(layout_.node(self).ranks),
      stalls_(id, layout_, self, options_.stall, submissions_, activity) {}

void Collectives::begin(Epoch epoch, TicksUs now, Recovery* recovery) {
  epoch_ = epoch;
  recovery_ = recovery;
  stalls_.reset();
  AgreementOptions agreement = options_.agreement;
  if (id_ != 0) agreement.be_of_added_set(id_);
  agreement_ = make_agreement(layout_, self_, submissions_, agreement);
  set_now(now);
}

void Collectives::forget_order() {
  for (auto& waiting : ordered_) waiting.clear();
  launched_.clear();
  ended_.clear();
  done_.clear();
  ended_groups_ = {};
  is_on_fast_path_ = false;
  fast_path_.reset();
  recovery_ = nullptr;
  stalls_.reset();
}

void Collectives::end() {
  agreement_.reset();
  forget_order();
  left_.clear();
}

void Collectives::fail(const Status& cause, Output& output) {
  leave_fast_path();
  for (const LocalSubmission& submission : submissions_.remove_all()) {
    end_submission(submission, cause, {Seq{0}, epoch_}, 0, output);
  }
  forget_order();
}

void Collectives::set_now(TicksUs now) {
  now_ = to_ms(now);
  if (agreement_) agreement_->set_now(now);
}

// --- This node's ranks -----------------------------------------------------------------------

std::optional<LocalRank> Collectives::position_of(LocalRank rank) const {
  const auto it = std::lower_bound(locals_.begin(), locals_.end(), rank);
  if (it == locals_.end() || *it != rank) return std::nullopt;
  return LocalRank{static_cast<int32_t>(it - locals_.begin())};
}

size_t Collectives::submissions_of(LocalRank rank) const {
  const auto position = position_of(rank);
  if (!position) return 0;
  return submissions_.submissions_of(*position) +
         (is_on_fast_path_ ? fast_path_->submissions_of(*position) : 0);
}

bool Collectives::has_joined(LocalRank rank) const {
  const auto position = position_of(rank);
  return position && submissions_.has_joined(*position);
}

void Collectives::on_local_left(LocalRank rank) {
  if (const auto position = position_of(rank)) stalls_.on_left(*position);
}

void Collectives::submit(LocalSubmission submission, Output& output) {
  submission.rank = position_of(submission.rank).value();
  if (take_fast_path(submission)) return;
  if (!left_.empty()) {
    refuse(submission,
           Status(Code::kShutDown, describe_left(submission.descriptor->name, *left_.begin()),
                  Origin{{}, *left_.begin()}),
           output);
    return;
  }
  if (Status added = submissions_.add(submission); !added.is_ok()) {
    refuse(submission, added, output);
    return;
  }
  stalls_.on_submitted(submission);
  if (submission.descriptor->kind != CollectiveKind::kJoin) {
    report_if_ready(submission.descriptor->name);
    return;
  }
  // Tensors that waited for this rank alone are reported before its join.
  for (const auto& [name, tensor] : submissions_.pending()) {
    if (*name != kJoinName) report_if_ready(*name);
  }
  last_joined_ = submissions_.ranks()[static_cast<size_t>(submission.rank.value)];
  report_join();
}

void Collectives::report_if_ready(const std::string& tensor) {
  std::optional<ReadyTensor> ready = submissions_.take_ready(tensor);
  if (!ready) return;
  if (ready->descriptor->kind == CollectiveKind::kJoin) ready->rank = last_joined_;
  agreement_->on_local_ready(std::move(*ready));
}

void Collectives::report_join() {
  if (!submissions_.have_all_joined()) return;
  const auto is_of_fast_path = [](const OrderedOperation& operation) { return operation.is_fast; };
  const std::deque<OrderedOperation>& waiting = ordered_[index_of(Track::kLockable)];
  if (std::any_of(waiting.begin(), waiting.end(), is_of_fast_path)) return;
  if (std::any_of(launched_.begin(), launched_.end(),
                  [&](const auto& entry) { return is_of_fast_path(entry.second); })) {
    return;
  }
  report_if_ready(kJoinName);
}

void Collectives::refuse(const LocalSubmission& submission, const Status& status, Output& output) {
  end_submission(submission, status, {Seq{0}, epoch_}, 0, output);
}

void Collectives::set_waited(LocalRank rank, std::optional<Ticket> ticket) {
  if (const auto position = position_of(rank)) submissions_.set_waited(*position, ticket);
}

// --- The other nodes, and time ---------------------------------------------------------------

Status Collectives::on_message(NodeIndex from, const AgreementMessage& message) {
  const auto* ended = std::get_if<Ended>(&message);
  if (!ended) return agreement_->on_message(from, message);
  for (const Seq seq : ended->operations) agreement_->on_operation_ended(seq);
  return Status::ok();
}

Status Collectives::on_message(NodeIndex from, const StallMessage& message, StallOutput& said) {
  leave_fast_path();
  return stalls_.on_message(from, message, now_, said);
}

void Collectives::on_rank_left(Rank rank, Output& output) {
  leave_fast_path();  // From here on submissions are refused.
  left_.insert(rank);
  agreement_->on_rank_left(rank);
  for (const LocalSubmission& submission : submissions_.remove_unreported()) {
    refuse(
        submission,
        Status(Code::kShutDown, describe_left(submission.descriptor->name, rank), Origin{{}, rank}),
        output);
  }
}

std::optional<TicksUs> Collectives::wakes_at_us() const {
  std::optional<TicksUs> earliest = agreement_->wakes_at_us();
  for (const std::optional<TicksMs>& wanted : {stalls_.wakes_at(), fast_path_ends_at()}) {
    if (wanted && (!earliest || to_us(*wanted) < *earliest)) earliest = to_us(*wanted);
  }
  return earliest;
}

void Collectives::on_time(StallOutput& said) {
  const std::optional<TicksMs> ends_at = fast_path_ends_at();
  if (ends_at && now_ >= *ends_at) leave_fast_path();
  stalls_.on_time(now_, said);
}

// --- Order -----------------------------------------------------------------------------------

AgreementOutput Collectives::end_turn(Output& output) {
  if (is_on_fast_path_ && !may_stay_on_fast_path()) leave_fast_path();
  AgreementOutput agreed;
  agreement_->end_turn(agreed);
  launch_fast(agreed.ordered);
  std::move(agreed.notes.begin(), agreed.notes.end(), std::back_inserter(output.notes));
  if (!agreed.abandoned_plan.empty()) {
    output.abandoned_plans.push_back(std::move(agreed.abandoned_plan));
  }
  std::move(agreed.tuning.begin(), agreed.tuning.end(), std::back_inserter(output.tuning));
  output.rounds += agreed.rounds;
  if (agreed.recorded) output.recorded_plan = std::move(agreed.recorded);
  for (const Cancel& cancelled : agreed.cancels) cancel(cancelled, output);
  if (!ended_.empty()) {
    agreed.sends.emplace_back(layout_.coordinator(), Ended{std::exchange(ended_, {})});
  }
  return agreed;
}

bool Collectives::tells_what_ended() const {
  const std::vector<NodeIndex>& members = layout_.members();
  return !members.empty() && self_ == members.front() && !layout_.is_member(layout_.coordinator());
}

DescriptorPtr Collectives::change_of(const OrderedOperation& operation) const {
  if (!operation.error.is_ok() || track_of(operation.seq) != Track::kDecreed) return nullptr;
  const PendingTensor* tensor = submissions_.find(operation.tensors.front());
  // The launch will return the error.
  if (!tensor || !tensor->reported || tensor->disagrees) return nullptr;
  const DescriptorPtr& descriptor = tensor->first().descriptor;
  return moves_data(descriptor->kind) ? nullptr : descriptor;
}

void Collectives::order(std::vector<OrderedOperation> operations) {
  if (locals_.empty()) return;  // The order was called here, and is carried out on other nodes.
  for (OrderedOperation& operation : operations) {
    // The fast path was left after the operation was taken.
    if (!is_on_fast_path_) to_tables(operation);
    tell_apart(operation);
    ordered_[index_of(track_of(operation.seq))].push_back(std::move(operation));
  }
}

// Finds the tensors to which this node gives zeros, which are those that another operation has
// already, or that nobody here has submitted (L11). The others lose their descriptor.
void Collectives::tell_apart(OrderedOperation& operation) {
  if (!submissions_.have_all_joined()) operation.descriptors.clear();
  for (size_t i = 0; i < operation.tensors.size(); ++i) {
    const std::string& name = operation.tensors[i];
    const bool has_descriptor = i < operation.descriptors.size();
    const PendingTensor* tensor = has_descriptor ? submissions_.find(name) : nullptr;
    if (has_descriptor && (!tensor || tensor->ordered)) continue;
    if (has_descriptor) operation.descriptors[i].reset();
    submissions_.set_ordered(name, true);
  }
}

// Takes back operations that are cancelled (L7). No member can have completed one of them, because
// some member has not launched it.
void Collectives::cancel(const Cancel& cancelled, Output& output) {
  leave_fast_path();
  const auto take_back = [&](const OrderedOperation& operation) {
    for (const std::string& name : operation.tensors) {
      submissions_.set_ordered(name, false);
      if (operation.is_fast && !RUEDA_MUTANT(kFastNotTakenBack)) {
        agreement_->on_local_ready(submissions_.ready(name));
      }
    }
  };
  auto it = launched_.lower_bound(cancelled.first);
  while (it != launched_.end() && track_of(it->first) == Track::kLockable) {
    take_back(it->second);
    it = RUEDA_MUTANT(kCreditLeakedOnCancel) ? std::next(it) : launched_.erase(it);
  }
  std::deque<OrderedOperation>& waiting = ordered_[index_of(Track::kLockable)];
  while (!waiting.empty() && waiting.back().seq >= cancelled.first) {
    take_back(waiting.back());
    waiting.pop_back();
  }
  if (recovery_) recovery_->on_cancelled(cancelled.first);
  output.cancels.push_back({cancelled.first, cancelled.generation, id_});
  report_join();
}

Status Collectives::launch_ordered(Output& output) {
  const Status status = launch_track(Track::kDecreed, output);
  return status.is_ok() ? launch_track(Track::kLockable, output) : status;
}

// A join ends when all else is over here: what its ranks submitted before, and what they gave zeros
// to (L11). Ranks that come back from it may use all names again, and go.
bool Collectives::may_end_join(const OrderedOperation& join) const {
  const auto oldest = launched_.lower_bound(first_of(Track::kLockable));
  if (oldest != launched_.end() && track_of(oldest->first) == Track::kLockable) return false;
  if (!join.error.is_ok()) return true;
  return !is_join_held_ && submissions_.submissions() == submissions_.joined();
}

Status Collectives::launch_track(Track track, Output& output) {
  std::deque<OrderedOperation>& waiting = ordered_[index_of(track)];
  while (!waiting.empty()) {
    if (RUEDA_MUTANT(kLaunchOutOfOrder) && waiting.size() > 1) std::swap(waiting[0], waiting[1]);
    const OrderedOperation& next = waiting.front();
    const bool is_join = !next.batch && next.tensors.front() == kJoinName;
    if (is_join && !may_end_join(next)) return Status::ok();
    const bool is_launched = next.error.is_ok() && !next.outcome;
    if (is_launched && !window_open(next.seq)) return Status::ok();
    // What is unstable is bounded (R2). An operation that is repeated counts already.
    if (is_launched && recovery_ && !next.from_partial &&
        !recovery_->may_launch(bytes_of(next), track)) {
      return Status::ok();
    }
    OrderedOperation operation = std::move(waiting.front());
    waiting.pop_front();
    if (is_launched) {
      if (Status status = launch(std::move(operation), output); !status.is_ok()) return status;
    } else {
      if (recovery_) {
        RUEDA_CHECK(!operation.outcome);  // Such a job has one process set.
        recovery_->on_refused(now_, operation.seq, operation.generation,
                              std::make_shared<const RefusedOperation>(
                                  RefusedOperation{operation.tensors, operation.error}));
      }
      end_operation(operation, result_of(operation), output);
    }
  }
  return Status::ok();
}

int64_t Collectives::bytes_of(const OrderedOperation& operation) const {
  int64_t bytes = 0;
  for (const std::string& name : operation.tensors) {
    const PendingTensor* tensor = submissions_.find(name);
    if (tensor && tensor->reported) bytes += tensor->first().descriptor->bytes();
  }
  return bytes;
}

// Returns whether there is room for the operation. The window counts from the oldest operation of
// the track under way, and not by the number of operations: operation s uses lane s mod W of the
// data plane, which operation s - W must have left.
bool Collectives::window_open(Seq seq) const {
  const auto oldest = launched_.lower_bound(first_of(track_of(seq)));
  return oldest == launched_.end() || track_of(oldest->first) != track_of(seq) ||
         seq.value < oldest->first.value + static_cast<uint64_t>(window_of(
                                               track_of(seq), options_.max_launched_operations));
}

Status Collectives::launch(OrderedOperation operation, Output& output) {
  Launch launch;
  launch.epoch = epoch_;
  launch.process_set = id_;
  launch.seq = operation.seq;
  launch.generation = operation.generation;
  launch.locked = operation.locked;
  launch.plan_hash = operation.plan_hash;
  launch.tuning = operation.tuning;
  if (RUEDA_MUTANT(kTuningOfOneNode) && self_ != layout_.coordinator()) launch.tuning = {};
  if (operation.batch) {
    fill(operation, launch);
  } else if (Status status = find_tensors(operation, launch); !status.is_ok()) {
    return status;
  }
  if (recovery_) {
    launch.from_partial = operation.from_partial;
    recovery_->on_launched(now_, operation.seq, bytes_of(operation), layout_.members().size(),
                           {operation.generation, operation.plan_hash}, recovery_output_);
  }
  launched_.emplace(operation.seq, std::move(operation));
  output.launches.push_back(std::move(launch));
  return Status::ok();
}

// Finds the operation's tensors and tickets in the table.
Status Collectives::find_tensors(const OrderedOperation& operation, Launch& launch) {
  const auto refused = [&](const std::string& what) {
    return Status(Code::kInternal, "operation " + std::to_string(number_of(operation.seq)) + " " +
                                       what + ": the coordinator on " +
                                       layout_.node(layout_.coordinator()).node_id +
                                       " ordered what cannot be");
  };
  std::vector<LaunchTensor> tensors;
  std::vector<DescriptorPtr> batch;
  tensors.reserve(operation.tensors.size());
  launch.tickets.reserve(operation.tensors.size() * locals_.size());
  for (size_t i = 0; i < operation.tensors.size(); ++i) {
    const std::string& name = operation.tensors[i];
    PendingTensor* tensor = nullptr;
    DescriptorPtr descriptor;
    if (gives_zeros(operation, i)) {
      descriptor = operation.descriptors[i];
    } else {
      tensor = submissions_.find(name);
      if (const char* flaw = !tensor || !tensor->reported ? "which this node did not report"
                             : tensor->disagrees ? "on which the ranks of this node disagree"
                             : tensor->launched  ? "which another operation has"
                                                 : nullptr) {
        return refused("has tensor \"" + name + "\", " + flaw);
      }
      tensor->launched = true;
      descriptor = tensor->first().descriptor;
    }
    bool has_absent = false;
    for (size_t rank = 0; rank < locals_.size(); ++rank) {
      const bool has_submitted = tensor && tensor->by_local_rank[rank];
      has_absent |= !has_submitted;
      launch.tickets.push_back(has_submitted ? std::optional(tensor->by_local_rank[rank]->ticket)
                                             : std::nullopt);
    }
    if (has_absent && !takes_zeros(*descriptor)) {
      return refused("has tensor \"" + name + "\", a " + to_string(descriptor->kind) +
                     " which needs what a rank that has joined would give");
    }
    if (!operation.locked) batch.push_back(descriptor);
    tensors.push_back({descriptor, descriptor->elements()});
  }
  // A plan's batches were checked when the plan came, and each tensor that became ready since was
  // compared with the plan.
  if (!operation.locked) {
    const std::string flaw = find_flaw_of_batch(batch, track_of(operation.seq), id_, layout_);
    if (!flaw.empty()) return refused("has " + flaw);
  }
  launch.tensors = std::make_shared<const std::vector<LaunchTensor>>(std::move(tensors));
  // Tensors that a plan launches were compared with it when they became ready.
  if (!operation.locked && plan_hash(batch) != operation.plan_hash) {
    return Status(Code::kMismatch, "operation " + std::to_string(number_of(operation.seq)) +
                                       " means another batch on the coordinator than on node " +
                                       layout_.node(self_).node_id);
  }
  return Status::ok();
}

Status Collectives::on_done(Seq seq, Output& output) {
  const auto it = launched_.find(seq);
  if (it == launched_.end()) {
    return Status(Code::kInternal,
                  "operation " + std::to_string(number_of(seq)) +
                      " is complete here and was cancelled: a node misreported how far it was");
  }
  if (recovery_) {
    done_.insert(launched_.extract(it));
    recovery_->on_whole(now_, seq, recovery_output_);
    return Status::ok();
  }
  const OrderedOperation operation = std::move(it->second);
  launched_.erase(it);
  end_operation(operation, result_of(operation), output);
  return Status::ok();
}

CompletedOperation Collectives::result_of(const OrderedOperation& operation) const {
  const int contributors = operation.error.is_ok() ? layout_.member_ranks() : 0;
  return {operation.seq, epoch_, static_cast<uint32_t>(contributors)};
}

void Collectives::end_operation(const OrderedOperation& operation, const CompletedOperation& result,
                                Output& output) {
  if (operation.batch) end_fast(operation, result, output);
  for (size_t i = 0; i < operation.tensors.size(); ++i) {
    const std::string& name = operation.tensors[i];
    if (gives_zeros(operation, i)) continue;
    // The operation that failed may be for the tensor's next turn, which this node has not
    // submitted.
    if (!operation.error.is_ok() && is_under_way(name)) continue;
    const PendingTensor* tensor = recovery_ ? submissions_.find(name) : nullptr;
    if (tensor) ended_groups_.note(*tensor->first().descriptor);
    const size_t told = output.deliveries.size();
    for (const LocalSubmission& submission : submissions_.remove(name)) {
      end_submission(submission, operation.error, result, operation.outcome.value_or(0), output);
    }
    if (output.deliveries.size() > told) output.deliveries[told].is_first = true;
  }
  agreement_->on_operation_ended(operation.seq);
  report_join();
  // Operations of a plan are not counted by anybody.
  if (tells_what_ended() && !operation.locked) ended_.push_back(operation.seq);
}

bool Collectives::is_under_way(const std::string& tensor) const {
  const auto has_it = [&](const auto& entry) {
    const std::vector<std::string>& tensors = entry.second.tensors;
    return std::find(tensors.begin(), tensors.end(), tensor) != tensors.end();
  };
  return std::any_of(launched_.begin(), launched_.end(), has_it) ||
         std::any_of(done_.begin(), done_.end(), has_it);
}

void Collectives::end_submission(const LocalSubmission& submission, const Status& status,
                                 const CompletedOperation& result, uint32_t value, Output& output) {
  if (status.is_ok()) stalls_.on_completed(submission, now_);
  // The join of all ranks tells the rank.
  if (submission.descriptor->kind == CollectiveKind::kJoin && id_ != 0) return;
  deliver(submission.rank, submission.ticket, status, result, value, output);
}

void Collectives::deliver(LocalRank rank, Ticket ticket, const Status& status,
                          const CompletedOperation& result, uint32_t value, Output& output) {
  Delivery& delivery = output.deliveries.emplace_back();
  delivery.rank = locals_[static_cast<size_t>(rank.value)];
  delivery.ticket = ticket;
  delivery.status = status;
  delivery.epoch = result.epoch;
  delivery.contributors = result.contributors;
  delivery.seq = result.seq;
  delivery.value = value;
}

bool Collectives::awaits_decree() const {
  // Operations that a plan has launched may be cancelled when it is given up, and decreed later.
  if (is_locked() || is_on_fast_path_) return in_flight() > 0;
  size_t decreed = 0;
  const auto count = [&](const std::vector<std::string>& tensors) {
    for (const std::string& name : tensors) {
      const PendingTensor* tensor = submissions_.find(name);
      if (tensor) decreed += static_cast<size_t>(tensor->submitted);
    }
  };
  for (const auto& [seq, operation] : launched_) count(operation.tensors);
  for (const auto& waiting : ordered_) {
    for (const OrderedOperation& operation : waiting) count(operation.tensors);
  }
  return submissions_.submissions() > decreed;
}

// --- Policy `shrink` -----------------------------------------------------------------------------
// Collectives under policy `shrink`: what is done waits for the recovery's word, and what an epoch
// leaves over goes on in the next (docs/protocol.md, "Recovery").

void Collectives::deliver(const CompletedOperation& completed, Output& output) {
  const auto it = done_.find(completed.seq);
  RUEDA_CHECK(it != done_.end());
  const OrderedOperation operation = std::move(it->second);
  done_.erase(it);
  end_operation(operation, completed, output);
}

void Collectives::adopt(const NextEpoch& next, TicksUs now, Output& output) {
  epoch_ = next.epoch;
  const std::set<std::string> carried = carry_over(next);
  submissions_.reset_but(carried);
  fail_refused(next, carried, output);
  stalls_.reset();
  left_.clear();
  AgreementOptions agreement = options_.agreement;
  // A recorded plan begins with a step, and this is the middle of one.
  agreement.replayed = nullptr;
  agreement.begun = begun_groups(carried);
  for (size_t track = 0; track < kTracks; ++track) {
    agreement.taken[track] = Seq{next.next_seq[track].value - 1};
  }
  agreement_ = make_agreement(layout_, self_, submissions_, agreement);
  set_now(now);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : submissions_.pending()) names.push_back(*name);
  for (const std::string& name : names) {
    if (auto ready = submissions_.take_ready(name)) agreement_->on_local_ready(std::move(*ready));
  }
  // Ranks whose node has been lost since count, too: some tensors have failed for their goodbye
  // already, where this node's ranks have not submitted them yet.
  for (const Rank rank : next.left) on_rank_left(rank, output);
}

// Returns the groups that have begun by what has ended and by what goes on; the rest of a group may
// be submitted later.
BegunGroups Collectives::begun_groups(const std::set<std::string>& carried) const {
  BegunGroups begun = ended_groups_;
  for (const std::string& name : carried) begun.note(*submissions_.find(name)->first().descriptor);
  return begun;
}

// Gives the operations that go on their new numbers, and returns their tensors.
std::set<std::string> Collectives::carry_over(const NextEpoch& next) {
  std::map<Seq, OrderedOperation> before = std::exchange(launched_, {});
  before.merge(done_);
  done_.clear();
  for (auto& waiting : ordered_) waiting.clear();
  std::set<Seq> incomplete;
  for (const Fetch& fetch : next.fetches) incomplete.insert(fetch.seq);
  std::set<std::string> carried;
  for (const CarriedOperation& operation : next.operations) {
    const auto it = before.find(operation.was);
    // The operation was delivered here already, or is void everywhere.
    if (it == before.end() || operation.verdict == Verdict::kVoid) continue;
    OrderedOperation next_one;  // It has no lock, whatever it had before.
    next_one.seq = operation.seq;
    next_one.tensors = std::move(it->second.tensors);
    carried.insert(next_one.tensors.begin(), next_one.tensors.end());
    if (operation.verdict == Verdict::kRedo) {
      next_one.from_partial = true;
      std::vector<DescriptorPtr> batch;
      for (const std::string& name : next_one.tensors) {
        batch.push_back(submissions_.find(name)->first().descriptor);
      }
      next_one.plan_hash = plan_hash(batch);
      ordered_[index_of(track_of(next_one.seq))].push_back(std::move(next_one));
    } else if (incomplete.contains(operation.seq)) {
      launched_.emplace(next_one.seq, std::move(next_one));
    } else {
      done_.emplace(next_one.seq, std::move(next_one));
    }
  }
  return carried;
}

// Ends tensors with errors that some nodes which go on have told their ranks.
void Collectives::fail_refused(const NextEpoch& next, const std::set<std::string>& carried,
                               Output& output) {
  for (const RefusedPtr& refused : next.refused) {
    for (const std::string& name : refused->tensors) {
      // The error is about the tensor's next turn, which this node has not submitted.
      if (carried.contains(name)) continue;
      if (const PendingTensor* tensor = submissions_.find(name)) {
        ended_groups_.note(*tensor->first().descriptor);
      }
      for (const LocalSubmission& submission : submissions_.remove(name)) {
        refuse(submission, refused->error, output);
      }
    }
  }
}

// --- A plan that repeats as it was ---------------------------------------------------------------
// Collectives while a plan repeats as it was (plan_fast_path.h): a batch is launched when its rows
// are full, and no table that knows names is touched. Whatever is different ends the fast path: all
// that is in its rows goes into the tables, as if it had been submitted there.

// The fast path begins only with nothing in flight, so that a name is either in the tables or in
// its rows.
bool Collectives::take_fast_path(const LocalSubmission& submission) {
  if (!is_on_fast_path_) {
    if (recovery_ || !left_.empty() || submissions_.submissions() > 0) return false;
    const std::optional<NextInPlan> next = agreement_->next_in_plan();
    if (!next) return false;
    if (!fast_path_ || fast_path_generation_ != next->generation) {
      fast_path_.emplace(*next->plan, locals_.size());
      fast_path_generation_ = next->generation;
    }
    is_on_fast_path_ = true;
  }
  if (submission.objection.empty() &&
      fast_path_->take(now_, submission.rank, submission.ticket, submission.descriptor)) {
    return true;
  }
  leave_fast_path();
  return false;
}

// Returns nothing if the plan of the fast path is in force no longer, or must not be followed now.
std::optional<NextInPlan> Collectives::next_on_fast_path() const {
  const std::optional<NextInPlan> next = agreement_->next_in_plan();
  return next && next->generation == fast_path_generation_ ? next : std::nullopt;
}

// A short form of L6: if something may be a deviation, the fast path ends, and the agreement judges
// it.
bool Collectives::may_stay_on_fast_path() const {
  const std::optional<NextInPlan> next = next_on_fast_path();
  if (!next) return false;
  if (fast_path_->repeats(next->at)) return false;
  for (size_t local = 0; local < locals_.size(); ++local) {
    const LocalRank rank{static_cast<int32_t>(local)};
    const bool has_done_its_part =
        std::any_of(next->batches.begin(), next->batches.end(),
                    [&](uint32_t batch) { return fast_path_->has_all(rank, batch); });
    const std::optional<Ticket> waited = submissions_.waited(rank);
    if (waited && !has_done_its_part && fast_path_->gathers(rank, *waited)) return false;
  }
  return true;
}

void Collectives::launch_fast(std::vector<OrderedOperation>& ordered) {
  while (is_on_fast_path_) {
    const std::optional<NextInPlan> next = next_on_fast_path();
    if (!next) return;
    const std::optional<uint32_t> batch = fast_path_->first_ready(next->batches);
    if (!batch) return;
    OrderedOperation operation = agreement_->take_next_in_plan(*batch);
    operation.is_fast = true;
    operation.batch = batch;
    fast_path_->begin(*batch);
    ordered.push_back(std::move(operation));
  }
}

void Collectives::leave_fast_path() {
  if (!std::exchange(is_on_fast_path_, false)) return;
  for (auto& [seq, operation] : launched_) {
    const bool is_of_fast_path = operation.batch.has_value();
    to_tables(operation);
    if (!is_of_fast_path) continue;
    for (const std::string& name : operation.tensors) submissions_.find(name)->launched = true;
  }
  for (OrderedOperation& operation : ordered_[index_of(Track::kLockable)]) to_tables(operation);
  for (LocalSubmission& submission : fast_path_->take_gathered()) {
    if (auto ready = enter(std::move(submission))) agreement_->on_local_ready(std::move(*ready));
  }
}

// No name is in the tables yet, because the fast path began with empty ones.
std::optional<ReadyTensor> Collectives::enter(LocalSubmission submission) {
  const DescriptorPtr descriptor = submission.descriptor;
  stalls_.on_submitted(submission);
  RUEDA_CHECK(submissions_.add(std::move(submission)).is_ok());
  return submissions_.take_ready(descriptor->name);
}

void Collectives::to_tables(OrderedOperation& operation) {
  if (!operation.batch) return;
  const uint32_t batch = *std::exchange(operation.batch, std::nullopt);
  for (size_t tensor = 0; tensor < fast_path_->tensors(batch); ++tensor) {
    for (size_t local = 0; local < fast_path_->ranks(); ++local) {
      enter(fast_path_->submission(batch, tensor, LocalRank{static_cast<int32_t>(local)}));
    }
    const std::string& name = fast_path_->descriptor(batch, tensor, LocalRank{0})->name;
    submissions_.set_ordered(name, true);
    operation.tensors.push_back(name);
  }
  fast_path_->end(batch);
}

void Collectives::fill(const OrderedOperation& operation, Launch& launch) const {
  const uint32_t batch = *operation.batch;
  launch.tensors = fast_path_->to_launch(batch);
  launch.tickets.reserve(launch.tensors->size() * fast_path_->ranks());
  for (size_t tensor = 0; tensor < launch.tensors->size(); ++tensor) {
    for (size_t local = 0; local < fast_path_->ranks(); ++local) {
      const LocalRank rank{static_cast<int32_t>(local)};
      launch.tickets.push_back(fast_path_->ticket(batch, tensor, rank));
    }
  }
}

void Collectives::end_fast(const OrderedOperation& operation, const CompletedOperation& result,
                           Output& output) {
  const uint32_t batch = *operation.batch;
  const size_t tensors = fast_path_->tensors(batch);
  output.deliveries.reserve(output.deliveries.size() + tensors * locals_.size());
  // Deliveries go rank by rank, because whoever tells the ranks goes through the memory of one
  // after the other.
  for (size_t local = 0; local < locals_.size(); ++local) {
    const LocalRank rank{static_cast<int32_t>(local)};
    for (size_t tensor = 0; tensor < tensors; ++tensor) {
      deliver(rank, fast_path_->ticket(batch, tensor, rank), Status::ok(), result, 0, output);
      output.deliveries.back().is_first = local == 0;
    }
    // The batch's last tensor is the last thing that the rank has done.
    stalls_.on_completed(fast_path_->submission(batch, tensors - 1, rank), now_);
  }
  fast_path_->end(batch);
}

std::optional<TicksMs> Collectives::fast_path_ends_at() const {
  const std::optional<TicksMs> since = is_on_fast_path_ ? fast_path_->since() : std::nullopt;
  if (!since) return std::nullopt;
  return *since + options_.agreement.patience_ms / kFastPathsInPatience;
}

size_t Collectives::in_flight() const {
  return submissions_.submissions() + (is_on_fast_path_ ? fast_path_->submissions() : 0);
}

}  // namespace rueda::core
