#include "daemon/core/job/forming.h"

#include <algorithm>
#include <utility>

#include "daemon/core/job/shared_settings.h"
#include "daemon/core/model/settings.h"
#include "daemon/core/schedules/ring_order.h"

namespace rueda::core {

Forming::Forming(const Layout& layout, NodeIndex self, const JobOptions& options,
                 const LocalRanks& ranks, MessageRouter& router)
    : layout_(layout), self_(self), options_(options), ranks_(ranks), router_(router) {}

// --- Who is there ------------------------------------------------------------------------------

void Forming::tell(Output& output) {
  set_deadline();
  next_join_ = now_ + options_.join_interval_ms;
  if (is_coordinator()) {
    const std::vector<Rank> attached = ranks_.attached();
    joined_[self_] = {{attached.begin(), attached.end()}, options_.data_address, options_.rack};
    return;
  }
  Join join;
  join.layout_hash = layout_.hash();
  join.data_address = options_.data_address;
  join.rack = options_.rack;
  join.settings = shared_settings(options_);
  join.attached = ranks_.attached();
  for (const auto& [node, joined] : joined_) {
    join.below.push_back(
        {node, joined.data_address, {joined.attached.begin(), joined.attached.end()}, joined.rack});
  }
  router_.send(kNodeAbove, std::move(join), output);
}

void Forming::set_deadline() {
  // Members wait a little longer than the coordinator, whose message names who is missing.
  if (!deadline_) deadline_ = now_ + options_.start_timeout_ms + (is_coordinator() ? 0 : 2'000);
}

Status Forming::on_join(NodeIndex from, const Join& join, Output& output) {
  bool has_news = false;
  for (const Join::Below& said : join.below) {
    const Result<bool> is_news = note(from, said);
    if (!is_news.is_ok()) return is_news.status();
    has_news |= is_news.value();
  }
  const Result<bool> is_news = note(from, {from, join.data_address, join.attached, join.rack});
  if (!is_news.is_ok()) return is_news.status();
  has_news |= is_news.value();
  set_deadline();
  // Other news is told when the next Join is due.
  if (!is_coordinator() && has_news && (all_below_joined() || nobody_waits())) tell(output);
  return Status::ok();
}

Result<bool> Forming::note(NodeIndex from, const Join::Below& said) {
  const TreeLinks& links = router_.links();
  const bool is_below =
      from == self_ || (links.children().contains(from) && layout_.is_member(said.node) &&
                        links.next_hop(said.node) == from);
  if (!is_below) {
    return Status(Code::kInternal, "node " + layout_.node(from).node_id +
                                       " speaks for node index " + std::to_string(said.node.value) +
                                       " of job " + options_.job + ", which is not below it");
  }
  for (const Rank rank : said.attached) {
    if (layout_.has_rank(rank) && layout_.node_of(rank) == said.node) continue;
    return Status(Code::kInternal, "node " + layout_.node(said.node).node_id + " says that rank " +
                                       std::to_string(rank.value) + " of job " + options_.job +
                                       " is attached there, where the layout does not have it");
  }
  JoinedNode node{{said.attached.begin(), said.attached.end()}, said.data_address, said.rack};
  return std::exchange(joined_[said.node], node) != node;
}

bool Forming::has_joined(NodeIndex node) const {
  const auto it = joined_.find(node);
  return it != joined_.end() && it->second.attached.size() == layout_.node(node).ranks.size();
}

bool Forming::all_below_joined() const {
  const std::vector<NodeIndex> below = router_.links().tree().subtree(self_);
  return std::all_of(below.begin(), below.end(),
                     [&](NodeIndex node) { return node == self_ || has_joined(node); });
}

bool Forming::nobody_waits() const {
  return ranks_.count() == 0 && std::all_of(joined_.begin(), joined_.end(), [](const auto& entry) {
           return entry.second.attached.empty();
         });
}

Status Forming::check(NodeIndex from, const Join& join) const {
  const std::string& theirs = layout_.node(from).node_id;
  const std::string& ours = layout_.node(self_).node_id;
  if (join.layout_hash != layout_.hash()) {
    return {Code::kMismatch, "node " + theirs + " was told another layout of job " + options_.job +
                                 " than node " + ours +
                                 "; start the launchers of all nodes with the same options"};
  }
  const std::optional<std::string> mismatch =
      difference(options_.job, {ours, shared_settings(options_)}, {theirs, join.settings});
  return mismatch ? Status(Code::kMismatch, *mismatch) : Status::ok();
}

// --- Start -------------------------------------------------------------------------------------

bool Forming::is_complete() const {
  const std::vector<NodeIndex>& members = layout_.members();
  return is_coordinator() && std::all_of(members.begin(), members.end(),
                                         [&](NodeIndex node) { return has_joined(node); });
}

Start Forming::start() const {
  Start start;
  start.data_addresses.resize(static_cast<size_t>(layout_.node_count()));
  for (const NodeIndex node : layout_.members()) {
    start.data_addresses[static_cast<size_t>(node.value)] = joined_.at(node).data_address;
  }
  start.ring = choose_ring();
  return start;
}

std::vector<NodeIndex> Forming::choose_ring() const {
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

void Forming::end() {
  deadline_.reset();
  joined_.clear();
}

// --- Time --------------------------------------------------------------------------------------

std::optional<TicksMs> Forming::wakes_at() const {
  return deadline_ && tells_parent() ? std::min(*deadline_, next_join_) : deadline_;
}

Status Forming::on_time(Output& output) {
  if (!deadline_) return Status::ok();
  if (nobody_waits()) {
    deadline_.reset();
  } else if (now_ >= *deadline_) {
    return describe_timeout();
  } else if (tells_parent() && now_ >= next_join_) {
    tell(output);
  }
  return Status::ok();
}

Status Forming::describe_timeout() const {
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

}  // namespace rueda::core
