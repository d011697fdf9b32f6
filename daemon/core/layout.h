// Which rank lives on which node of a job. The same on every node.
#pragma once

#include <string>
#include <vector>

#include "daemon/base/status.h"

namespace rueda::core {

struct LayoutNode {
  std::string node_id;
  std::string control_address;  // "host:port"
  std::vector<Rank> ranks;      // ascending; the local rank is the position

  bool operator==(const LayoutNode&) const = default;
};

// Immutable once made. Node 0 coordinates.
class Layout {
 public:
  // Every rank from 0 to world size - 1 must be on exactly one node, every node must have one, node
  // ids must differ; the error names what is wrong.
  static Result<Layout> make(std::vector<LayoutNode> nodes);

  int node_count() const { return static_cast<int>(nodes_.size()); }
  int world_size() const { return world_size_; }
  const LayoutNode& node(NodeIndex index) const;
  NodeIndex node_of(Rank rank) const { return node_of_[static_cast<size_t>(rank.value)]; }
  bool has_rank(Rank rank) const { return rank.value >= 0 && rank.value < world_size_; }
  NodeIndex coordinator() const { return NodeIndex{0}; }
  NodeIndex next(NodeIndex node) const { return NodeIndex{(node.value + 1) % node_count()}; }
  NodeIndex previous(NodeIndex node) const {
    return NodeIndex{(node.value + node_count() - 1) % node_count()};
  }
  // Over node ids and ranks: nodes that were told different layouts must not run together.
  uint64_t hash() const;

 private:
  Layout() = default;
  std::vector<LayoutNode> nodes_;
  std::vector<NodeIndex> node_of_;  // by rank
  int world_size_ = 0;
};

}  // namespace rueda::core
