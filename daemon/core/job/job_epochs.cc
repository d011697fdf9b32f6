// JobCore's epochs: how one forms, how it is suspected, how it ends.

#include <algorithm>
#include <utility>

#include "daemon/core/job/job.h"
#include "daemon/core/model/mutants.h"

namespace rueda::core {
namespace {

std::optional<TicksMs> earlier(std::optional<TicksMs> one, std::optional<TicksMs> other) {
  if (!one || !other) return one ? one : other;
  return std::min(*one, *other);
}

}  // namespace
// --- Forming -------------------------------------------------------------------------------------

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
    // By the tree that the other node was told, this node is its parent.
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
  if (recovers()) recovery_.emplace(layout_, self_, options_.recovery, epoch_);
  sets_.begin(epoch_, recovery_ ? &*recovery_ : nullptr);
  output.started = EpochStarted{epoch_, data_addresses};
  if (!recovery_) return;
  RecoveryOutput said;
  recovery_->start(now_, said);
  carry_out(std::move(said), output);
}

void JobCore::finish_epoch(Output& output) {
  // A rank leaves only when nothing of it is in flight, so nothing can be left over.
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

// --- Suspecting and ending
// -------------------------------------------------------------------------

std::optional<TicksMs> JobCore::wakes_at() const {
  switch (state_) {
    case JobState::kForming: return forming_.wakes_at();
    case JobState::kRunning:
      return earlier(earlier(sets_.wakes_at(), recovery_wakes_at()), handover_.wakes_at());
    case JobState::kSuspecting:
      return earlier(earlier(suspicion_.deadline(), recovery_wakes_at()), handover_.wakes_at());
    case JobState::kSealed:
    case JobState::kFailed: return recovery_wakes_at();
  }
  return std::nullopt;
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
  }
  if (!recovery_) return;
  RecoveryOutput said;
  recovery_->on_time(now_, said);
  carry_out(std::move(said), output);
}

void JobCore::on(const NodeLost& event, Output& output) {
  if (state_ == JobState::kForming && !forming_.has_heard_of(event.node))
    return;  // it never was there
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
    on(TurnEnded{}, output);  // what it had decreed still counts
    const std::vector<Collectives*> sets = sets_.every();
    const bool is_missed =
        event.node == layout_.coordinator() &&
        std::any_of(sets.begin(), sets.end(), [](const auto* set) { return set->awaits_decree(); });
    if (!is_missed) return;
  }
  fail(event.status, output);
}

void JobCore::on(const DataChannelLost& event, Output& output) {
  if (!layout_.is_member(event.node) || !sets_.is_wanted(event.process_set)) return;
  // It has nothing to do here any more; but it may have gone before all that it had to pass on was
  // taken.
  if (goodbyes_.has_left(event.node) && !event.is_missed) return;
  if (state_ == JobState::kSuspecting) suspicion_.add(event.node, event.is_missed);
  if (state_ != JobState::kRunning) return;
  // Sealed from here on. The peer may have closed because it knows the true cause, and tells it.
  state_ = JobState::kSuspecting;
  suspicion_.begin(event.status, now_ + options_.suspicion_grace_ms);
  suspicion_.add(event.node, event.is_missed);
  if (!recovery_) return;
  RecoveryOutput said;
  recovery_->hold_deliveries(now_, true, said);
  carry_out(std::move(said), output);
}

void JobCore::on(const OperationFailed& event, Output& output) {
  // It stands still at a neighbour, who is named.
  for (const NodeIndex member : layout_.members()) {
    if (member == self_ || layout_.node(member).node_id != event.status.origin().node_id) continue;
    suspect(member, event.status, output);
    return;
  }
  fail(event.status, output);
}

// The suspects had closed because all their ranks have left: nobody is missing.
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

void JobCore::on(const JobClosed& event, Output& output) {
  if (ranks_.is_empty()) {  // nobody here to be missed
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

}  // namespace rueda::core
