// The tree of a job's control links. The members of a job are a tree, in their order, with the
// coordinator at its root: member i's parent is member (i - 1) / fan-in. In a job of few nodes the
// fan-in is the number of nodes, so that everybody is the coordinator's child.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <vector>

#include "daemon/core/model/layout.h"

namespace rueda::core {

// The shape of the tree. All nodes of a job must have the same options.
struct TreeOptions {
  int threshold = 64;  // Jobs with more nodes than this have a tree.
  int fan_in = 32;     // No node of the tree has more children than this; at least 1.
};

class Tree {
 public:
  Tree(const Layout& layout, int fan_in) : members_(layout.members()), fan_in_(fan_in) {}

  int fan_in() const { return fan_in_; }
  NodeIndex root() const { return members_.front(); }
  // Returns the parent of a member, which must not be the root.
  NodeIndex parent(NodeIndex member) const;
  std::vector<NodeIndex> children(NodeIndex member) const;
  // Returns the member and all members below it, each after its parent.
  std::vector<NodeIndex> subtree(NodeIndex member) const;
  bool is_member(NodeIndex node) const;

 private:
  size_t place_of(NodeIndex member) const;

  std::vector<NodeIndex> members_;
  int fan_in_;
};

// The control links of one node, and which of them leads where.
class TreeLinks {
 public:
  TreeLinks(const Tree& tree, NodeIndex self);

  bool is_root() const { return self_ == tree_.root(); }
  NodeIndex parent() const { return parent_; }  // The root's parent is the root itself.
  const std::set<NodeIndex>& children() const { return children_; }
  std::vector<NodeIndex> neighbours() const;
  bool is_neighbour(NodeIndex node) const;
  // Returns the child that leads to the member, or else the parent. Returns none if the member was
  // below this node and has gone.
  std::optional<NodeIndex> next_hop(NodeIndex to) const;
  // Returns the members that the link to the child leads to.
  std::vector<NodeIndex> reached_by(NodeIndex child) const;
  const Tree& tree() const { return tree_; }

  // These change the links when a node that leaves hands its children over to its parent.
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
