// Which rank lives on which node of a job. The same on every node.
#pragma once

#include <algorithm>
#include <memory>
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

// The lowest member coordinates. At first all nodes are members; a job that shrinks goes on with
// fewer, and nodes and ranks keep their numbers. In the layout of a process set only nodes with one
// of its ranks are members, and the job's coordinator coordinates, member or not.
class Layout {
 public:
  // Every rank from 0 to world size - 1 must be on exactly one node, every node must have one, node
  // ids must differ; the error names what is wrong.
  static Result<Layout> make(std::vector<LayoutNode> nodes);

  // The layout of a process set: the same nodes, with these ranks alone. They are ascending and
  // distinct, and this layout has them all.
  Layout subset(const std::vector<Rank>& ranks) const;

  // The layout of a ring of ranks: each of the members' is a node by itself, those of one node next
  // to each other. Node ids come again.
  Layout by_rank() const;

  int node_count() const { return static_cast<int>(nodes_->size()); }
  int world_size() const { return world_size_; }  // of the job: ranks are below it
  const LayoutNode& node(NodeIndex index) const;
  NodeIndex node_of(Rank rank) const { return node_of_[static_cast<size_t>(rank.value)]; }
  // The rank is one of a member's.
  bool has_rank(Rank rank) const {
    return rank.value >= 0 && rank.value < world_size_ && node_of(rank).value >= 0 &&
           is_member(node_of(rank));
  }

  // Ascending, never empty.
  const std::vector<NodeIndex>& members() const { return members_; }
  bool is_member(NodeIndex node) const {
    return std::binary_search(members_.begin(), members_.end(), node);
  }
  int member_ranks() const;
  std::vector<Rank> ranks() const;  // the members', ascending
  // The members as they stand in the ring: ascending, or as set.
  const std::vector<NodeIndex>& ring() const { return ring_; }
  // The place of a member in it.
  NodeIndex ring_index(NodeIndex member) const;
  // From now on this one; empty: ascending. The error says that it does not have each member once.
  [[nodiscard]] Status set_ring(std::vector<NodeIndex> ring);
  NodeIndex coordinator() const { return coordinator_; }
  // The members around this one in the ring.
  NodeIndex next(NodeIndex member) const;
  NodeIndex previous(NodeIndex member) const;
  // From now on only these, which are members now; the ring closes around the others. Not the
  // layout of a process set.
  void shrink_to(std::vector<NodeIndex> members);
  // Over node ids and ranks: nodes that were told different layouts must not run together.
  uint64_t hash() const;

 private:
  Layout() = default;
  // Shared by all copies: a simulator has one for each node of a job.
  std::shared_ptr<const std::vector<LayoutNode>> nodes_;
  std::vector<NodeIndex> node_of_;  // by rank
  std::vector<NodeIndex> members_;
  std::vector<NodeIndex> ring_;
  NodeIndex coordinator_{0};
  int world_size_ = 0;
};

}  // namespace rueda::core
