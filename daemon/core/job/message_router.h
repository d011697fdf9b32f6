// Decides which control link a message takes along the tree of a job's nodes (model/tree.h), and
// whether all messages of a node have come. It writes what has to be sent into Output; messages
// that come from other nodes are checked here before anybody reads them. JobCore (job.h) owns it,
// and TreeHandover changes its links when a node leaves. The class is pure.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "daemon/core/job/job_events.h"
#include "daemon/core/messages/messages.h"
#include "daemon/core/model/layout.h"
#include "daemon/core/model/tree.h"

namespace rueda::core {

class MessageRouter {
 public:
  // The fate of a message that came: it is for this node, it was passed on, or both.
  enum class Passage { kHere, kPassedOn, kBoth };

  // The layout outlives this object. With `fan_in` 0 there is no tree, and every node is the
  // coordinator's child.
  MessageRouter(const Layout& layout, NodeIndex self, int fan_in);

  // The node enters this epoch: links are again as the layout's members have them, messages are
  // numbered from 1, and nothing is held back.
  void begin(Epoch epoch);

  const TreeLinks& links() const { return links_; }
  bool has_tree() const { return fan_in_ > 0; }

  // --- Sending
  // Sends along the tree. `to` is a node, kEverybodyBelow or kNodeAbove; nothing is sent to a node
  // that has left. `set` is the process set that the message is about.
  void send(NodeIndex to, decltype(Message::body) body, Output& output, uint32_t set = 0);
  // Sends a message that came from another node in the same way.
  void pass_on(Message message, NodeIndex to, Output& output);
  // Sends over the link to this node, whether or not that is a link of the tree.
  void send_straight(NodeIndex to, decltype(Message::body) body, Output& output);
  // Returns the number of the last message over the link to the node that was counted.
  uint64_t sent_to(NodeIndex node) const { return sent_[static_cast<size_t>(node.value)]; }

  // --- Receiving
  // Returns false if the message has come before. An error says which messages before it are
  // missing.
  Result<bool> accept_number(const Message& message);
  // Returns an error unless all messages of the node up to the number `last` have come.
  Status check_received(NodeIndex from, uint64_t last) const;
  // Passes the message on if it is for others, too. An error ends the epoch: the sender had no
  // reason to send the message this way.
  Result<Passage> take_in(const Message& message, Output& output);

  // --- Links that change while an epoch runs
  // Holds back what goes to the parent, until release() sends it in its order.
  void hold_upwards() { is_holding_ = true; }
  void release(Output& output);
  void add_child(NodeIndex node) { links_.add_child(node); }
  void remove_child(NodeIndex node) { links_.remove_child(node); }
  void set_parent(NodeIndex node) { links_.set_parent(node); }

 private:
  TreeLinks make_links() const;
  // Numbers the message, unless its kind is repeated until it is answered.
  void emit(NodeIndex to, Message message, Output& output);

  const Layout& layout_;
  const NodeIndex self_;
  const int fan_in_;
  Epoch epoch_{1};
  TreeLinks links_;
  std::vector<uint64_t> sent_;      // The number of the last message, by node.
  std::vector<uint64_t> received_;  // The number of the last message, by node.
  bool is_holding_ = false;
  std::vector<std::pair<NodeIndex, Message>> held_;  // Held messages, and whom they are for.
};

}  // namespace rueda::core
