#include "daemon/core/job/message_router.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace rueda::core {
namespace {

bool is_attach(const Message& message) {
  const auto* handover = std::get_if<Handover>(&message.body);
  return handover && handover->step == Handover::Step::kAttach;
}

}  // namespace

MessageRouter::MessageRouter(const Layout& layout, NodeIndex self, int fan_in)
    : layout_(layout),
      self_(self),
      fan_in_(fan_in),
      links_(make_links()),
      sent_(static_cast<size_t>(layout.node_count()) + 1),
      received_(sent_.size()) {}

TreeLinks MessageRouter::make_links() const {
  return {Tree(layout_, has_tree() ? fan_in_ : layout_.node_count()), self_};
}

void MessageRouter::begin(Epoch epoch) {
  epoch_ = epoch;
  links_ = make_links();
  std::fill(sent_.begin(), sent_.end(), 0);
  std::fill(received_.begin(), received_.end(), 0);
  is_holding_ = false;
  held_.clear();
}

// --- Sending -------------------------------------------------------------------------------------

void MessageRouter::send(NodeIndex to, decltype(Message::body) body, Output& output, uint32_t set) {
  pass_on(Message{self_, epoch_, 0, std::move(body), set}, to, output);
}

void MessageRouter::send_straight(NodeIndex to, decltype(Message::body) body, Output& output) {
  emit(to, Message{self_, epoch_, 0, std::move(body)}, output);
}

void MessageRouter::pass_on(Message message, NodeIndex to, Output& output) {
  if (message.from != self_) message.passed_on_by = self_;
  if (to == kEverybodyBelow) {
    message.to = to;
    for (const NodeIndex child : links_.children()) emit(child, message, output);
    return;
  }
  const std::optional<NodeIndex> next = to == kNodeAbove ? links_.parent() : links_.next_hop(to);
  if (!next) return;  // The node has left.
  if (is_holding_ && *next == links_.parent()) {
    held_.emplace_back(to, std::move(message));
    return;
  }
  message.to.reset();
  if (to != *next && to != kNodeAbove) message.to = to;
  emit(*next, std::move(message), output);
}

void MessageRouter::emit(NodeIndex to, Message message, Output& output) {
  const bool counted = !std::holds_alternative<Join>(message.body) &&
                       !std::holds_alternative<Start>(message.body) &&
                       !std::holds_alternative<Fail>(message.body) &&
                       !std::holds_alternative<RecoveryBody>(message.body) && !is_attach(message);
  message.number = counted ? ++sent_[static_cast<size_t>(to.value)] : 0;
  output.sends.emplace_back(to, std::move(message));
}

void MessageRouter::release(Output& output) {
  is_holding_ = false;
  for (auto& [to, message] : std::exchange(held_, {})) pass_on(std::move(message), to, output);
}

// --- Receiving -----------------------------------------------------------------------------------

Result<bool> MessageRouter::accept_number(const Message& message) {
  const NodeIndex sender = message.sender();
  uint64_t& last = received_[static_cast<size_t>(sender.value)];
  if (message.number <= last) return false;
  if (Status all = check_received(sender, message.number - 1); !all.is_ok()) return all;
  last = message.number;
  return true;
}

Status MessageRouter::check_received(NodeIndex from, uint64_t last) const {
  const uint64_t received = received_[static_cast<size_t>(from.value)];
  if (last <= received) return Status::ok();
  const std::string& name = layout_.node(from).node_id;
  return Status(Code::kInternal,
                "messages " + std::to_string(received + 1) + " to " + std::to_string(last) +
                    " of node " + name + " are missing",
                Origin{name, {}});
}

Result<MessageRouter::Passage> MessageRouter::take_in(const Message& message, Output& output) {
  if (!message.to || *message.to == self_) return Passage::kHere;
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
  return is_for_all ? Passage::kBoth : Passage::kPassedOn;
}

}  // namespace rueda::core
