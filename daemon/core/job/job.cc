#include "daemon/core/job/job.h"

#include <algorithm>
#include <utility>

#include "daemon/core/model/mutants.h"

namespace rueda::core {
namespace {

JobOptions with_tree(JobOptions options, const Layout& layout) {
  const bool has_tree =
      options.recovery.policy == DeathPolicy::kFail && layout.node_count() > options.tree.threshold;
  options.agreement.tree_fan_in = has_tree ? options.tree.fan_in : 0;
  return options;
}

std::optional<TicksMs> earlier(std::optional<TicksMs> one, std::optional<TicksMs> other) {
  if (!one || !other) return one ? one : other;
  return std::min(*one, *other);
}

std::optional<TicksUs> in_us(std::optional<TicksMs> time) {
  return time ? std::optional(to_us(*time)) : std::nullopt;
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
      epoch_(options_.first_epoch),
      router_(layout_, self, options_.agreement.tree_fan_in),
      ranks_(layout_, self),
      forming_(layout_, self, options_, ranks_, router_),
      sets_(layout_, self, options_),
      goodbyes_(layout_, sets_),
      handover_(layout_, self, options_, goodbyes_, router_) {
  router_.begin(epoch_);
}

void JobCore::step_at(TicksUs now, Event event, Output& output) {
  now_ = to_ms(now);
  sets_.set_now(now);
  handover_.set_now(now_);
  forming_.set_now(now_);
  std::visit([&](const auto& e) { on(e, output); }, event);
  carry_out_recovery(output);
  announce_channels(output);
}

Status JobCore::may_attach(LocalRank rank) const {
  const std::vector<Rank>& ranks = ranks_.all();
  if (rank.value < 0 || static_cast<size_t>(rank.value) >= ranks.size()) {
    return Status(Code::kInvalidArgument, "job " + options_.job + " has local ranks 0 to " +
                                              std::to_string(ranks.size() - 1) +
                                              " on this node, not " + std::to_string(rank.value));
  }
  // A suspicion alone is no reason to refuse the rank: a peer that ended the epoch first closes its
  // channel, and the message that all have left is on its way. Whoever attaches meanwhile waits for
  // the next epoch, or fails with all.
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

// --- The epoch forms ----------------------------------------------------------------------------

void JobCore::send_join(Output& output) {
  forming_.tell(output);
  start_if_complete(output);
}

void JobCore::on_join(NodeIndex from, Epoch epoch, const Join& join, Output& output) {
  if (epoch != epoch_) return;
  if (state_ == JobState::kFailed) {
    router_.send_straight(from, Fail{failure_}, output);
    return;
  }
  if (state_ != JobState::kForming) return;
  if (Status fits = forming_.check(from, join); !fits.is_ok()) {
    fail(fits, output);
    // The other node may have been told another tree, in which this node is its parent.
    if (from != self_ && !router_.links().is_neighbour(from)) {
      router_.send_straight(from, Fail{failure_}, output);
    }
    return;
  }
  if (Status said = forming_.on_join(from, join, output); !said.is_ok()) return fail(said, output);
  start_if_complete(output);
}

void JobCore::start_if_complete(Output& output) {
  if (!forming_.is_complete()) return;
  const Start start = forming_.start();
  RUEDA_CHECK(layout_.set_ring(start.ring).is_ok());
  router_.send(kEverybodyBelow, start, output);
  begin_epoch(start.data_addresses, output);
}

void JobCore::on_start(const Message& message, const Start& start, Output& output) {
  if (state_ != JobState::kForming || message.sender() != router_.links().parent()) return;
  if (start.data_addresses.size() != static_cast<size_t>(layout_.node_count())) {
    fail(Status(Code::kInternal,
                "the coordinator named " + std::to_string(start.data_addresses.size()) +
                    " data addresses for " + std::to_string(layout_.node_count()) + " nodes"),
         output);
    return;
  }
  const bool ignores = RUEDA_MUTANT(kRingIgnored);
  const std::vector<NodeIndex>& ring = ignores ? layout_.members() : start.ring;
  if (Status fits = layout_.set_ring(ring); !fits.is_ok()) {
    fail(Status(Code::kInternal, "the coordinator's start is wrong: " + fits.message()), output);
    return;
  }
  router_.pass_on(message, kEverybodyBelow, output);
  begin_epoch(start.data_addresses, output);
}

void JobCore::begin_epoch(const std::vector<std::string>& data_addresses, Output& output) {
  state_ = JobState::kRunning;
  forming_.end();
  recovery_.reset();
  if (options_.recovery.policy == DeathPolicy::kShrink) {
    recovery_.emplace(layout_, self_, options_.recovery, epoch_);
  }
  sets_.begin(epoch_, recovery_ ? &*recovery_ : nullptr);
  output.started = EpochStarted{epoch_, data_addresses};
  if (!recovery_) return;
  RecoveryOutput said;
  recovery_->start(now_, said);
  carry_out(std::move(said), output);
}

void JobCore::finish_epoch(Output& output) {
  // A rank leaves only when none of its submissions is in flight, so none can be left over.
  if (submissions_in_flight() > 0) {
    fail(Status(Code::kInternal, "the coordinator ended the epoch with operations in flight"),
         output);
    return;
  }
  output.finished = epoch_;
  sets_.end();
  recovery_.reset();
  early_.clear();
  suspicion_.forget();
  goodbyes_.forget();
  handover_.forget();
  state_ = JobState::kForming;
  ++epoch_.value;
  router_.begin(epoch_);
  ranks_.begin_next_epoch();
  if (!ranks_.is_empty()) send_join(output);
}

// --- The local ranks ----------------------------------------------------------------------------

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
  sets_.set_waited(event.rank, std::nullopt);  // Another process counts tickets anew.
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
    // A submission made while suspecting waits for the true cause, or for the suspicion to be
    // lifted; one made while sealed waits for the next epoch.
    case JobState::kSuspecting:
    case JobState::kSealed:
    case JobState::kRunning: break;
  }
  sets_.submit(std::move(submission), output);
}

void JobCore::on(const RankWaits& event, Output&) { sets_.set_waited(event.rank, event.ticket); }

// --- Messages -----------------------------------------------------------------------------------

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
  // Messages count while suspecting, too, because a channel may have closed after every rank has
  // left.
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
  } else if (std::holds_alternative<TransferOpen>(message.body)) {
    if (epoch_goes_on()) sets_.transfers().on_open(message.from, output);
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
    on(TurnEnded{}, output);  // An earlier message of this turn may have added the set.
    set = sets_.find(message.process_set);
  }
  if (!set) {
    // A message about a set that has been removed is late, and ignored.
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

void JobCore::on(const TransferMessageArrived& event, Output& output) {
  if (event.epoch != epoch_ || !epoch_goes_on()) return;
  const Status status =
      sets_.transfers().on_message(event.from, event.process_set, event.message, output);
  if (!status.is_ok()) fail(status, output);
}

void JobCore::on(const TransferCancelled& event, Output& output) {
  if (epoch_goes_on()) sets_.transfers().cancel(event.rank, event.ticket, output);
}

void JobCore::announce_channels(Output& output) {
  for (const NodeIndex to : sets_.transfers().take_opens()) {
    router_.send(to, TransferOpen{}, output);
  }
}

// --- Goodbyes -----------------------------------------------------------------------------------

void JobCore::on_leave(NodeIndex from, const Leave& leave, Output& output) {
  if (!is_coordinator()) {
    if (from == self_) router_.send(layout_.coordinator(), leave, output);
    return;
  }
  if (!layout_.has_rank(leave.rank) || layout_.node_of(leave.rank) != from) return;
  goodbyes_.add(from, leave.rank);
  if (from != self_ && goodbyes_.has_left(from)) {  // The node answers no more.
    for (Collectives* set : sets_.every()) {
      if (set->layout().is_member(from)) set->on_node_gone(from);
    }
  }
  announce_leaves(output);
}

// Puts pending goodbyes in force. A plan that others still follow needs the rank, so it is given up
// first.
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
    // The report of this sealed epoch must stay true, so the goodbye is only noted. But the epoch
    // may be over without recovery.
    goodbyes_.add_sealed(rank);
    if (goodbyes_.has_everybody_left()) finish_epoch(output);
    return;
  }
  for (Collectives* set : sets_.every()) {
    if (set->layout().has_rank(rank)) set->on_rank_left(rank, output);
  }
  sets_.transfers().on_rank_left(rank, output);
  if (goodbyes_.has_everybody_left()) {
    finish_epoch(output);
    return;
  }
  handover_.hand_over_children(output);
  if (state_ == JobState::kSuspecting && suspicion_.is_refuted(goodbyes_)) {
    lift_suspicion(output);
  }
}

// --- The order of operations --------------------------------------------------------------------

void JobCore::on(const TurnEnded&, Output& output) {
  // A turn ends while suspecting, too: the message that ends a suspicion may wait for a plan to be
  // given up. launch_ordered() keeps the seal. An operation that ends at once (an error) makes room
  // for the next, so the loop goes on until nothing moves.
  for (bool moved = true; moved && epoch_goes_on();) {
    moved = false;
    // Sets come and go on the way, so they are found by their ids.
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
  // Operations that are cancelled may be ordered anew, so there may be more to do.
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
  // While suspecting, the epoch is sealed and nothing is delivered (R3), unless the suspicion turns
  // out to be wrong. A recovery knows that by itself.
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

// Nothing of a collective follows from it, so it counts while the epoch is suspected, too.
void JobCore::on(const TransferDone& event, Output& output) {
  if (!epoch_goes_on()) return;
  const Status status = sets_.transfers().on_done(event.key, output);
  if (!status.is_ok()) fail(status, output);
}

void JobCore::carry_out(uint32_t set, StallOutput& said, Output& output) {
  for (auto& [to, message] : said.sends) router_.send(to, std::move(message), output, set);
  std::move(said.lines.begin(), said.lines.end(), std::back_inserter(output.stall_lines));
  if (!said.failure.is_ok()) fail(said.failure, output);
}

// --- What goes wrong ----------------------------------------------------------------------------

void JobCore::on(const OperationFailed& event, Output& output) {
  // The operation stands still at a neighbour, whom the status names.
  for (const NodeIndex member : layout_.members()) {
    if (member == self_ || layout_.node(member).node_id != event.status.origin().node_id) continue;
    suspect(member, event.status, output);
    return;
  }
  fail(event.status, output);
}

void JobCore::on(const NodeLost& event, Output& output) {
  if (state_ == JobState::kForming && !forming_.has_heard_of(event.node))
    return;  // The node never was there.
  if (recovery_) {
    suspect(event.node, event.status, output);
    return;
  }
  const bool is_new_parent = event.node == handover_.next_parent();
  if (router_.has_tree() && !router_.links().is_neighbour(event.node) && !is_new_parent) return;
  if (!is_new_parent && goodbyes_.has_left(event.node) && !handover_.leads_to_ranks(event.node)) {
    for (Collectives* set : sets_.every()) {
      if (set->layout().is_member(event.node)) set->on_node_gone(event.node);
    }
    if (router_.has_tree()) handover_.on_child_gone(event.node, output);
    on(TurnEnded{}, output);  // What the node had decreed still counts.
    const std::vector<Collectives*> sets = sets_.every();
    const bool is_missed =
        event.node == layout_.coordinator() &&
        std::any_of(sets.begin(), sets.end(), [](const auto* set) { return set->awaits_decree(); });
    const bool cuts_off = event.node == layout_.coordinator() && sets_.transfers().on_cut_off();
    if (!is_missed && !cuts_off) return;
  }
  fail(event.status, output);
}

void JobCore::on(const DataChannelLost& event, Output& output) {
  if (!layout_.is_member(event.node) || !sets_.is_wanted(event.process_set)) return;
  // The node has nothing to do here any more; but it may have gone before all that it had to pass
  // on was taken.
  if (goodbyes_.has_left(event.node) && !event.is_missed) return;
  if (state_ == JobState::kSuspecting) suspicion_.add(event.node, event.is_missed);
  if (state_ != JobState::kRunning) return;
  // The epoch is sealed from here on. The peer may have closed because it knows the true cause, and
  // tells it.
  state_ = JobState::kSuspecting;
  suspicion_.begin(event.status, now_ + options_.suspicion_grace_ms);
  suspicion_.add(event.node, event.is_missed);
  if (!recovery_) return;
  RecoveryOutput said;
  recovery_->hold_deliveries(now_, true, said);
  carry_out(std::move(said), output);
}

void JobCore::lift_suspicion(Output& output) {
  state_ = JobState::kRunning;
  for (const OperationDone& done : suspicion_.take_done()) on(done, output);
  if (recovery_) {
    RecoveryOutput said;
    recovery_->hold_deliveries(now_, false, said);
    carry_out(std::move(said), output);
  }
  for (Collectives* set : sets_.every()) launch_ordered(*set, output);
}

void JobCore::suspect(NodeIndex node, const Status& status, Output& output) {
  if (!recovery_) {
    fail(status, output);
    return;
  }
  RecoveryOutput said;
  recovery_->on_suspicion(now_, node, status.message(), said);
  carry_out(std::move(said), output);
}

void JobCore::withdraw(const Status& status, Output& output) {
  if (!recovery_) {
    fail(status, output);
    return;
  }
  if (state_ == JobState::kFailed) return;
  end(status, output);
  RecoveryOutput said;
  recovery_->withdraw(now_, status.message(), said);
  carry_out(std::move(said), output);
}

void JobCore::on(const JobClosed& event, Output& output) {
  if (ranks_.is_empty()) {  // There is nobody here who would be missed.
    if (epoch_goes_on()) handover_.depart(output);
    return;
  }
  withdraw(event.status, output);
}

void JobCore::fail(Status status, Output& output) {
  if (state_ == JobState::kFailed) return;
  end(std::move(status), output);
  recovery_.reset();
  for (const NodeIndex neighbour : router_.links().neighbours()) {
    router_.send_straight(neighbour, Fail{failure_}, output);
  }
  const std::optional<NodeIndex> next = handover_.next_parent();
  if (next && !router_.links().is_neighbour(*next)) {
    router_.send_straight(*next, Fail{failure_}, output);
  }
}

void JobCore::end(Status status, Output& output) {
  RUEDA_CHECK(!status.is_ok());
  state_ = JobState::kFailed;
  failure_ = std::move(status);
  sets_.fail(failure_, output);
  suspicion_.forget();
  goodbyes_.drop_pending();
  early_.clear();
  output.failed = failure_;
}

// --- Policy `shrink` ----------------------------------------------------------------------------

void JobCore::on_recovery_message(const Message& message, Output& output) {
  if (!recovery_) {
    // The job is over for a reason that is not the recovery's to decide.
    if (state_ == JobState::kFailed) {
      router_.send_straight(message.from, Fail{failure_}, output);
    }
    return;
  }
  const auto& body = std::get<RecoveryBody>(message.body);
  if (message.epoch == epoch_ && std::holds_alternative<Heartbeat>(body)) {
    const Status all = router_.check_received(message.from, message.number);
    if (!all.is_ok()) return suspect(message.from, all, output);
  }
  RecoveryOutput said;
  recovery_->on_message(now_, {message.from, message.epoch, body}, said);
  carry_out(std::move(said), output);
}

void JobCore::carry_out(RecoveryOutput said, Output& output) {
  const bool is_over = state_ == JobState::kFailed;
  for (auto& [to, message] : said.sends) {
    // A heartbeat says how many messages have gone before it in the epoch. So what was lost while
    // the link was down is missed, even if nothing else is said.
    const bool tells_number =
        std::holds_alternative<Heartbeat>(message.body) && message.epoch == epoch_;
    const uint64_t number = tells_number ? router_.sent_to(to) : 0;
    output.sends.emplace_back(to, Message{self_, message.epoch, number, std::move(message.body)});
  }
  if (said.next && !is_over) adopt(std::move(*said.next), output);
  if (said.sealed) on_sealed(output);
  if (is_over) return;
  for (const CompletedOperation& completed : said.deliveries) {
    sets_.all_ranks().deliver(completed, output);
  }
  const auto append = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(output.freed_partials, said.freed_partials);
  append(output.freed_finals, said.freed_finals);
  if (said.ended) {
    end(said.ended->status, output);
  } else if (!said.deliveries.empty() || !said.freed_finals.empty()) {
    launch_ordered(sets_.all_ranks(), output);
  }
}

void JobCore::on_sealed(Output& output) {
  if (state_ != JobState::kFailed) {
    state_ = JobState::kSealed;
    suspicion_.forget();
    output.sealed = epoch_;
    return;
  }
  // A job that has failed has dropped its data plane, so that is stopped already.
  on(DataStopped{recovery_->epoch(), {}}, output);
}

void JobCore::on(const DataStopped& event, Output& output) {
  if (!recovery_ || event.epoch != recovery_->epoch()) return;
  std::vector<Rank> left = ranks_.missing();  // These have said goodbye in this epoch.
  left.insert(left.end(), goodbyes_.left().begin(), goodbyes_.left().end());
  RecoveryOutput said;
  recovery_->on_stopped(now_, event.held, std::move(left), said);
  carry_out(std::move(said), output);
}

void JobCore::adopt(NextEpoch next, Output& output) {
  std::string lost;
  for (const NodeIndex node : next.lost) {
    lost += (lost.empty() ? "" : ", ") + layout_.node(node).node_id;
  }
  output.notes.push_back("epoch " + std::to_string(next.epoch.value) +
                         (lost.empty() ? " goes on with all nodes" : " goes on without " + lost) +
                         (next.reason.empty() ? "" : ": " + next.reason));
  layout_.shrink_to(next.members);
  epoch_ = next.epoch;
  router_.begin(epoch_);
  state_ = JobState::kRunning;
  goodbyes_.forget();
  sets_.adopt(next, output);
  output.recovered = next;
  // Ranks whose goodbye the decision does not know say it again.
  for (const Rank rank : ranks_.missing()) {
    if (std::find(next.left.begin(), next.left.end(), rank) != next.left.end()) continue;
    on_leave(self_, {rank, {}}, output);
  }
  if (goodbyes_.has_everybody_left()) {
    finish_epoch(output);
    return;
  }
  launch_ordered(sets_.all_ranks(), output);
  for (Message& message : std::exchange(early_, {})) on(MessageArrived{std::move(message)}, output);
}

// --- Time ---------------------------------------------------------------------------------------

std::optional<TicksUs> JobCore::wakes_at_us() const {
  const std::optional<TicksMs> recovery = recovery_ ? recovery_->deadline() : std::nullopt;
  switch (state_) {
    case JobState::kForming: return in_us(forming_.wakes_at());
    case JobState::kRunning:
      return earlier(sets_.wakes_at_us(), in_us(earlier(recovery, handover_.wakes_at())));
    case JobState::kSuspecting:
      return in_us(earlier(earlier(suspicion_.deadline(), recovery), handover_.wakes_at()));
    case JobState::kSealed:
    case JobState::kFailed: return in_us(recovery);
  }
  return std::nullopt;
}

std::optional<TicksMs> JobCore::wakes_at() const {
  const std::optional<TicksUs> wanted = wakes_at_us();
  return wanted ? std::optional(to_ms(*wanted + to_us(1) - 1)) : std::nullopt;
}

void JobCore::on(const TimePassed&, Output& output) {
  if (epoch_goes_on()) {
    if (Status status = handover_.on_time(output); !status.is_ok()) fail(status, output);
  }
  if (state_ == JobState::kForming) {
    if (Status status = forming_.on_time(output); !status.is_ok()) fail(status, output);
  } else if (state_ == JobState::kSuspecting && now_ >= suspicion_.deadline()) {
    const Status cause = suspicion_.cause();
    for (const NodeIndex node : std::set<NodeIndex>(suspicion_.nodes())) {
      suspect(node, cause, output);
    }
  } else if (state_ == JobState::kRunning) {
    for (Collectives* set : sets_.every()) {
      StallOutput said;
      set->on_time(said);
      carry_out(set->id(), said, output);
      if (state_ == JobState::kFailed) return;
    }
    StallOutput said;
    sets_.transfers().on_time(said);
    carry_out(0, said, output);
  }
  if (!recovery_) return;
  RecoveryOutput said;
  recovery_->on_time(now_, said);
  carry_out(std::move(said), output);
}

}  // namespace rueda::core
