#include "daemon/core/job/job.h"

#include <algorithm>
#include <utility>

namespace rueda::core {
namespace {

JobOptions with_tree(JobOptions options, const Layout& layout) {
  const bool has_tree =
      options.recovery.policy == DeathPolicy::kFail && layout.node_count() > options.tree.threshold;
  options.agreement.tree_fan_in = has_tree ? options.tree.fan_in : 0;
  return options;
}

}  // namespace

const char* to_string(JobState state) {
  switch (state) {
    case JobState::kForming: return "forming";
    case JobState::kRunning: return "running";
    case JobState::kSuspecting: return "suspecting";
    case JobState::kSealed: return "sealed";
    case JobState::kFailed: return "failed";
  }
  return "unknown";
}

JobCore::JobCore(Layout layout, NodeIndex self, JobOptions options)
    : layout_(std::move(layout)),
      self_(self),
      options_(with_tree(std::move(options), layout_)),
      router_(layout_, self, options_.agreement.tree_fan_in),
      ranks_(layout_, self),
      forming_(layout_, self, options_, ranks_, router_),
      sets_(layout_, self, options_),
      goodbyes_(layout_, sets_),
      handover_(layout_, self, options_, goodbyes_, router_) {}

void JobCore::step(TicksMs now, Event event, Output& output) {
  now_ = now;
  sets_.set_now(now);
  handover_.set_now(now);
  forming_.set_now(now);
  std::visit([&](const auto& e) { on(e, output); }, event);
  carry_out_recovery(output);
}

const char* JobCore::mode() const { return to_string(options_.agreement.mode); }

Status JobCore::may_attach(LocalRank rank) const {
  const std::vector<Rank>& ranks = ranks_.all();
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
  if (ranks_.contains(rank)) {
    return Status(Code::kInvalidArgument, "rank " + std::to_string(global_rank(rank).value) +
                                              " of job " + options_.job +
                                              " is attached already; start each rank once");
  }
  return Status::ok();
}

// --- The local ranks ---------------------------------------------------------------------------

void JobCore::on(const RankAttached& event, Output& output) {
  if (state_ != JobState::kForming) {
    ranks_.attach_early(event.rank);
    return;
  }
  ranks_.attach(event.rank);
  send_join(output);
}

void JobCore::on(const RankDetached& event, Output& output) {
  if (ranks_.detach_early(event.rank)) return;
  sets_.set_waited(event.rank, std::nullopt);  // another process counts tickets anew
  if (sets_.submissions_of(event.rank) > 0) {
    const Rank rank = global_rank(event.rank);
    on(RankLost{event.rank,
                Status(Code::kRankLost,
                       "rank " + std::to_string(rank.value) + " on node " +
                           layout_.node(self_).node_id + " left the job with operations in flight",
                       Origin{layout_.node(self_).node_id, rank})},
       output);
    return;
  }
  ranks_.detach(event.rank);
  for (Collectives* set : sets_.every()) set->on_local_left(event.rank);
  if (state_ == JobState::kForming) {
    send_join(output);
  } else if (state_ != JobState::kFailed) {
    for (Collectives* set : sets_.added()) {
      if (!set->has(event.rank)) continue;
      const Frozen frozen = set->withdraw();
      if (frozen.generation == 0) continue;
      router_.send(layout_.coordinator(), AgreementMessage(frozen), output, set->id());
    }
    on_leave(self_, {global_rank(event.rank), sets_.all_ranks().withdraw()}, output);
  }
}

void JobCore::on(const RankLost& event, Output& output) {
  if (!ranks_.detach_early(event.rank)) ranks_.detach(event.rank);
  withdraw(event.status, output);
}

void JobCore::on(const Submitted& event, Output& output) {
  LocalSubmission submission = event.submission;
  submission.submitted_ms = now_;
  switch (state_) {
    case JobState::kForming:
      sets_.all_ranks().refuse(
          submission,
          Status(Code::kUnavailable, "job " + options_.job +
                                         " has not started: wait for rueda_init "
                                         "to return"),
          output);
      return;
    case JobState::kFailed: sets_.all_ranks().refuse(submission, failure_, output); return;
    // While suspecting it waits: for the true cause, or for the suspicion to be lifted; while
    // sealed, for the next epoch.
    case JobState::kSuspecting:
    case JobState::kSealed:
    case JobState::kRunning: break;
  }
  sets_.submit(std::move(submission), output);
}

// --- Messages ------------------------------------------------------------------------------------

void JobCore::on(const MessageArrived& event, Output& output) {
  const Message& message = event.message;
  if (const auto* join = std::get_if<Join>(&message.body)) {
    on_join(message.sender(), message.epoch, *join, output);
    return;
  }
  if (std::holds_alternative<RecoveryBody>(message.body)) {
    on_recovery_message(message, output);
    return;
  }
  if (recovery_ && message.epoch > epoch_ && state_ != JobState::kFailed) {
    early_.push_back(message);
    return;
  }
  // A message of another epoch is late, or early and will come again (Start).
  if (message.epoch != epoch_ || state_ == JobState::kFailed) return;
  if (const auto* start = std::get_if<Start>(&message.body)) {
    on_start(message, *start, output);
    return;
  }
  if (const auto* failure = std::get_if<Fail>(&message.body)) {
    fail(failure->status, output);
    return;
  }
  // While suspecting, too: a channel may have closed because every rank has left.
  if (state_ == JobState::kSealed) {
    const auto* left = std::get_if<Left>(&message.body);
    if (left && message.from == layout_.coordinator()) on_left(left->rank, output);
    return;
  }
  if (state_ == JobState::kForming || handover_.is_for_later(message, output)) return;
  const Result<bool> is_next = router_.accept_number(message);
  if (!is_next.is_ok()) {
    suspect(message.sender(), is_next.status(), output);
  } else if (is_next.value()) {
    on_numbered(message, output);
  }
}

void JobCore::on_numbered(const Message& message, Output& output) {
  const auto passage = router_.take_in(message, output);
  if (!passage.is_ok()) return fail(passage.status(), output);
  if (passage.value() != MessageRouter::Passage::kHere) handover_.on_passed_on(message, output);
  if (passage.value() == MessageRouter::Passage::kPassedOn) return;
  Status status;
  if (std::holds_alternative<AgreementMessage>(message.body) ||
      std::holds_alternative<StallMessage>(message.body)) {
    status = on_set_message(message, output);
  } else if (const auto* leave = std::get_if<Leave>(&message.body)) {
    if (leave->frozen.generation != 0) {
      status = sets_.all_ranks().on_message(message.from, AgreementMessage(leave->frozen));
    }
    if (status.is_ok()) on_leave(message.from, *leave, output);
  } else if (const auto* left = std::get_if<Left>(&message.body)) {
    if (message.from == layout_.coordinator() && !is_coordinator()) on_left(left->rank, output);
  } else if (const auto* handover = std::get_if<Handover>(&message.body)) {
    const auto next = handover_.on_message(message, *handover, output);
    status = next.status();
    if (status.is_ok()) {
      for (const Message& each : next.value()) on(MessageArrived{each}, output);
    }
  }
  if (!status.is_ok()) fail(status, output);
  announce_leaves(output);
}

Status JobCore::on_set_message(const Message& message, Output& output) {
  Collectives* set = sets_.find(message.process_set);
  if (!set) {
    on(TurnEnded{}, output);  // what was said before it may have added the set
    set = sets_.find(message.process_set);
  }
  if (!set) {
    // Of one that has been removed, it is late.
    return sets_.was_added(message.process_set) ? Status::ok() : sets_.unknown(message.process_set);
  }
  if (message.from != layout_.coordinator() && !set->layout().is_member(message.from)) {
    return Status(Code::kInternal, "node " + layout_.node(message.from).node_id +
                                       " has no rank in process set " + std::to_string(set->id()) +
                                       " and sent a message about it");
  }
  if (const auto* agreed = std::get_if<AgreementMessage>(&message.body)) {
    return set->on_message(message.from, *agreed);
  }
  StallOutput said;
  const Status status = set->on_message(message.from, std::get<StallMessage>(message.body), said);
  carry_out(set->id(), said, output);
  return status;
}

void JobCore::on_leave(NodeIndex from, const Leave& leave, Output& output) {
  if (!is_coordinator()) {
    if (from == self_) router_.send(layout_.coordinator(), leave, output);
    return;
  }
  if (!layout_.has_rank(leave.rank) || layout_.node_of(leave.rank) != from) return;
  goodbyes_.add(from, leave.rank);
  if (from != self_ && goodbyes_.has_left(from)) {  // it answers no more
    for (Collectives* set : sets_.every()) {
      if (set->layout().is_member(from)) set->on_node_gone(from);
    }
  }
  announce_leaves(output);
}

// A plan that others still follow needs the rank: it is given up first.
void JobCore::announce_leaves(Output& output) {
  if (!goodbyes_.has_pending()) return;
  bool is_needed = false;
  for (Collectives* set : sets_.every()) {
    if (!goodbyes_.concerns(*set) || !set->is_locked()) continue;
    set->withdraw();
    is_needed |= set->is_locked();
  }
  if (is_needed) return;
  for (const Rank rank : goodbyes_.take_pending()) {
    if (!epoch_goes_on()) return;
    // Left goes out before the decrees that follow from it: nodes then fail new submissions
    // themselves.
    router_.send(kEverybodyBelow, Left{rank}, output);
    on_left(rank, output);
  }
}

void JobCore::on_left(Rank rank, Output& output) {
  if (!layout_.has_rank(rank) || goodbyes_.left().contains(rank)) return;
  if (state_ == JobState::kSealed) {
    // What has been reported of this epoch must stay so. But it may be over without recovery.
    goodbyes_.add_sealed(rank);
    if (goodbyes_.has_everybody_left()) finish_epoch(output);
    return;
  }
  for (Collectives* set : sets_.every()) {
    if (set->layout().has_rank(rank)) set->on_rank_left(rank, output);
  }
  if (goodbyes_.has_everybody_left()) {
    finish_epoch(output);
    return;
  }
  handover_.hand_over_children(output);
  if (state_ == JobState::kSuspecting && suspicion_.is_refuted(goodbyes_)) {
    lift_suspicion(output);
  }
}

// --- Running -------------------------------------------------------------------------------------

void JobCore::on(const RankWaits& event, Output&) { sets_.set_waited(event.rank, event.ticket); }

void JobCore::on(const TurnEnded&, Output& output) {
  // While suspecting, too: the word that ends a suspicion may wait for a plan to be given up.
  // launch_ordered() keeps the seal.
  // An operation that ends at once (an error) makes room for the next: until nothing moves.
  for (bool moved = true; moved && epoch_goes_on();) {
    moved = false;
    // Sets come and go on the way.
    for (const uint32_t id : sets_.ids()) {
      Collectives* set = epoch_goes_on() ? sets_.find(id) : nullptr;
      if (set) moved |= end_turn_of(*set, output);
    }
  }
}

bool JobCore::end_turn_of(Collectives& set, Output& output) {
  AgreementOutput agreed = set.end_turn(output);
  for (auto& [to, body] : agreed.sends) router_.send(to, std::move(body), output, set.id());
  announce_leaves(output);
  // What is cancelled may be ordered anew.
  if (agreed.ordered.empty() || !epoch_goes_on()) return epoch_goes_on() && !agreed.cancels.empty();
  if (set.id() == 0) sets_.carry_out_changes(agreed.ordered, output);
  set.order(std::move(agreed.ordered));
  launch_ordered(set, output);
  return true;
}

void JobCore::launch_ordered(Collectives& set, Output& output) {
  if (state_ != JobState::kRunning) return;
  if (Status status = sets_.launch_ordered(set, output); !status.is_ok()) fail(status, output);
}

void JobCore::on(const OperationDone& event, Output& output) {
  // Sealed: nothing is delivered (R3), unless the suspicion turns out to be none. A recovery knows
  // that by itself.
  if (state_ == JobState::kSuspecting && !recovery_) suspicion_.keep(event);
  const bool is_wanted = state_ == JobState::kRunning || (recovery_ && state_ != JobState::kFailed);
  Collectives* set = is_wanted ? sets_.find(event.process_set) : nullptr;
  if (!set) return;
  if (Status status = set->on_done(event.seq, output); !status.is_ok()) {
    fail(status, output);
  } else if (!recovery_) {
    launch_ordered(*set, output);
  }
  carry_out_recovery(output);
}

void JobCore::on(const OperationDiverged& event, Output& output) {
  if (!epoch_goes_on()) return;
  Collectives* set = sets_.find(event.process_set);
  if (!set) return;
  const Status status = set->on_diverged(event.seq, event.generation, event.peer);
  if (!status.is_ok()) fail(status, output);
}

void JobCore::carry_out(uint32_t set, StallOutput& said, Output& output) {
  for (auto& [to, message] : said.sends) router_.send(to, std::move(message), output, set);
  std::move(said.lines.begin(), said.lines.end(), std::back_inserter(output.stall_lines));
  if (!said.failure.is_ok()) fail(said.failure, output);
}

}  // namespace rueda::core
