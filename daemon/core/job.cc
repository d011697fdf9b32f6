#include "daemon/core/job.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "daemon/core/mutants.h"

namespace rueda::core {

const char* to_string(JobState state) {
  switch (state) {
    case JobState::kForming: return "forming";
    case JobState::kRunning: return "running";
    case JobState::kSuspecting: return "suspecting";
    case JobState::kFailed: return "failed";
  }
  return "unknown";
}

JobCore::JobCore(Layout layout, NodeIndex self, JobOptions options)
    : layout_(std::move(layout)),
      self_(self),
      options_(std::move(options)),
      submissions_(layout_.node(self).ranks),
      stalls_(layout_, self, options_.stall, submissions_),
      sent_number_(static_cast<size_t>(layout_.node_count())),
      received_number_(static_cast<size_t>(layout_.node_count())) {}

void JobCore::step(TicksMs now, Event event, Output& output) {
  now_ = now;
  if (agreement_) agreement_->set_now(now);
  std::visit([&](const auto& e) { on(e, output); }, event);
}

const char* JobCore::mode() const { return to_string(options_.agreement.mode); }

std::vector<Rank> JobCore::missing_ranks() const {
  std::vector<Rank> missing;
  const std::vector<Rank>& ranks = layout_.node(self_).ranks;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (!attached_.contains(LocalRank{static_cast<int32_t>(i)})) missing.push_back(ranks[i]);
  }
  return missing;
}

Status JobCore::may_attach(LocalRank rank) const {
  const std::vector<Rank>& ranks = layout_.node(self_).ranks;
  if (rank.value < 0 || static_cast<size_t>(rank.value) >= ranks.size()) {
    return Status(Code::kInvalidArgument, "job " + options_.job + " has local ranks 0 to " +
                                              std::to_string(ranks.size() - 1) +
                                              " on this node, not " + std::to_string(rank.value));
  }
  // Not while suspecting: a peer that ended the epoch first closes its channel, and the word that
  // all have left is on its way. Whoever attaches meanwhile waits for the next epoch, or fails with
  // all.
  if (state_ == JobState::kFailed) {
    return Status(failure_.code(), "job " + options_.job + " is over: " + failure_.message(),
                  failure_.origin());
  }
  if (attached_.contains(rank) || attached_early_.contains(rank)) {
    return Status(Code::kInvalidArgument, "rank " + std::to_string(global_rank(rank).value) +
                                              " of job " + options_.job +
                                              " is attached already; start each rank once");
  }
  return Status::ok();
}

// --- The local ranks ---------------------------------------------------------------------------

void JobCore::on(const RankAttached& event, Output& output) {
  if (state_ != JobState::kForming) {
    attached_early_.insert(event.rank);
    return;
  }
  attached_.insert(event.rank);
  send_join(output);
}

void JobCore::on(const RankDetached& event, Output& output) {
  if (attached_early_.erase(event.rank) > 0) return;
  submissions_.set_waited(event.rank, std::nullopt);  // another process counts tickets anew
  if (submissions_.submissions_of(event.rank) > 0) {
    const Rank rank = global_rank(event.rank);
    on(RankLost{event.rank,
                Status(Code::kRankLost,
                       "rank " + std::to_string(rank.value) + " on node " +
                           layout_.node(self_).node_id + " left the job with operations in flight",
                       Origin{layout_.node(self_).node_id, rank})},
       output);
    return;
  }
  attached_.erase(event.rank);
  stalls_.on_left(event.rank);
  if (state_ == JobState::kForming) {
    send_join(output);
  } else if (state_ != JobState::kFailed) {
    on_leave(self_, {global_rank(event.rank), agreement_->withdraw()}, output);
  }
}

void JobCore::on(const RankLost& event, Output& output) {
  if (attached_early_.erase(event.rank) == 0) attached_.erase(event.rank);
  fail(event.status, output);
}

void JobCore::on(const Submitted& event, Output& output) {
  LocalSubmission submission = event.submission;
  submission.submitted_ms = now_;
  const auto refuse = [&](const Status& status) { deliver(submission, status, Seq{0}, output); };
  switch (state_) {
    case JobState::kForming:
      refuse(Status(Code::kUnavailable,
                    "job " + options_.job + " has not started: wait for rueda_init to return"));
      return;
    case JobState::kFailed: refuse(failure_); return;
    // While suspecting it waits: for the true cause, or for the suspicion to be lifted.
    case JobState::kSuspecting:
    case JobState::kRunning: break;
  }
  if (!left_.empty()) {
    refuse(Status(Code::kShutDown, describe_left(submission.descriptor->name, *left_.begin()),
                  Origin{{}, *left_.begin()}));
    return;
  }
  if (Status added = submissions_.add(submission); !added.is_ok()) {
    refuse(added);
    return;
  }
  stalls_.on_submitted(submission);
  if (auto ready = submissions_.take_ready(submission.descriptor->name)) {
    agreement_->on_local_ready(std::move(*ready));
  }
}

// --- Messages ------------------------------------------------------------------------------------

void JobCore::on(const MessageArrived& event, Output& output) {
  const Message& message = event.message;
  if (const auto* join = std::get_if<Join>(&message.body)) {
    on_join(message.from, message.epoch, *join, output);
    return;
  }
  // A message of another epoch is late, or early and will come again (Start).
  if (message.epoch != epoch_ || state_ == JobState::kFailed) return;
  if (const auto* start = std::get_if<Start>(&message.body)) {
    on_start(*start, output);
    return;
  }
  if (const auto* failure = std::get_if<Fail>(&message.body)) {
    fail(failure->status, output);
    return;
  }
  // While suspecting, too: a channel may have closed because every rank has left.
  if (state_ == JobState::kForming || !accept_number(message, output)) return;
  Status status;
  if (const auto* agreed = std::get_if<AgreementMessage>(&message.body)) {
    status = agreement_->on_message(message.from, *agreed);
  } else if (const auto* leave = std::get_if<Leave>(&message.body)) {
    if (leave->frozen.generation != 0) status = agreement_->on_message(message.from, leave->frozen);
    if (status.is_ok()) on_leave(message.from, *leave, output);
  } else if (const auto* left = std::get_if<Left>(&message.body)) {
    if (message.from == layout_.coordinator() && !is_coordinator()) on_left(left->rank, output);
  } else if (const auto* stall = std::get_if<StallMessage>(&message.body)) {
    StallOutput said;
    status = stalls_.on_message(message.from, *stall, now_, said);
    carry_out(said, output);
  }
  if (!status.is_ok()) fail(status, output);
  announce_leaves(output);
}

bool JobCore::accept_number(const Message& message, Output& output) {
  uint64_t& last = received_number_[static_cast<size_t>(message.from.value)];
  if (message.number <= last) return false;
  if (message.number != last + 1) {
    fail(Status(Code::kInternal,
                "messages " + std::to_string(last + 1) + " to " +
                    std::to_string(message.number - 1) + " of node " +
                    layout_.node(message.from).node_id + " are missing",
                Origin{layout_.node(message.from).node_id, {}}),
         output);
    return false;
  }
  last = message.number;
  return true;
}

void JobCore::on_leave(NodeIndex from, const Leave& leave, Output& output) {
  if (!is_coordinator()) {
    if (from == self_) send(layout_.coordinator(), leave, output);
    return;
  }
  if (!layout_.has_rank(leave.rank) || layout_.node_of(leave.rank) != from) return;
  pending_leaves_.emplace_back(from, leave.rank);
  if (is_locked()) agreement_->withdraw();
  if (from != self_ && all_ranks_left(from)) agreement_->on_node_gone(from);  // it answers no more
  announce_leaves(output);
}

// A plan that others still follow needs the rank: it is given up first.
void JobCore::announce_leaves(Output& output) {
  if (is_locked()) return;
  for (const auto& [from, rank] : std::exchange(pending_leaves_, {})) {
    if (state_ != JobState::kRunning && state_ != JobState::kSuspecting) return;
    // Left goes out before the decrees that follow from it: nodes then fail new submissions
    // themselves.
    send_to_others(Left{rank}, output);
    on_left(rank, output);
  }
}

void JobCore::on_left(Rank rank, Output& output) {
  if (!layout_.has_rank(rank) || !left_.insert(rank).second) return;
  agreement_->on_rank_left(rank);
  for (const LocalSubmission& submission : submissions_.remove_unreported()) {
    deliver(
        submission,
        Status(Code::kShutDown, describe_left(submission.descriptor->name, rank), Origin{{}, rank}),
        Seq{0}, output);
  }
  if (left_.size() == static_cast<size_t>(layout_.world_size())) {
    finish_epoch(output);
  } else if (state_ == JobState::kSuspecting &&
             std::all_of(suspects_.begin(), suspects_.end(),
                         [&](NodeIndex node) { return all_ranks_left(node); })) {
    lift_suspicion(output);
  }
}

// --- Running -------------------------------------------------------------------------------------

void JobCore::on(const RankWaits& event, Output&) {
  submissions_.set_waited(event.rank, event.ticket);
}

void JobCore::on(const TurnEnded&, Output& output) {
  // While suspecting, too: the word that ends a suspicion may wait for a plan to be given up.
  // launch_track() keeps the seal.
  const auto goes_on = [&] {
    return state_ == JobState::kRunning || state_ == JobState::kSuspecting;
  };
  // An operation that ends at once (an error) makes room for the next: until nothing moves.
  while (goes_on()) {
    AgreementOutput agreed;
    agreement_->end_turn(agreed);
    for (auto& [to, body] : agreed.sends) send(to, std::move(body), output);
    std::move(agreed.notes.begin(), agreed.notes.end(), std::back_inserter(output.notes));
    for (const Cancel& cancelled : agreed.cancels) cancel(cancelled, output);
    announce_leaves(output);
    if (agreed.ordered.empty() || !goes_on()) return;
    for (OrderedOperation& operation : agreed.ordered) order(std::move(operation));
    launch_ordered(output);
  }
}

void JobCore::order(OrderedOperation operation) {
  for (const std::string& name : operation.tensors) {
    submissions_.set_ordered(name, true);
  }
  ordered_[index_of(track_of(operation.seq))].push_back(std::move(operation));
}

// L7. No member can have completed one of them: some member has not launched it.
void JobCore::cancel(const Cancel& cancelled, Output& output) {
  const auto take_back = [&](const std::vector<std::string>& tensors) {
    for (const std::string& name : tensors) {
      submissions_.set_ordered(name, false);
    }
  };
  auto it = launched_.lower_bound(cancelled.first);
  while (it != launched_.end() && track_of(it->first) == Track::kLockable) {
    take_back(it->second);
    it = RUEDA_MUTANT(kCreditLeakedOnCancel) ? std::next(it) : launched_.erase(it);
  }
  std::deque<OrderedOperation>& waiting = ordered_[index_of(Track::kLockable)];
  while (!waiting.empty() && waiting.back().seq >= cancelled.first) {
    take_back(waiting.back().tensors);
    waiting.pop_back();
  }
  output.cancels.push_back(cancelled);
}

void JobCore::launch_ordered(Output& output) {
  launch_track(Track::kDecreed, output);
  launch_track(Track::kLockable, output);
}

void JobCore::launch_track(Track track, Output& output) {
  std::deque<OrderedOperation>& waiting = ordered_[index_of(track)];
  while (state_ == JobState::kRunning && !waiting.empty()) {
    if (RUEDA_MUTANT(kLaunchOutOfOrder) && waiting.size() > 1) std::swap(waiting[0], waiting[1]);
    const OrderedOperation& next = waiting.front();
    if (next.error.is_ok() && !window_open(next.seq)) return;
    OrderedOperation operation = std::move(waiting.front());
    waiting.pop_front();
    if (operation.error.is_ok()) {
      if (!launch(std::move(operation), output)) return;
    } else {
      end_operation(operation.seq, operation.tensors, operation.error, output);
    }
  }
}

// Measured from the oldest operation of the track under way, not by their number: operation s uses
// lane s mod W of the data plane, which the operation W before it must have left.
bool JobCore::window_open(Seq seq) const {
  const auto oldest = launched_.lower_bound(first_of(track_of(seq)));
  return oldest == launched_.end() || track_of(oldest->first) != track_of(seq) ||
         seq.value < oldest->first.value + static_cast<uint64_t>(window_of(
                                               track_of(seq), options_.max_launched_operations));
}

bool JobCore::launch(OrderedOperation operation, Output& output) {
  Launch launch;
  launch.epoch = epoch_;
  launch.seq = operation.seq;
  launch.generation = operation.generation;
  launch.locked = operation.locked;
  launch.plan_hash = operation.plan_hash;
  std::vector<DescriptorPtr> batch;
  launch.tensors.reserve(operation.tensors.size());
  for (const std::string& name : operation.tensors) {
    const PendingTensor* tensor = submissions_.find(name);
    if (!tensor || !tensor->reported) {
      fail(Status(Code::kInternal, "operation " + std::to_string(number_of(operation.seq)) +
                                       " has tensor \"" + name +
                                       "\", which this node did not report"),
           output);
      return false;
    }
    LaunchTensor item;
    item.descriptor = tensor->by_local_rank.front()->descriptor;
    item.tickets.reserve(tensor->by_local_rank.size());
    for (const auto& submission : tensor->by_local_rank) item.tickets.push_back(submission->ticket);
    if (!operation.locked) batch.push_back(item.descriptor);
    launch.tensors.push_back(std::move(item));
  }
  // What a plan launches was compared with it when it became ready.
  if (!operation.locked && plan_hash(batch) != operation.plan_hash) {
    fail(Status(Code::kMismatch, "operation " + std::to_string(number_of(operation.seq)) +
                                     " means another batch on the coordinator than on node " +
                                     layout_.node(self_).node_id),
         output);
    return false;
  }
  launched_.emplace(operation.seq, std::move(operation.tensors));
  output.launches.push_back(std::move(launch));
  return true;
}

void JobCore::on(const OperationDone& event, Output& output) {
  // Sealed: nothing is delivered (R3), unless the suspicion turns out to be none.
  if (state_ == JobState::kSuspecting) held_done_.push_back(event.seq);
  if (state_ != JobState::kRunning) return;
  const auto it = launched_.find(event.seq);
  if (it == launched_.end()) {
    fail(Status(Code::kInternal,
                "operation " + std::to_string(number_of(event.seq)) +
                    " is complete here and was cancelled: a node misreported how far it was"),
         output);
    return;
  }
  const std::vector<std::string> tensors = std::move(it->second);
  launched_.erase(it);
  end_operation(event.seq, tensors, Status::ok(), output);
  launch_ordered(output);
}

void JobCore::on(const OperationFailed& event, Output& output) { fail(event.status, output); }

void JobCore::end_operation(Seq seq, const std::vector<std::string>& tensors, const Status& status,
                            Output& output) {
  for (const std::string& name : tensors) {
    // What failed may be the tensor's next turn, which this node has not submitted.
    if (!status.is_ok() && is_under_way(name)) continue;
    for (const LocalSubmission& submission : submissions_.remove(name)) {
      deliver(submission, status, seq, output);
    }
  }
  agreement_->on_operation_ended(seq);
}

bool JobCore::is_under_way(const std::string& tensor) const {
  return std::any_of(launched_.begin(), launched_.end(), [&](const auto& entry) {
    return std::find(entry.second.begin(), entry.second.end(), tensor) != entry.second.end();
  });
}

void JobCore::deliver(const LocalSubmission& submission, const Status& status, Seq seq,
                      Output& output) {
  if (status.is_ok()) stalls_.on_completed(submission, now_);
  output.deliveries.push_back({submission.rank, submission.ticket, status, epoch_,
                               status.is_ok() ? static_cast<uint32_t>(layout_.world_size()) : 0,
                               seq, submission.descriptor->bytes()});
}

void JobCore::carry_out(StallOutput& said, Output& output) {
  for (auto& [to, message] : said.sends) send(to, std::move(message), output);
  std::move(said.lines.begin(), said.lines.end(), std::back_inserter(output.stall_lines));
  if (!said.failure.is_ok()) fail(said.failure, output);
}

void JobCore::send(NodeIndex to, decltype(Message::body) body, Output& output) {
  Message message{self_, epoch_, 0, std::move(body)};
  const bool counted = !std::holds_alternative<Join>(message.body) &&
                       !std::holds_alternative<Start>(message.body) &&
                       !std::holds_alternative<Fail>(message.body);
  if (counted) message.number = ++sent_number_[static_cast<size_t>(to.value)];
  output.sends.emplace_back(to, std::move(message));
}

void JobCore::send_to_others(const decltype(Message::body)& body, Output& output) {
  for (int node = 0; node < layout_.node_count(); ++node) {
    if (NodeIndex{node} != self_) send(NodeIndex{node}, body, output);
  }
}

}  // namespace rueda::core
