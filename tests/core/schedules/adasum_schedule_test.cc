#include "daemon/core/schedules/adasum_schedule.h"

#include <map>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace rueda::core {
namespace {

// Returns the nodes that a chunk of the first rounds passes.
std::vector<int> passed(const Route& route, int nodes) {
  std::vector<int> nodes_passed;
  for (int node = 0; node < nodes; ++node) {
    if (steps_taken(route, RingPhase::kGather, NodeIndex{node}, nodes))
      nodes_passed.push_back(node);
  }
  return nodes_passed;
}

TEST(AdasumSchedule, EveryPairOfNodesMeetsOnceInEveryElement) {
  for (int nodes = 2; nodes <= 9; ++nodes) {
    for (const int64_t elements : {0, 1, 7, 100}) {
      SCOPED_TRACE(std::to_string(elements) + " elements of " + std::to_string(nodes));
      const AdasumSchedule schedule(nodes, elements, 3, 4, 2);
      std::map<std::pair<int, int>, std::vector<int>> met;  // the nodes that each element met
      for (int64_t chunk = 0; chunk < schedule.meeting_chunks(); ++chunk) {
        const int64_t piece = chunk / nodes;
        ASSERT_EQ(schedule.stage_of(piece), AdasumStage::kMeet);
        const auto shard = static_cast<int>(chunk % nodes);
        const Route route = schedule.route(piece, shard);
        EXPECT_EQ(route.origin, NodeIndex{shard});
        const ElementRange range = schedule.cut().chunk_at(chunk);
        EXPECT_LE(range.count(), 4);
        for (const int node : passed(route, nodes)) {
          auto& counts = met[std::minmax(node, shard)];
          counts.resize(static_cast<size_t>(elements));
          for (int64_t at = range.begin; at < range.end; ++at) ++counts[static_cast<size_t>(at)];
        }
      }
      ASSERT_EQ(met.size(), static_cast<size_t>(nodes * (nodes - 1) / 2));
      for (const auto& [pair, counts] : met) {
        EXPECT_EQ(counts, std::vector<int>(static_cast<size_t>(elements), 1));
      }
    }
  }
}

TEST(AdasumSchedule, ALinkCarriesTheVectorHalfAsOftenAsThereAreOtherNodes) {
  for (int nodes = 2; nodes <= 9; ++nodes) {
    const AdasumSchedule schedule(nodes, 100, 3, 4, 2);
    int64_t carried = 0;  // elements over all links
    for (int64_t chunk = 0; chunk < schedule.meeting_chunks(); ++chunk) {
      const Route route = schedule.route(chunk / nodes, static_cast<int>(chunk % nodes));
      carried += route.hops * schedule.cut().chunk_at(chunk).count();
    }
    EXPECT_EQ(carried, int64_t{100} * nodes * (nodes - 1) / 2) << nodes;
  }
}

TEST(AdasumSchedule, ThenProductsAndTheSumAreAllReduced) {
  const AdasumSchedule schedule(4, 100, 30, 8, 2);
  const RingCut& cut = schedule.cut();
  std::map<AdasumStage, int64_t> elements;
  for (int64_t chunk = 0; chunk < cut.chunks(); ++chunk) {
    const AdasumStage stage = schedule.stage_of(chunk / 4);
    const int64_t count = cut.chunk_at(chunk).count();
    elements[stage] += count;
    if (stage == AdasumStage::kMeet) continue;
    EXPECT_LE(count, stage == AdasumStage::kShare ? 2 : 8);
    const Route route = schedule.route(chunk / 4, static_cast<int>(chunk % 4));
    EXPECT_EQ(route.reduce_hops, 3);
    EXPECT_EQ(route.hops, 6);
  }
  EXPECT_EQ(elements[AdasumStage::kShare], 30);
  EXPECT_EQ(elements[AdasumStage::kSum], 100);
}

}  // namespace
}  // namespace rueda::core
