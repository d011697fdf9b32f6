// How a node leaves the tree of a job that goes on: its children move to its parent
// (docs/protocol.md, "Leaving"). A link is empty before the next one is used: nothing is lost,
// comes twice, or overtakes.

#include <algorithm>
#include <utility>

#include "daemon/core/job/job.h"
#include "daemon/core/model/mutants.h"

namespace rueda::core {

using Step = Handover::Step;

std::optional<NodeIndex> JobCore::next_parent() const {
  return handover_.move ? std::optional(handover_.move->to) : std::nullopt;
}

bool JobCore::may_go() const {
  const bool is_running = state_ == JobState::kRunning || state_ == JobState::kSuspecting;
  if (!router_.has_tree() || !is_running) return true;
  if (!is_coordinator()) return handover_.has_gone;
  const std::vector<NodeIndex>& members = layout_.members();
  return std::all_of(members.begin(), members.end(),
                     [&](NodeIndex node) { return goodbyes_.has_left(node); });
}

// --- The leaver ----------------------------------------------------------------------------------

// Mostly the others are about to leave, too, and nobody has to move.
void JobCore::depart(Output& output) {
  const bool is_running = state_ == JobState::kRunning || state_ == JobState::kSuspecting;
  if (!router_.has_tree() || !is_running || is_coordinator() || handover_.departs_at) return;
  handover_.departs_at = now_ + options_.handover_grace_ms;
  hand_over_children(output);
}

void JobCore::hand_over_children(Output& output) {
  if (!handover_.departs_at || handover_.move || handover_.has_gone) return;
  if (!goodbyes_.has_left(self_)) return;  // till then it is missed
  if (router_.links().children().empty()) {
    handover_.has_gone = true;
    router_.send(kNodeAbove, Handover{Step::kGone, {}}, output);
    return;
  }
  if (now_ < *handover_.departs_at) return;
  for (const NodeIndex child : router_.links().children()) {
    if (!handover_.told.insert(child).second) continue;
    router_.send(child, Handover{Step::kMove, router_.links().parent()}, output);
  }
}

// --- Its children --------------------------------------------------------------------------------

void JobCore::move_to(NodeIndex parent, Output& output) {
  // Who leaves itself, and has no children any more, has no use for another parent.
  if (!handover_.told.empty() || handover_.has_gone) return;
  const bool can_be = layout_.is_member(parent) && parent != router_.links().parent() &&
                      router_.links().next_hop(parent) == router_.links().parent() &&
                      !handover_.move;
  if (!can_be) {
    fail(Status(Code::kInternal, "node " + layout_.node(router_.links().parent()).node_id +
                                     " handed node " + layout_.node(self_).node_id +
                                     " over to node index " + std::to_string(parent.value) +
                                     ", which cannot be its parent"),
         output);
    return;
  }
  router_.send(parent, Handover{Step::kLastUp, {}}, output);
  handover_.move = Move{parent, now_ + options_.handover_timeout_ms, 0, false, {}};
  router_.hold_upwards();
  attach(output);
}

void JobCore::attach(Output& output) {
  Move& move = *handover_.move;
  move.next_attach = now_ + options_.join_interval_ms;
  router_.send_straight(move.to, Handover{Step::kAttach, {}}, output);
}

void JobCore::go_on_under_new_parent(Output& output) {
  handover_.move.reset();
  router_.release(output);
  hand_over_children(output);
}

// --- Its parent ----------------------------------------------------------------------------------

void JobCore::adopt_if_ready(NodeIndex child, Output& output) {
  const bool is_drained = handover_.drained.contains(child) || RUEDA_MUTANT(kLinkUsedBeforeDrained);
  if (!handover_.attached.contains(child) || !is_drained) return;
  handover_.attached.erase(child);
  handover_.drained.erase(child);
  router_.send(child, Handover{Step::kLastDown, {}}, output);  // through the leaver
  router_.add_child(child);
  router_.send(child, Handover{Step::kAttached, {}}, output);
  hand_over_children(output);
}

bool JobCore::leads_to_ranks(NodeIndex neighbour) const {
  if (neighbour == router_.links().parent() && neighbour != layout_.coordinator()) return true;
  std::vector<NodeIndex> behind;
  if (neighbour == router_.links().parent()) {
    behind = router_.links().tree().subtree(self_);  // who is cut off with this node
    std::erase(behind, self_);
  } else {
    behind = router_.links().reached_by(neighbour);
  }
  return std::any_of(behind.begin(), behind.end(),
                     [&](NodeIndex node) { return !goodbyes_.has_left(node); });
}

// --- All -----------------------------------------------------------------------------------------

bool JobCore::is_for_later(const Message& message, Output& output) {
  const NodeIndex sender = message.sender();
  const auto* handover = std::get_if<Handover>(&message.body);
  if (handover && handover->step == Step::kAttach) {
    const bool is_below = !router_.links().is_neighbour(sender) &&
                          router_.links().next_hop(sender) &&
                          *router_.links().next_hop(sender) != router_.links().parent();
    if (is_below) handover_.attached.insert(sender);
    if (is_below) adopt_if_ready(sender, output);
    return true;
  }
  std::optional<Move>& move = handover_.move;
  if (!move || sender != move->to || move->is_drained) return false;
  move->early.push_back(message);
  return true;
}

void JobCore::on_passed_on(const Message& message, Output& output) {
  const auto* handover = std::get_if<Handover>(&message.body);
  if (!handover || handover->step != Step::kLastDown) return;
  router_.remove_child(*message.to);
  hand_over_children(output);
}

void JobCore::on_handover(const Message& message, const Handover& handover, Output& output) {
  const NodeIndex sender = message.sender();
  const bool is_from_parent = sender == router_.links().parent() && !router_.links().is_root();
  std::optional<Move>& move = handover_.move;
  switch (handover.step) {
    case Step::kMove:
      if (is_from_parent) move_to(handover.node, output);
      return;
    case Step::kLastUp:
      handover_.drained.insert(message.from);
      adopt_if_ready(message.from, output);
      return;
    case Step::kLastDown: {
      if (!is_from_parent || !move || message.from != move->to) return;
      move->is_drained = true;
      router_.set_parent(move->to);
      const std::vector<Message> early = std::exchange(move->early, {});
      for (const Message& each : early) on(MessageArrived{each}, output);
      return;
    }
    case Step::kAttached:
      if (move && sender == move->to) go_on_under_new_parent(output);
      return;
    case Step::kGone:
      router_.remove_child(sender);
      hand_over_children(output);
      return;
    case Step::kAttach: return;
  }
}

std::optional<TicksMs> JobCore::handover_wakes_at() const {
  if (handover_.move) return std::min(handover_.move->deadline, handover_.move->next_attach);
  const bool is_to_depart = handover_.departs_at && handover_.told.empty() && !handover_.has_gone &&
                            goodbyes_.has_left(self_);
  return is_to_depart ? handover_.departs_at : std::nullopt;
}

void JobCore::on_time_of_handover(Output& output) {
  if (state_ != JobState::kRunning && state_ != JobState::kSuspecting) return;
  hand_over_children(output);
  if (!handover_.move) return;
  const NodeIndex to = handover_.move->to;
  if (now_ >= handover_.move->deadline) {
    const std::string& name = layout_.node(to).node_id;
    fail(Status(Code::kNodeLost,
                "node " + name + " is lost: node " + layout_.node(self_).node_id +
                    " was to go on below it, and it did not answer for " +
                    std::to_string(options_.handover_timeout_ms) + " ms",
                Origin{name, {}}),
         output);
  } else if (now_ >= handover_.move->next_attach) {
    attach(output);
  }
}

}  // namespace rueda::core
