#include "daemon/core/model/layout.h"

#include <algorithm>
#include <set>

#include "daemon/base/hash.h"
#include "daemon/base/limits.h"
#include "daemon/base/one_line.h"

namespace rueda::core {
namespace {

Status invalid(const std::string& what) {
  return Status(Code::kInvalidArgument, "the job's layout " + what);
}

constexpr NodeIndex kNowhere{-1};

}  // namespace

Result<Layout> Layout::make(std::vector<LayoutNode> nodes) {
  if (nodes.empty()) return invalid("has no nodes");
  if (nodes.size() > limits::kMaxNodes) {
    return invalid("has " + std::to_string(nodes.size()) + " nodes; the limit is " +
                   std::to_string(limits::kMaxNodes));
  }
  Layout layout;
  size_t world_size = 0;
  std::set<std::string> ids;
  for (const LayoutNode& node : nodes) {
    if (node.node_id.empty() || node.node_id.size() > limits::kMaxNodeIdBytes ||
        !is_one_line(node.node_id)) {
      return invalid("has a node id that is empty, longer than " +
                     std::to_string(limits::kMaxNodeIdBytes) + " bytes, or not printable");
    }
    if (!ids.insert(node.node_id).second) return invalid("names node " + node.node_id + " twice");
    if (node.ranks.empty()) return invalid("gives node " + node.node_id + " no rank");
    if (node.ranks.size() > limits::kMaxLocalRanks) {
      return invalid("gives node " + node.node_id + " " + std::to_string(node.ranks.size()) +
                     " ranks; the limit is " + std::to_string(limits::kMaxLocalRanks));
    }
    if (!std::is_sorted(node.ranks.begin(), node.ranks.end())) {
      return invalid("lists the ranks of node " + node.node_id + " out of order");
    }
    world_size += node.ranks.size();
  }
  if (world_size > limits::kMaxRanks) return invalid("has more ranks than the limit allows");

  layout.node_of_.assign(world_size, kNowhere);
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (Rank rank : nodes[i].ranks) {
      if (rank.value < 0 || static_cast<size_t>(rank.value) >= world_size) {
        return invalid("has rank " + std::to_string(rank.value) + " in a world of " +
                       std::to_string(world_size));
      }
      NodeIndex& place = layout.node_of_[static_cast<size_t>(rank.value)];
      if (place != kNowhere) return invalid("has rank " + std::to_string(rank.value) + " twice");
      place = NodeIndex{static_cast<int32_t>(i)};
    }
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    layout.members_.push_back(NodeIndex{static_cast<int32_t>(i)});
  }
  layout.ring_ = layout.members_;
  layout.nodes_ = std::make_shared<const std::vector<LayoutNode>>(std::move(nodes));
  layout.world_size_ = static_cast<int>(world_size);
  return layout;
}

Layout Layout::subset(const std::vector<Rank>& ranks) const {
  Layout layout = *this;
  std::vector<LayoutNode> nodes = *nodes_;
  for (LayoutNode& node : nodes) node.ranks.clear();
  std::fill(layout.node_of_.begin(), layout.node_of_.end(), kNowhere);
  for (Rank rank : ranks) {
    RUEDA_CHECK(has_rank(rank));
    layout.node_of_[static_cast<size_t>(rank.value)] = node_of(rank);
    nodes[static_cast<size_t>(node_of(rank).value)].ranks.push_back(rank);
  }
  layout.nodes_ = std::make_shared<const std::vector<LayoutNode>>(std::move(nodes));
  const auto has_no_rank = [&](NodeIndex node) { return layout.node(node).ranks.empty(); };
  std::erase_if(layout.members_, has_no_rank);
  std::erase_if(layout.ring_, has_no_rank);
  return layout;
}

Layout Layout::by_rank() const {
  Layout layout;
  layout.world_size_ = world_size_;
  layout.node_of_.assign(static_cast<size_t>(world_size_), kNowhere);
  std::vector<LayoutNode> nodes;
  for (const NodeIndex member : members_) {
    const LayoutNode& whole = node(member);
    for (const Rank rank : whole.ranks) {
      const NodeIndex own{static_cast<int32_t>(nodes.size())};
      nodes.push_back({whole.node_id, whole.control_address, {rank}});
      layout.members_.push_back(own);
      layout.node_of_[static_cast<size_t>(rank.value)] = own;
    }
  }
  layout.nodes_ = std::make_shared<const std::vector<LayoutNode>>(std::move(nodes));
  for (const NodeIndex member : ring_) {
    for (const Rank rank : node(member).ranks) layout.ring_.push_back(layout.node_of(rank));
  }
  return layout;
}

std::vector<Rank> Layout::ranks() const {
  std::vector<Rank> ranks;
  for (int32_t rank = 0; rank < world_size_; ++rank) {
    if (has_rank(Rank{rank})) ranks.push_back(Rank{rank});
  }
  return ranks;
}

NodeIndex Layout::ring_index(NodeIndex member) const {
  const auto it = std::find(ring_.begin(), ring_.end(), member);
  RUEDA_CHECK(it != ring_.end());
  return NodeIndex{static_cast<int32_t>(it - ring_.begin())};
}

const LayoutNode& Layout::node(NodeIndex index) const {
  RUEDA_CHECK(index.value >= 0 && index.value < node_count());
  return (*nodes_)[static_cast<size_t>(index.value)];
}

int Layout::member_ranks() const {
  size_t ranks = 0;
  for (const NodeIndex member : members_) ranks += node(member).ranks.size();
  return static_cast<int>(ranks);
}

NodeIndex Layout::next(NodeIndex member) const {
  const auto place = static_cast<size_t>(ring_index(member).value);
  return ring_[(place + 1) % ring_.size()];
}

NodeIndex Layout::previous(NodeIndex member) const {
  const auto place = static_cast<size_t>(ring_index(member).value);
  return ring_[(place + ring_.size() - 1) % ring_.size()];
}

Status Layout::set_ring(std::vector<NodeIndex> ring) {
  if (ring.empty()) ring = members_;
  std::vector<NodeIndex> sorted = ring;
  std::sort(sorted.begin(), sorted.end());
  if (sorted != members_) return invalid("was given a ring that does not have each member once");
  ring_ = std::move(ring);
  return Status::ok();
}

void Layout::shrink_to(std::vector<NodeIndex> members) {
  RUEDA_CHECK(!members.empty() &&
              std::includes(members_.begin(), members_.end(), members.begin(), members.end()));
  members_ = std::move(members);
  std::erase_if(ring_, [&](NodeIndex node) { return !is_member(node); });
  coordinator_ = members_.front();
}

uint64_t Layout::hash() const {
  Fnv1a h;
  h.add(nodes_->size());
  for (const LayoutNode& node : *nodes_) {
    h.add(node.node_id).add(node.ranks.size());
    for (Rank rank : node.ranks) h.add(static_cast<uint64_t>(rank.value));
  }
  return h.value();
}

}  // namespace rueda::core
