// JobCore's links: which message goes over which of them (tree.h), and what is passed on.

#include <algorithm>
#include <utility>

#include "daemon/core/job/job.h"

namespace rueda::core {

namespace {

bool is_attach(const Message& message) {
  const auto* handover = std::get_if<Handover>(&message.body);
  return handover && handover->step == Handover::Step::kAttach;
}

}  // namespace

TreeLinks JobCore::make_links() const {
  const int fan_in = has_tree() ? options_.tree.fan_in : layout_.node_count();
  return {Tree(layout_, fan_in), self_};
}

void JobCore::send(NodeIndex to, decltype(Message::body) body, Output& output, uint32_t set) {
  pass_on(Message{self_, epoch_, 0, std::move(body), set}, to, output);
}

void JobCore::pass_on(Message message, NodeIndex to, Output& output) {
  if (message.from != self_) message.passed_on_by = self_;
  if (to == kEverybodyBelow) {
    message.to = to;
    for (const NodeIndex child : links_.children()) send_to_neighbour(child, message, output);
    return;
  }
  const std::optional<NodeIndex> next = to == kNodeAbove ? links_.parent() : links_.next_hop(to);
  if (!next) return;  // whom it is for has gone
  if (handover_.move && *next == links_.parent()) {
    handover_.move->held.emplace_back(to, std::move(message));
    return;
  }
  message.to.reset();
  if (to != *next && to != kNodeAbove) message.to = to;
  send_to_neighbour(*next, std::move(message), output);
}

void JobCore::send_to_neighbour(NodeIndex to, Message message, Output& output) {
  const bool counted = !std::holds_alternative<Join>(message.body) &&
                       !std::holds_alternative<Start>(message.body) &&
                       !std::holds_alternative<Fail>(message.body) &&
                       !std::holds_alternative<RecoveryBody>(message.body) && !is_attach(message);
  message.number = counted ? ++sent_number_[static_cast<size_t>(to.value)] : 0;
  output.sends.emplace_back(to, std::move(message));
}

Result<bool> JobCore::take_in(const Message& message, Output& output) {
  if (!message.to || *message.to == self_) return true;
  const NodeIndex to = *message.to;
  const bool is_from_above = message.sender() == links_.parent() && !links_.is_root();
  const bool is_for_all = to == kEverybodyBelow && is_from_above;
  const bool is_for_one =
      layout_.is_member(to) && (links_.next_hop(to) != links_.parent() || !is_from_above);
  if (!is_for_all && !is_for_one) {
    return Status(Code::kInternal, "node " + layout_.node(message.sender()).node_id +
                                       " sent node " + layout_.node(self_).node_id +
                                       " a message that is not to pass there");
  }
  pass_on(message, to, output);
  const auto* handover = std::get_if<Handover>(&message.body);
  if (handover && handover->step == Handover::Step::kLastDown) {
    links_.remove_child(to);
    hand_over_children(output);
  }
  return is_for_all;
}

bool JobCore::leads_to_ranks(NodeIndex neighbour) const {
  if (neighbour == links_.parent() && neighbour != layout_.coordinator()) return true;
  std::vector<NodeIndex> behind;
  if (neighbour == links_.parent()) {
    behind = links_.tree().subtree(self_);  // who is cut off with this node
    std::erase(behind, self_);
  } else {
    behind = links_.reached_by(neighbour);
  }
  return std::any_of(behind.begin(), behind.end(),
                     [&](NodeIndex node) { return !all_ranks_left(node); });
}

}  // namespace rueda::core
