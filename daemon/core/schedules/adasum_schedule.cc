#include "daemon/core/schedules/adasum_schedule.h"

#include "daemon/base/check.h"

namespace rueda::core {
namespace {

using Shards = std::vector<ElementRange>;

Shards same_for_all(int nodes, ElementRange range) {
  return Shards(static_cast<size_t>(nodes), range);
}

// Returns the half that each node sends to the node opposite. The two nodes send different halves.
Shards halves(int nodes, int64_t elements, int of_first_nodes) {
  Shards shards;
  for (int node = 0; node < nodes; ++node) {
    const int half = node < nodes / 2 ? of_first_nodes : 1 - of_first_nodes;
    shards.push_back(nearly_equal_part({0, elements}, half, 2));
  }
  return shards;
}

std::vector<Shards> meeting_rounds(int nodes, int64_t elements) {
  if (nodes % 2 == 1) return {same_for_all(nodes, {0, elements})};
  std::vector<Shards> rounds{halves(nodes, elements, 0)};
  if (nodes > 2) rounds.push_back(halves(nodes, elements, 1));
  return rounds;
}

std::vector<int> meeting_hops(int nodes) {
  if (nodes % 2 == 1) return {nodes / 2};
  if (nodes == 2) return {1};
  return {nodes / 2, nodes / 2 - 1};
}

Shards equal_shards(int nodes, int64_t elements) {
  Shards shards;
  for (int node = 0; node < nodes; ++node) {
    shards.push_back(nearly_equal_part({0, elements}, node, nodes));
  }
  return shards;
}

}  // namespace

AdasumSchedule::AdasumSchedule(int nodes, int64_t elements, int64_t products,
                               int64_t max_chunk_elements, int64_t max_chunk_products)
    : nodes_(nodes),
      hops_(meeting_hops(nodes)),
      cut_(meeting_rounds(nodes, elements), max_chunk_elements),
      meeting_chunks_(cut_.chunks()) {
  RUEDA_CHECK(nodes >= 2);
  cut_.add_round(equal_shards(nodes, products), max_chunk_products);
  cut_.add_round(equal_shards(nodes, elements), max_chunk_elements);
}

AdasumStage AdasumSchedule::stage_of(int64_t piece) const {
  const int behind = cut_.round_of(piece) - static_cast<int>(hops_.size());
  if (behind < 0) return AdasumStage::kMeet;
  return behind == 0 ? AdasumStage::kShare : AdasumStage::kSum;
}

Route AdasumSchedule::route(int64_t piece, int shard) const {
  const auto round = static_cast<size_t>(cut_.round_of(piece));
  if (round < hops_.size()) return {NodeIndex{shard}, 0, hops_[round], true};
  return route_of(CollectiveKind::kAllreduce, nodes_, NodeIndex{-1}, 0, shard);
}

}  // namespace rueda::core
