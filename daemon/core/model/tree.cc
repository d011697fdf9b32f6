#include "daemon/core/model/tree.h"

#include <algorithm>

#include "daemon/base/check.h"

namespace rueda::core {

bool Tree::is_member(NodeIndex node) const {
  return std::binary_search(members_.begin(), members_.end(), node);
}

size_t Tree::place_of(NodeIndex member) const {
  const auto at = std::lower_bound(members_.begin(), members_.end(), member);
  RUEDA_CHECK(at != members_.end() && *at == member);
  return static_cast<size_t>(at - members_.begin());
}

NodeIndex Tree::parent(NodeIndex member) const {
  const size_t place = place_of(member);
  RUEDA_CHECK(place > 0);
  return members_[(place - 1) / static_cast<size_t>(fan_in_)];
}

std::vector<NodeIndex> Tree::children(NodeIndex member) const {
  const size_t first = place_of(member) * static_cast<size_t>(fan_in_) + 1;
  const size_t end = std::min(first + static_cast<size_t>(fan_in_), members_.size());
  if (first >= end) return {};
  return {members_.begin() + static_cast<std::ptrdiff_t>(first),
          members_.begin() + static_cast<std::ptrdiff_t>(end)};
}

std::vector<NodeIndex> Tree::subtree(NodeIndex member) const {
  std::vector<NodeIndex> all{member};
  for (size_t i = 0; i < all.size(); ++i) {
    const std::vector<NodeIndex> below = children(all[i]);
    all.insert(all.end(), below.begin(), below.end());
  }
  return all;
}

TreeLinks::TreeLinks(const Tree& tree, NodeIndex self) : tree_(tree), self_(self), parent_(self) {
  if (!is_root()) parent_ = tree_.parent(self);
  const std::vector<NodeIndex> children = tree_.children(self);
  children_.insert(children.begin(), children.end());
}

std::vector<NodeIndex> TreeLinks::neighbours() const {
  std::vector<NodeIndex> all(children_.begin(), children_.end());
  if (!is_root()) all.push_back(parent_);
  return all;
}

bool TreeLinks::is_neighbour(NodeIndex node) const {
  return children_.contains(node) || (node == parent_ && !is_root());
}

std::optional<NodeIndex> TreeLinks::next_hop(NodeIndex to) const {
  for (NodeIndex at = to; at != self_; at = tree_.parent(at)) {
    if (children_.contains(at)) return at;
    if (at == tree_.root()) return parent_;
  }
  return std::nullopt;
}

std::vector<NodeIndex> TreeLinks::reached_by(NodeIndex child) const {
  std::vector<NodeIndex> reached;
  for (const NodeIndex node : tree_.subtree(child)) {
    if (next_hop(node) == child) reached.push_back(node);
  }
  return reached;
}

}  // namespace rueda::core
