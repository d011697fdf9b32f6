#include "daemon/core/ring_schedule.h"

#include <algorithm>

namespace rueda::core {
namespace {

// The i-th of `parts` nearly equal parts of [begin, end). Written so that it cannot overflow.
ElementRange part(ElementRange whole, int64_t i, int64_t parts) {
  const int64_t quotient = whole.count() / parts;
  const int64_t remainder = whole.count() % parts;
  const int64_t begin = whole.begin + i * quotient + std::min(i, remainder);
  return {begin, begin + quotient + (i < remainder ? 1 : 0)};
}

}  // namespace

RingCut::RingCut(int64_t elements, int nodes, int64_t max_chunk_elements)
    : elements_(elements), nodes_(nodes) {
  RUEDA_CHECK(elements >= 0 && nodes >= 1 && max_chunk_elements >= 1);
  const int64_t largest_shard = part({0, elements}, 0, nodes).count();
  const int64_t full = largest_shard / max_chunk_elements;
  pieces_ = std::max<int64_t>(1, full + (largest_shard % max_chunk_elements > 0 ? 1 : 0));
}

ElementRange RingCut::chunk(int64_t piece, int shard) const {
  RUEDA_CHECK(piece >= 0 && piece < pieces_ && shard >= 0 && shard < nodes_);
  return part(part({0, elements_}, shard, nodes_), piece, pieces_);
}

RingAction ring_on_receive(RingPhase phase, int shard, NodeIndex node, int nodes) {
  RUEDA_CHECK(nodes >= 2 && ring_may_receive(phase, shard, node, nodes));
  const int distance = ring_distance(shard, node, nodes);
  if (phase == RingPhase::kReduce) {
    return distance == nodes - 1 ? RingAction::kAddAndFinish : RingAction::kAddAndForward;
  }
  return distance == nodes - 2 ? RingAction::kStore : RingAction::kStoreAndForward;
}

}  // namespace rueda::core
