#include "daemon/engine/data/data_parts.h"

#include <algorithm>

namespace rueda::engine {

DataParts::DataParts(core::Reducer reducer, const core::Layout& layout, NodeIndex self)
    : ring_layout_(reducer == core::Reducer::kDevice ? layout.by_rank() : layout) {
  size_t on_node = 0;  // the members of a node stand next to each other
  for (const NodeIndex member : ring_layout_.ring()) {
    const NodeIndex node = layout.node_of(ring_layout_.node(member).ranks.front());
    on_node = !ring_.empty() && ring_.back() == node ? on_node + 1 : 1;
    max_on_a_node_ = std::max(max_on_a_node_, on_node);
    ring_.push_back(node);
    if (node == self) selves_.push_back(member);
  }
}

Result<std::unique_ptr<Operation>> DataParts::build(const core::Launch& launch, size_t part,
                                                    const FindSubmission& find) const {
  if (size() == 1) return build_operation(launch, ring_layout_, selves_.front(), find);
  core::Launch own = launch;
  own.tickets.clear();
  for (size_t i = part; i < launch.tickets.size(); i += size()) {
    own.tickets.push_back(launch.tickets[i]);
  }
  const LocalRank rank{static_cast<int32_t>(part)};
  return build_operation(
      own, ring_layout_, selves_[part],
      [&](LocalRank, Ticket ticket) -> const SubmittedBuffers& { return find(rank, ticket); });
}

}  // namespace rueda::engine
