#include "daemon/engine/job/job_links.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include <spdlog/spdlog.h>

#include "daemon/engine/ports/proof.h"

namespace rueda::engine {
namespace {

// Returns whether the message says who its sender is, on a link where nobody is known yet.
bool introduces_sender(const core::Message& message) {
  const auto* handover = std::get_if<core::Handover>(&message.body);
  return std::holds_alternative<core::Join>(message.body) ||
         (handover && handover->step == core::Handover::Step::kAttach);
}

}  // namespace

JobLinks::JobLinks(ControlPlane& control_plane, const JobSpec& spec, const core::JobCore& core)
    : control_plane_(control_plane),
      spec_(spec),
      core_(core),
      proof_key_(make_proof_key(spec.token, spec.job)) {
  if (!core_.is_coordinator()) link_to(core_.links().parent());
}

JobLinks::~JobLinks() {
  for (const auto& [node, link] : parents_) control_plane_.release(link);
  for (const auto& [node, link] : children_) control_plane_.unbind(link, spec_.job);
}

bool JobLinks::is_parent(NodeIndex node) const {
  return (!core_.is_coordinator() && node == core_.links().parent()) || node == core_.next_parent();
}

std::optional<LinkId> JobLinks::link_to(NodeIndex node) {
  if (!is_parent(node)) {
    const auto it = children_.find(node);
    return it == children_.end() ? std::nullopt : std::optional(it->second);
  }
  LinkId& link = parents_[node];
  if (link == 0) link = control_plane_.acquire(spec_.layout.node(node).control_address);
  return link;
}

void JobLinks::release_old_parents() {
  std::erase_if(parents_, [&](const auto& entry) {
    if (is_parent(entry.first)) return false;
    control_plane_.release(entry.second);
    return true;
  });
}

void JobLinks::send(NodeIndex to, core::Message message) {
  const std::optional<LinkId> link = link_to(to);
  if (!link) return;
  Envelope envelope{spec_.job, std::move(message), {}};
  const auto& body = envelope.message.body;
  if (introduces_sender(envelope.message) || std::holds_alternative<core::Start>(body) ||
      std::holds_alternative<core::Fail>(body)) {
    envelope.proof.key = proof_key_;
  }
  control_plane_.send(*link, envelope);
}

// A token says "of this job", and a certificate which node: what carries no proof is believed of
// the node alone that it is said to come from.
bool JobLinks::may_be(LinkId link, NodeIndex node) const {
  const std::string peer = control_plane_.node_of(link);
  return peer.empty() || peer == spec_.layout.node(node).node_id;
}

bool JobLinks::authenticate(LinkId link, const Envelope& envelope) {
  const core::Message& message = envelope.message;
  const NodeIndex from = message.sender();
  for (const NodeIndex node : {message.from, from}) {
    if (node.value < 0 || node.value >= spec_.layout.node_count() || node == spec_.self)
      return false;
  }
  if (!may_be(link, from)) return false;
  const bool is_join = introduces_sender(message);
  if (is_parent(from)) {
    if (link_to(from) != link || is_join) return false;
    return !std::holds_alternative<core::Start>(message.body) || holds(envelope.proof, proof_key_);
  }
  if (!is_join) {
    const auto it = children_.find(from);
    if (it != children_.end() && it->second == link) return true;
    // The node has failed before it joined.
    return std::holds_alternative<core::Fail>(message.body) && holds(envelope.proof, proof_key_);
  }
  if (!holds(envelope.proof, proof_key_)) return false;
  LinkId& joined_over = children_[from];
  if (joined_over == link) return true;
  if (joined_over != 0) control_plane_.unbind(joined_over, spec_.job);
  joined_over = link;
  control_plane_.bind(link, spec_.job);
  return true;
}

bool JobLinks::accepts(LinkId link, const Envelope& envelope) {
  if (authenticate(link, envelope)) return true;
  if (!std::exchange(warned_of_stranger_, true)) {
    spdlog::warn(
        "job {}: dropped a message that claims to be from node index {}: it does not prove to "
        "belong to the job; further ones are dropped silently",
        spec_.job, envelope.message.from.value);
  }
  return false;
}

std::optional<NodeIndex> JobLinks::node_behind(LinkId link) const {
  for (const auto* links : {&parents_, &children_}) {
    for (const auto& [node, known] : *links) {
      if (known == link) return node;
    }
  }
  return std::nullopt;
}

std::optional<NodeIndex> JobLinks::parent() const {
  if (core_.is_coordinator()) return std::nullopt;
  return core_.links().parent();
}

std::vector<NodeIndex> JobLinks::children() const {
  std::vector<NodeIndex> nodes;
  for (const auto& [node, link] : children_) nodes.push_back(node);
  return nodes;
}

bool JobLinks::is_below_child(NodeIndex node, NodeIndex child) const {
  const core::TreeLinks& links = core_.links();
  if (!links.children().contains(child) || !links.tree().is_member(node)) return false;
  const std::vector<NodeIndex> below = links.tree().subtree(child);
  return std::find(below.begin(), below.end(), node) != below.end();
}

std::vector<NodeIndex> JobLinks::lose(LinkId link) {
  for (const auto& [node, dialled] : parents_) {
    if (dialled == link) return {node};
  }
  std::vector<NodeIndex> lost;
  std::erase_if(children_, [&](const auto& entry) {
    if (entry.second != link) return false;
    lost.push_back(entry.first);
    return true;
  });
  return lost;
}

Status JobLinks::with_trouble(const Status& status) const {
  std::string text = status.message();
  for (const auto& [node, link] : parents_) {
    const std::string trouble = control_plane_.trouble(link);
    if (!trouble.empty()) text += "; node " + spec_.layout.node(node).node_id + ": " + trouble;
  }
  return {status.code(), text, status.origin()};
}

}  // namespace rueda::engine
