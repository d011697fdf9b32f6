// Who has a control link to whom. The members of a job are a tree, in their order, with the
// coordinator at its root: member i's parent is member (i - 1) / fan-in. In a job of few nodes the
// fan-in is the number of nodes: everybody is the coordinator's child.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <vector>

#include "daemon/core/model/layout.h"

namespace rueda::core {

// The same on all nodes.
struct TreeOptions {
  int threshold = 64;  // in jobs with more nodes than that,
  int fan_in = 32;     // no node has more children than this. At least 1
};

class Tree {
 public:
  Tree(const Layout& layout, int fan_in) : members_(layout.members()), fan_in_(fan_in) {}

  int fan_in() const { return fan_in_; }
  NodeIndex root() const { return members_.front(); }
  // Of a member that is not the root.
  NodeIndex parent(NodeIndex member) const;
  std::vector<NodeIndex> children(NodeIndex member) const;
  // The member and all that are below it, each after its parent.
  std::vector<NodeIndex> subtree(NodeIndex member) const;
  bool is_member(NodeIndex node) const;

 private:
  size_t place_of(NodeIndex member) const;

  std::vector<NodeIndex> members_;
  int fan_in_;
};

// One node's links, and which of them leads where.
class TreeLinks {
 public:
  TreeLinks(const Tree& tree, NodeIndex self);

  bool is_root() const { return self_ == tree_.root(); }
  NodeIndex parent() const { return parent_; }  // the root's: itself
  const std::set<NodeIndex>& children() const { return children_; }
  std::vector<NodeIndex> neighbours() const;
  bool is_neighbour(NodeIndex node) const;
  // The child that leads to the member, or else the parent. None: it was below, and has gone.
  std::optional<NodeIndex> next_hop(NodeIndex to) const;
  // The members that the link to the child leads to.
  std::vector<NodeIndex> reached_by(NodeIndex child) const;
  const Tree& tree() const { return tree_; }

  // A node that leaves hands its children over to its parent.
  void add_child(NodeIndex node) { children_.insert(node); }
  void remove_child(NodeIndex node) { children_.erase(node); }
  void set_parent(NodeIndex node) { parent_ = node; }

 private:
  Tree tree_;
  NodeIndex self_;
  NodeIndex parent_;
  std::set<NodeIndex> children_;
};

}  // namespace rueda::core
