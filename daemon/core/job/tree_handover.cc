#include "daemon/core/job/tree_handover.h"

#include <algorithm>
#include <string>
#include <utility>

#include "daemon/core/model/mutants.h"

namespace rueda::core {

using Step = Handover::Step;

TreeHandover::TreeHandover(const Layout& layout, NodeIndex self, const JobOptions& options,
                           const Goodbyes& goodbyes, MessageRouter& router)
    : layout_(layout), self_(self), options_(options), goodbyes_(goodbyes), router_(router) {}

std::optional<NodeIndex> TreeHandover::next_parent() const {
  return state_.move ? std::optional(state_.move->to) : std::nullopt;
}

bool TreeHandover::may_go() const {
  if (!router_.has_tree()) return true;
  if (!is_coordinator()) return state_.has_gone;
  const std::vector<NodeIndex>& members = layout_.members();
  return std::all_of(members.begin(), members.end(),
                     [&](NodeIndex node) { return goodbyes_.has_left(node); });
}

bool TreeHandover::leads_to_ranks(NodeIndex neighbour) const {
  if (neighbour == links().parent() && neighbour != layout_.coordinator()) return true;
  std::vector<NodeIndex> behind;
  if (neighbour == links().parent()) {
    // Without the parent, the nodes below this one are cut off with it.
    behind = links().tree().subtree(self_);
    std::erase(behind, self_);
  } else {
    behind = links().reached_by(neighbour);
  }
  return std::any_of(behind.begin(), behind.end(),
                     [&](NodeIndex node) { return !goodbyes_.has_left(node); });
}

// --- The node that leaves -----------------------------------------------------------------------

// During the grace period the other nodes mostly leave, too, and then no child has to move.
void TreeHandover::depart(Output& output) {
  if (!router_.has_tree() || is_coordinator() || state_.departs_at) return;
  state_.departs_at = now_ + options_.handover_grace_ms;
  hand_over_children(output);
}

void TreeHandover::hand_over_children(Output& output) {
  if (!state_.departs_at || state_.move || state_.has_gone) return;
  if (!goodbyes_.has_left(self_)) return;  // Until then this node is missed if it goes.
  if (links().children().empty()) {
    state_.has_gone = true;
    router_.send(kNodeAbove, Handover{Step::kGone, {}}, output);
    return;
  }
  if (now_ < *state_.departs_at) return;
  for (const NodeIndex child : links().children()) {
    if (!state_.told.insert(child).second) continue;
    router_.send(child, Handover{Step::kMove, links().parent()}, output);
  }
}

// --- Its children -------------------------------------------------------------------------------

Status TreeHandover::move_to(NodeIndex parent, Output& output) {
  // A node that leaves itself, and has no children or has asked them to move, needs no other
  // parent.
  if (!state_.told.empty() || state_.has_gone) return Status::ok();
  const bool can_be = layout_.is_member(parent) && parent != links().parent() &&
                      links().next_hop(parent) == links().parent() && !state_.move;
  if (!can_be) {
    return Status(Code::kInternal, "node " + layout_.node(links().parent()).node_id +
                                       " handed node " + layout_.node(self_).node_id +
                                       " over to node index " + std::to_string(parent.value) +
                                       ", which cannot be its parent");
  }
  router_.send(parent, Handover{Step::kLastUp, {}}, output);
  state_.move = Move{parent, now_ + options_.handover_timeout_ms, 0, false, {}};
  router_.hold_upwards();
  attach(output);
  return Status::ok();
}

void TreeHandover::attach(Output& output) {
  Move& move = *state_.move;
  move.next_attach = now_ + options_.join_interval_ms;
  router_.send_straight(move.to, Handover{Step::kAttach, {}}, output);
}

void TreeHandover::go_on_under_new_parent(Output& output) {
  state_.move.reset();
  router_.release(output);
  hand_over_children(output);
}

// --- Its parent, which takes them over ----------------------------------------------------------

void TreeHandover::adopt_if_ready(NodeIndex child, Output& output) {
  const bool is_drained = state_.drained.contains(child) || RUEDA_MUTANT(kLinkUsedBeforeDrained);
  if (!state_.attached.contains(child) || !is_drained) return;
  state_.attached.erase(child);
  state_.drained.erase(child);
  router_.send(child, Handover{Step::kLastDown, {}}, output);  // This goes through the leaver.
  router_.add_child(child);
  router_.send(child, Handover{Step::kAttached, {}}, output);
  hand_over_children(output);
}

// --- Messages and time --------------------------------------------------------------------------

bool TreeHandover::is_for_later(const Message& message, Output& output) {
  const NodeIndex sender = message.sender();
  const auto* handover = std::get_if<Handover>(&message.body);
  if (handover && handover->step == Step::kAttach) {
    const bool is_below = !links().is_neighbour(sender) && links().next_hop(sender) &&
                          *links().next_hop(sender) != links().parent();
    if (is_below) state_.attached.insert(sender);
    if (is_below) adopt_if_ready(sender, output);
    return true;
  }
  std::optional<Move>& move = state_.move;
  if (!move || sender != move->to || move->is_drained) return false;
  move->early.push_back(message);
  return true;
}

void TreeHandover::on_child_gone(NodeIndex child, Output& output) {
  router_.remove_child(child);
  hand_over_children(output);
}

void TreeHandover::on_passed_on(const Message& message, Output& output) {
  const auto* handover = std::get_if<Handover>(&message.body);
  if (!handover || handover->step != Step::kLastDown) return;
  on_child_gone(*message.to, output);
}

Result<std::vector<Message>> TreeHandover::on_message(const Message& message,
                                                      const Handover& handover, Output& output) {
  const NodeIndex sender = message.sender();
  const bool is_from_parent = sender == links().parent() && !links().is_root();
  std::optional<Move>& move = state_.move;
  std::vector<Message> next;
  switch (handover.step) {
    case Step::kMove:
      if (!is_from_parent) break;
      if (Status moved = move_to(handover.node, output); !moved.is_ok()) return moved;
      break;
    case Step::kLastUp:
      state_.drained.insert(message.from);
      adopt_if_ready(message.from, output);
      break;
    case Step::kLastDown:
      if (!is_from_parent || !move || message.from != move->to) break;
      move->is_drained = true;
      router_.set_parent(move->to);
      next = std::exchange(move->early, {});
      break;
    case Step::kAttached:
      if (move && sender == move->to) go_on_under_new_parent(output);
      break;
    case Step::kGone: on_child_gone(sender, output); break;
    case Step::kAttach: break;
  }
  return next;
}

std::optional<TicksMs> TreeHandover::wakes_at() const {
  if (state_.move) return std::min(state_.move->deadline, state_.move->next_attach);
  const bool is_to_depart =
      state_.departs_at && state_.told.empty() && !state_.has_gone && goodbyes_.has_left(self_);
  return is_to_depart ? state_.departs_at : std::nullopt;
}

Status TreeHandover::on_time(Output& output) {
  hand_over_children(output);
  if (!state_.move) return Status::ok();
  const NodeIndex to = state_.move->to;
  if (now_ >= state_.move->deadline) {
    const std::string& name = layout_.node(to).node_id;
    return Status(Code::kNodeLost,
                  "node " + name + " is lost: node " + layout_.node(self_).node_id +
                      " was to go on below it, and it did not answer for " +
                      std::to_string(options_.handover_timeout_ms) + " ms",
                  Origin{name, {}});
  }
  if (now_ >= state_.move->next_attach) attach(output);
  return Status::ok();
}

}  // namespace rueda::core
