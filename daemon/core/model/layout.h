// The layout of a job: which rank lives on which node. It is the same on every node.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/status.h"

namespace rueda::core {

struct LayoutNode {
  std::string node_id;
  std::string control_address;  // The address has the form "host:port".
  std::vector<Rank> ranks;      // The ranks ascend; the position of a rank is its local rank.

  bool operator==(const LayoutNode&) const = default;
};

// The nodes of a job, which of them are members, and in which order these stand in the ring. The
// lowest member coordinates. At first all nodes are members; a job that shrinks goes on with fewer,
// and nodes and ranks keep their numbers. In the layout of a process set only nodes with one of its
// ranks are members, and the job's coordinator coordinates, whether or not it is a member.
class Layout {
 public:
  // Makes a layout in which all nodes are members. Every rank from 0 to world size - 1 must be on
  // exactly one node, every node must have a rank, and node ids must differ; the error names what
  // is wrong.
  static Result<Layout> make(std::vector<LayoutNode> nodes);

  // Returns the layout of a process set: the same nodes, with these ranks alone. The ranks must be
  // ascending and distinct, and be in this layout.
  Layout subset(const std::vector<Rank>& ranks) const;

  // Returns the layout of a ring of ranks: each rank of the members is a node by itself, and the
  // ranks of one node stand next to each other. Several of these nodes have the same node id.
  Layout by_rank() const;

  int node_count() const { return static_cast<int>(nodes_->size()); }
  // The job's number of ranks; all ranks are below it.
  int world_size() const { return world_size_; }
  const LayoutNode& node(NodeIndex index) const;
  NodeIndex node_of(Rank rank) const { return node_of_[static_cast<size_t>(rank.value)]; }
  // Returns whether the rank is on one of the members.
  bool has_rank(Rank rank) const {
    return rank.value >= 0 && rank.value < world_size_ && node_of(rank).value >= 0 &&
           is_member(node_of(rank));
  }

  // The members, in ascending order. There is at least one.
  const std::vector<NodeIndex>& members() const { return members_; }
  bool is_member(NodeIndex node) const {
    return std::binary_search(members_.begin(), members_.end(), node);
  }
  int member_ranks() const;
  std::vector<Rank> ranks() const;  // The members' ranks, in ascending order.
  // The members as they stand in the ring: in ascending order, or as set_ring() was told.
  const std::vector<NodeIndex>& ring() const { return ring_; }
  // Returns the member's position in ring().
  NodeIndex ring_index(NodeIndex member) const;
  // Sets the order of the ring. An empty vector means the ascending order. Returns an error if the
  // vector does not have each member exactly once.
  [[nodiscard]] Status set_ring(std::vector<NodeIndex> ring);
  NodeIndex coordinator() const { return coordinator_; }
  // These return the member's neighbours in the ring.
  NodeIndex next(NodeIndex member) const;
  NodeIndex previous(NodeIndex member) const;
  // Leaves these as the only members; they must be members now. The ring closes around the others.
  // Must not be called on the layout of a process set.
  void shrink_to(std::vector<NodeIndex> members);
  // Returns a hash over node ids and ranks, because nodes that were told different layouts must not
  // run together.
  uint64_t hash() const;

 private:
  Layout() = default;
  // All copies share it, because a simulator has a copy for each node of a job.
  std::shared_ptr<const std::vector<LayoutNode>> nodes_;
  std::vector<NodeIndex> node_of_;  // The index is the rank.
  std::vector<NodeIndex> members_;
  std::vector<NodeIndex> ring_;
  NodeIndex coordinator_{0};
  int world_size_ = 0;
};

}  // namespace rueda::core
