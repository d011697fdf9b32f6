#include "daemon/core/modes/sleep_agreement.h"

#include <algorithm>
#include <string>
#include <utility>

namespace rueda::core {

SleepAgreement::SleepAgreement(const Layout& layout, NodeIndex self,
                               const AgreementOptions& options)
    : layout_(layout), self_(self), cycle_time_us_(options.cycle_time_us) {
  if (options.tree_fan_in > 0) tree_.emplace(layout, options.tree_fan_in);
  if (self == layout.coordinator()) {
    awaited_.insert(layout.members().begin(), layout.members().end());
  } else if (tree_) {
    const std::vector<NodeIndex> below = tree_->subtree(self);
    awaited_.insert(below.begin(), below.end());
    is_combining_ = true;
  } else {
    awaited_.insert(self);
  }
}

void SleepAgreement::begin(uint64_t round, TicksUs own_us) {
  is_under_way_ = true;
  has_said_ = false;
  round_ = round;
  told_.clear();
  if (layout_.is_member(self_)) told_.emplace(self_, own_us);
}

Result<std::vector<NodeIndex>> SleepAgreement::tellers(NodeIndex from, const Ready& ready) const {
  const auto broken = [&](const std::string& what) {
    return Status(Code::kInternal, "node " + layout_.node(from).node_id + " told node " +
                                       layout_.node(self_).node_id + " a sleep" + what);
  };
  const bool is_told_all = self_ == layout_.coordinator();
  if (!is_told_all && awaited_.size() == 1) return broken(", which does not coordinate");
  if (*ready.sleep_us < 0 || *ready.sleep_us > cycle_time_us_) {
    return broken(" of " + std::to_string(*ready.sleep_us) + " us, in a cycle of " +
                  std::to_string(cycle_time_us_) + " us");
  }
  if (!tree_ && !ready.of) return std::vector<NodeIndex>{from};
  std::vector<NodeIndex> below = tree_ ? tree_->subtree(from) : std::vector<NodeIndex>{from};
  if (std::find(below.begin(), below.end(), self_) != below.end()) {
    return broken(" of nodes of which it is one");
  }
  if (!ready.of) return below;
  if (std::find(below.begin(), below.end(), *ready.of) == below.end()) {
    return broken(" of node index " + std::to_string(ready.of->value) + ", which is not below it");
  }
  return std::vector<NodeIndex>{*ready.of};
}

Status SleepAgreement::on_sleep(NodeIndex from, const Ready& ready) {
  const Result<std::vector<NodeIndex>> nodes = tellers(from, ready);
  if (!nodes.is_ok()) return nodes.status();
  const bool is_told_all = self_ == layout_.coordinator();
  if (!is_told_all && !is_combining_) {
    for (const NodeIndex node : nodes.value()) {
      up_.push_back(of_node(ready.round, node, *ready.sleep_us));
    }
    return Status::ok();
  }
  // The coordinator did not wait for a node that was about to go, whose sleep then comes late.
  if (!is_under_way_ || ready.round != round_) {
    if (is_told_all && ready.round <= round_) return Status::ok();
    return Status(Code::kInternal,
                  "node " + layout_.node(from).node_id + " told its sleep after round " +
                      std::to_string(ready.round) + ", and " + std::to_string(round_) + " is over");
  }
  for (const NodeIndex node : nodes.value()) {
    if (awaited_.contains(node)) told_.emplace(node, *ready.sleep_us);
  }
  return Status::ok();
}

Ready SleepAgreement::of_node(uint64_t round, NodeIndex node, TicksUs sleep_us) const {
  Ready ready;
  ready.round = round;
  ready.sleep_us = sleep_us;
  if (tree_) ready.of = node;
  return ready;
}

// The least sleep of a branch stands for that of each of its nodes: it changes no least of more.
void SleepAgreement::on_rank_left() {
  if (!std::exchange(is_combining_, false) || !is_under_way_ || has_said_) return;
  for (const auto& [node, sleep_us] : told_) up_.push_back(of_node(round_, node, sleep_us));
  has_said_ = true;
}

void SleepAgreement::say(AgreementOutput& output) {
  for (Ready& ready : std::exchange(up_, {})) {
    output.sends.emplace_back(layout_.coordinator(), std::move(ready));
  }
  if (self_ == layout_.coordinator() || !is_under_way_ || has_said_) return;
  if (is_combining_ && told_.size() < awaited_.size()) return;
  has_said_ = true;
  Ready ready = of_node(round_, self_, least());
  if (is_combining_) ready.of.reset();
  output.sends.emplace_back(is_combining_ ? kNodeAbove : layout_.coordinator(), std::move(ready));
}

TicksUs SleepAgreement::least() const {
  TicksUs least_us = cycle_time_us_;
  for (const auto& [node, sleep_us] : told_) least_us = std::min(least_us, sleep_us);
  return least_us;
}

std::optional<TicksUs> SleepAgreement::agreed() const {
  if (self_ != layout_.coordinator() || !is_under_way_) return std::nullopt;
  const bool are_all_told = std::all_of(awaited_.begin(), awaited_.end(), [&](NodeIndex node) {
    return told_.contains(node) || gone_.contains(node);
  });
  return are_all_told ? std::optional(least()) : std::nullopt;
}

}  // namespace rueda::core
