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
  if (!start_deadline_) {
    // Members wait a little longer than the coordinator, whose message names who is missing.
    start_deadline_ = now_ + options_.start_timeout_ms + (is_coordinator() ? 0 : 2'000);
  }
  Join join;
  join.layout_hash = layout_.hash();
  join.coordination = options_.agreement.mode;
  join.cache_capacity = options_.agreement.cache_capacity;
  join.data_address = options_.data_address;
  join.rack = options_.rack;
  join.fan_in = options_.agreement.tree_fan_in;
  join.algorithm = options_.algorithm;
  join.is_tuned = options_.is_tuned;
  join.reducer = options_.reducer;
  join.inter_node = options_.inter_node;
  join.attached = ranks_.attached();
  next_join_ = now_ + options_.join_interval_ms;
  if (is_coordinator()) {
    on_join(self_, epoch_, join, output);
    return;
  }
  for (const auto& [node, joined] : joined_) {
    join.below.push_back(
        {node, joined.data_address, {joined.attached.begin(), joined.attached.end()}, joined.rack});
  }
  router_.send(kNodeAbove, std::move(join), output);
}

void JobCore::on_join(NodeIndex from, Epoch epoch, const Join& join, Output& output) {
  if (epoch != epoch_) return;
  if (state_ == JobState::kFailed) {
    router_.send_straight(from, Fail{failure_}, output);
    return;
  }
  if (state_ != JobState::kForming) return;
  if (Status fits = check_join(from, join); !fits.is_ok()) {
    fail(fits, output);
    // By the tree that it was told, this node is its parent.
    if (from != self_ && !router_.links().is_neighbour(from)) {
      router_.send_straight(from, Fail{failure_}, output);
    }
    return;
  }
  std::vector<Join::Below> said = join.below;
  said.push_back({from, join.data_address, join.attached, join.rack});
  bool has_news = false;
  for (const Join::Below& item : said) {
    const bool is_below = from == self_ || (router_.links().children().contains(from) &&
                                            layout_.is_member(item.node) &&
                                            router_.links().next_hop(item.node) == from);
    if (!is_below) {
      fail(Status(Code::kInternal, "node " + layout_.node(from).node_id +
                                       " speaks for node index " + std::to_string(item.node.value) +
                                       " of job " + options_.job + ", which is not below it"),
           output);
      return;
    }
    for (Rank rank : item.attached) {
      if (layout_.has_rank(rank) && layout_.node_of(rank) == item.node) continue;
      fail(Status(Code::kInternal, "node " + layout_.node(item.node).node_id + " says that rank " +
                                       std::to_string(rank.value) + " of job " + options_.job +
                                       " is attached there, where the layout does not have it"),
           output);
      return;
    }
    JoinedNode node{{item.attached.begin(), item.attached.end()}, item.data_address, item.rack};
    has_news |= std::exchange(joined_[item.node], node) != node;
  }
  if (!start_deadline_) {
    start_deadline_ = now_ + options_.start_timeout_ms + (is_coordinator() ? 0 : 2'000);
  }
  if (is_coordinator()) {
    start_if_complete(output);
  } else if (has_news && (all_below_joined() || nobody_waits())) {
    send_join(output);  // what else is new is told in turn
  }
}

bool JobCore::has_joined(NodeIndex node) const {
  const auto it = joined_.find(node);
  return it != joined_.end() && it->second.attached.size() == layout_.node(node).ranks.size();
}

bool JobCore::all_below_joined() const {
  const std::vector<NodeIndex> below = router_.links().tree().subtree(self_);
  return std::all_of(below.begin(), below.end(),
                     [&](NodeIndex node) { return node == self_ || has_joined(node); });
}

Status JobCore::check_join(NodeIndex from, const Join& join) const {
  const std::string& theirs = layout_.node(from).node_id;
  const std::string& ours = layout_.node(self_).node_id;
  const auto mismatch = [&](const std::string& what) { return Status(Code::kMismatch, what); };
  if (join.layout_hash != layout_.hash()) {
    return mismatch("node " + theirs + " was told another layout of job " + options_.job +
                    " than node " + ours +
                    "; start the launchers of all nodes with the same options");
  }
  const AgreementOptions& agreement = options_.agreement;
  if (join.coordination != agreement.mode) {
    return mismatch("job " + options_.job + " has coordination \"" + to_string(agreement.mode) +
                    "\" on node " + ours + " and \"" + to_string(join.coordination) +
                    "\" on node " + theirs + "; give --coordination the same value on all nodes");
  }
  if (join.cache_capacity != agreement.cache_capacity) {
    return mismatch("job " + options_.job + " has a cache of " +
                    std::to_string(agreement.cache_capacity) + " tensors on node " + ours +
                    " and of " + std::to_string(join.cache_capacity) + " on node " + theirs +
                    "; give --cache-capacity the same value on all nodes");
  }
  if (join.algorithm != options_.algorithm) {
    return mismatch("job " + options_.job + " has algorithm \"" + to_string(options_.algorithm) +
                    "\" on node " + ours + " and \"" + to_string(join.algorithm) + "\" on node " +
                    theirs + "; give --algorithm the same value on all nodes");
  }
  if (join.fan_in != agreement.tree_fan_in) {
    const auto describe = [](int fan_in) {
      return fan_in == 0 ? std::string("no tree") : "a tree of fan-in " + std::to_string(fan_in);
    };
    return mismatch("job " + options_.job + " has " + describe(agreement.tree_fan_in) +
                    " on node " + ours + " and " + describe(join.fan_in) + " on node " + theirs +
                    "; give --tree-threshold and --tree-fan-in the same values on all nodes");
  }
  if (join.is_tuned != options_.is_tuned) {
    return mismatch("job " + options_.job + " is autotuned, or replays a plan, on node " +
                    (join.is_tuned ? theirs : ours) + " and not on node " +
                    (join.is_tuned ? ours : theirs) +
                    "; give --autotune or --plan on all nodes, or on none");
  }
  if (join.reducer != options_.reducer) {
    return mismatch("job " + options_.job + " has reducer \"" + to_string(options_.reducer) +
                    "\" on node " + ours + " and \"" + to_string(join.reducer) + "\" on node " +
                    theirs + "; give --reducer the same value on all nodes");
  }
  if (join.inter_node != options_.inter_node) {
    return mismatch("job " + options_.job + " leaves what goes between nodes to \"" +
                    to_string(options_.inter_node) + "\" on node " + ours + " and to \"" +
                    to_string(join.inter_node) + "\" on node " + theirs +
                    "; give --inter-node the same value on all nodes");
  }
  return Status::ok();
}

void JobCore::start_if_complete(Output& output) {
  Start start;
  start.data_addresses.resize(static_cast<size_t>(layout_.node_count()));
  for (const NodeIndex node : layout_.members()) {
    if (!has_joined(node)) return;
    start.data_addresses[static_cast<size_t>(node.value)] = joined_.at(node).data_address;
  }
  start.ring = choose_ring();
  RUEDA_CHECK(layout_.set_ring(start.ring).is_ok());
  router_.send(kEverybodyBelow, start, output);
  begin_epoch(start.data_addresses, output);
}

std::vector<NodeIndex> JobCore::choose_ring() const {
  const std::vector<NodeIndex>& members = layout_.members();
  std::vector<std::string> racks;
  Bandwidths bandwidths;
  for (const NodeIndex node : members) {
    racks.push_back(joined_.at(node).rack);
    if (options_.bandwidths.empty()) continue;
    const std::vector<double>& measured = options_.bandwidths[static_cast<size_t>(node.value)];
    std::vector<double>& row = bandwidths.emplace_back();
    for (const NodeIndex to : members) row.push_back(measured[static_cast<size_t>(to.value)]);
  }
  std::vector<NodeIndex> ring;
  for (const int place : ring_order(racks, bandwidths)) {
    ring.push_back(members[static_cast<size_t>(place)]);
  }
  return ring;
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
  start_deadline_.reset();
  joined_.clear();
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
  held_done_.clear();
  goodbyes_.forget();
  handover_.forget();
  state_ = JobState::kForming;
  ++epoch_.value;
  router_.begin(epoch_);
  ranks_.begin_next_epoch();
  if (!ranks_.is_empty()) send_join(output);
}

bool JobCore::nobody_waits() const {
  return ranks_.count() == 0 && std::all_of(joined_.begin(), joined_.end(), [](const auto& entry) {
           return entry.second.attached.empty();
         });
}

Status JobCore::describe_start_timeout() const {
  std::string missing;
  bool is_dialled_in_vain = false;
  for (const NodeIndex member : layout_.members()) {
    if (!is_coordinator()) break;
    const LayoutNode& node = layout_.node(member);
    const auto it = joined_.find(member);
    std::string ranks;
    for (Rank rank : node.ranks) {
      if (it != joined_.end() && it->second.attached.contains(rank)) continue;
      ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank.value);
    }
    if (ranks.empty()) continue;
    is_dialled_in_vain |= it == joined_.end() && member != self_;
    missing += (missing.empty() ? "" : "; ") + std::string("rank ") + ranks + " on node " +
               node.node_id + (it == joined_.end() ? ", of which nothing was heard" : "");
  }
  if (missing.empty()) {
    missing = "word from the coordinator on node " + layout_.node(layout_.coordinator()).node_id;
  } else if (const std::string& own = layout_.node(self_).control_address;
             is_dialled_in_vain && !own.empty()) {
    missing += " (the others look for node " + layout_.node(self_).node_id + " at " + own +
               ": can they reach that address?)";
  }
  return Status(Code::kTimeout, "job " + options_.job + " did not start within " +
                                    std::to_string(options_.start_timeout_ms / 1000) +
                                    " s: waiting for " + missing);
}

// --- Suspecting and ending
// -------------------------------------------------------------------------

std::optional<TicksMs> JobCore::wakes_at() const {
  switch (state_) {
    case JobState::kForming:
      if (!start_deadline_) return std::nullopt;
      return tells_parent() ? std::min(*start_deadline_, next_join_) : *start_deadline_;
    case JobState::kRunning:
      return earlier(earlier(sets_.wakes_at(), recovery_wakes_at()), handover_.wakes_at());
    case JobState::kSuspecting:
      return earlier(earlier(suspicion_deadline_, recovery_wakes_at()), handover_.wakes_at());
    case JobState::kSealed:
    case JobState::kFailed: return recovery_wakes_at();
  }
  return std::nullopt;
}

void JobCore::on(const TimePassed&, Output& output) {
  if (epoch_goes_on()) {
    if (Status status = handover_.on_time(output); !status.is_ok()) fail(status, output);
  }
  if (state_ == JobState::kForming && start_deadline_) {
    if (nobody_waits()) {
      start_deadline_.reset();
    } else if (now_ >= *start_deadline_) {
      fail(describe_start_timeout(), output);
    } else if (tells_parent() && now_ >= next_join_) {
      send_join(output);
    }
  } else if (state_ == JobState::kSuspecting && now_ >= suspicion_deadline_) {
    for (const NodeIndex node : std::set<NodeIndex>(suspects_)) suspect(node, suspicion_, output);
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
  if (state_ == JobState::kForming && !joined_.contains(event.node)) return;  // it never was there
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
  if (state_ == JobState::kSuspecting) {
    suspects_.insert(event.node);
    if (event.is_missed) missed_.insert(event.node);
  }
  if (state_ != JobState::kRunning) return;
  // Sealed from here on. The peer may have closed because it knows the true cause, and tells it.
  state_ = JobState::kSuspecting;
  suspects_ = {event.node};
  missed_.clear();
  if (event.is_missed) missed_.insert(event.node);
  suspicion_ = event.status;
  suspicion_deadline_ = now_ + options_.suspicion_grace_ms;
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
  for (const OperationDone& done : std::exchange(held_done_, {})) on(done, output);
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
  held_done_.clear();
  goodbyes_.drop_pending();
  early_.clear();
  output.failed = failure_;
}

}  // namespace rueda::core
