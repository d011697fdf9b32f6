#include "daemon/core/schedules/ring_schedule.h"

#include <algorithm>

namespace rueda::core {
namespace {

int64_t pieces_for(int64_t largest_shard, int64_t max_chunk_elements) {
  const int64_t full = largest_shard / max_chunk_elements;
  return std::max<int64_t>(1, full + (largest_shard % max_chunk_elements > 0 ? 1 : 0));
}

}  // namespace

// This is written so that it cannot overflow.
ElementRange nearly_equal_part(ElementRange whole, int64_t i, int64_t parts) {
  const int64_t quotient = whole.count() / parts;
  const int64_t remainder = whole.count() % parts;
  const int64_t begin = whole.begin + i * quotient + std::min(i, remainder);
  return {begin, begin + quotient + (i < remainder ? 1 : 0)};
}

RingCut::RingCut(int64_t elements, int shards, int64_t max_chunk_elements)
    : elements_(elements), shards_(shards) {
  RUEDA_CHECK(elements >= 0 && shards >= 1 && max_chunk_elements >= 1);
  pieces_ = pieces_for(nearly_equal_part({0, elements}, 0, shards).count(), max_chunk_elements);
}

RingCut::RingCut(const std::vector<std::vector<ElementRange>>& rounds, int64_t max_chunk_elements)
    : shards_(static_cast<int>(rounds.front().size())) {
  RUEDA_CHECK(shards_ >= 1);
  for (const std::vector<ElementRange>& shards : rounds) add_round(shards, max_chunk_elements);
}

void RingCut::add_round(const std::vector<ElementRange>& shards, int64_t max_chunk_elements) {
  RUEDA_CHECK(max_chunk_elements >= 1 && shards.size() == static_cast<size_t>(shards_));
  int64_t largest = 0;
  for (const ElementRange& shard : shards) {
    largest = std::max(largest, shard.count());
    elements_ += shard.count();
  }
  rounds_.push_back({pieces_, pieces_for(largest, max_chunk_elements), shards});
  pieces_ += rounds_.back().pieces;
}

int RingCut::round_of(int64_t piece) const {
  if (rounds_.size() <= 1) return 0;
  const auto behind =
      std::upper_bound(rounds_.begin(), rounds_.end(), piece,
                       [](int64_t at, const Round& round) { return at < round.first_piece; });
  return static_cast<int>(behind - rounds_.begin()) - 1;
}

ElementRange RingCut::chunk(int64_t piece, int shard) const {
  RUEDA_CHECK(piece >= 0 && piece < pieces_ && shard >= 0 && shard < shards_);
  if (rounds_.empty())
    return nearly_equal_part(nearly_equal_part({0, elements_}, shard, shards_), piece, pieces_);
  const Round& round = rounds_[static_cast<size_t>(round_of(piece))];
  return nearly_equal_part(round.shards[static_cast<size_t>(shard)], piece - round.first_piece,
                           round.pieces);
}

Route route_of(CollectiveKind kind, int nodes, NodeIndex root, int round, int shard) {
  const auto node = [nodes](int index) { return NodeIndex{index % nodes}; };
  const int around = nodes - 1;  // The steps from a node to the one before it.
  switch (kind) {
    case CollectiveKind::kAllgather: return {node(shard), 0, around, true};
    case CollectiveKind::kReduceScatter: return {node(shard), around, around, false};
    // The part that stays on its node comes last, because the network has work by then.
    case CollectiveKind::kAlltoall: return {node(shard), 0, around - round, false};
    case CollectiveKind::kBroadcast: return {root, 0, around, true};
    case CollectiveKind::kReduce: return {node(root.value + 1), around, around, false};
    case CollectiveKind::kScatter: return {root, 0, around - round, false};
    case CollectiveKind::kGather: return {node(root.value + 1 + round), 0, around - round, false};
    default: return {node(shard), around, 2 * around, true};
  }
}

int rounds_of(CollectiveKind kind, int nodes) {
  const bool is_by_distance = kind == CollectiveKind::kAlltoall ||
                              kind == CollectiveKind::kScatter || kind == CollectiveKind::kGather;
  return is_by_distance ? nodes : 1;
}

std::optional<int> steps_taken(const Route& route, RingPhase phase, NodeIndex node, int nodes) {
  const int distance = (node.value - route.origin.value + nodes) % nodes;
  if (phase == RingPhase::kReduce) {
    if (distance > 0 && distance <= route.reduce_hops) return distance;
    return std::nullopt;
  }
  const int steps = distance > route.reduce_hops ? distance : distance + nodes;
  if (steps <= route.reduce_hops || steps > route.hops) return std::nullopt;
  return steps;
}

RingStep ring_step(const Route& route, RingPhase phase, NodeIndex node, int nodes) {
  const std::optional<int> steps = steps_taken(route, phase, node, nodes);
  RUEDA_CHECK(steps.has_value());
  RingStep step;
  step.adds = phase == RingPhase::kReduce;
  step.is_final = *steps >= route.reduce_hops;
  step.forwards = *steps < route.hops;
  step.keeps = step.is_final && (route.is_for_all || !step.forwards);
  return step;
}

}  // namespace rueda::core
