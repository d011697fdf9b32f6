// Tests what a recovery needs from the data plane (rules R1 to R4): nodes die at every turn of the
// loop, and the others complete or repeat what was under way, as core's decision says.
#include <gtest/gtest.h>

#include "tests/engine/recovery_cluster.h"
#include "tests/support/scale.h"

namespace rueda::engine::testing {
namespace {

OperationSpec work(CollectiveKind kind, ReduceOp op, bool in_place, std::vector<int64_t> sizes) {
  OperationSpec spec;
  spec.kind = kind;
  spec.op = op;
  spec.in_place = in_place;
  spec.sizes = std::move(sizes);
  return spec;
}

SurvivorOptions a_job(int nodes, uint32_t seed) {
  SurvivorOptions options;
  options.seed = seed;
  options.ranks_per_node.assign(static_cast<size_t>(nodes), 1);
  options.ranks_per_node[seed % static_cast<size_t>(nodes)] = 2;
  const CollectiveKind reduce = CollectiveKind::kAllreduce;
  options.reductions = {work(reduce, ReduceOp::kSum, true, {700, 4000}),
                        work(reduce, ReduceOp::kAverage, false, {3000}),
                        work(reduce, ReduceOp::kAverage, true, {1, 2, 3}),
                        work(reduce, ReduceOp::kSum, false, {5000}),
                        work(reduce, ReduceOp::kSum, true, {100})};
  options.broadcasts = {work(CollectiveKind::kBroadcast, ReduceOp::kSum, false, {2500}),
                        work(CollectiveKind::kBroadcast, ReduceOp::kSum, true, {10})};
  options.broadcasts[0].root = Rank{static_cast<int>(seed) % nodes};
  options.broadcasts[1].root = Rank{static_cast<int>(seed + 1) % nodes};
  return options;
}

struct Tally {
  int deaths = 0;
  int completed = 0;
  int repeated = 0;
  int fetched = 0;
};

// Makes one run after another, with a death one turn later each time, until a run is over before
// the death.
void die_at_every_turn(int nodes, int victim, uint64_t staging_bytes, Tally& tally) {
  for (int death = 0;; ++death) {
    SurvivorOptions options = a_job(nodes, static_cast<uint32_t>(victim + 1));
    options.staging_bytes = staging_bytes;
    RecoveryCluster job(options);
    int turns = 0;
    while (turns < death && job.turn()) ++turns;
    if (turns < death) return;
    job.kill(victim);
    ASSERT_TRUE(job.run_to_the_end())
        << nodes << " nodes, node " << victim << " dies in turn " << death << ": " << job.wrong();
    ++tally.deaths;
    tally.completed += job.completed();
    tally.repeated += job.repeated();
    tally.fetched += job.fetched();
  }
}

TEST(DataJobRecovery, NobodyDies) {
  for (int nodes = 1; nodes <= 4; ++nodes) {
    RecoveryCluster job(a_job(nodes, 1));
    EXPECT_TRUE(job.run_to_the_end()) << job.wrong();
  }
}

class DataJobRecoveryOf : public ::testing::TestWithParam<int> {};

TEST_P(DataJobRecoveryOf, SurvivorsOfADeathAtAnyTurnHaveTheSameBits) {
  Tally tally;
  for (int victim = 0; victim < GetParam(); ++victim) {
    die_at_every_turn(GetParam(), victim, 64u << 20, tally);
    if (HasFatalFailure()) return;
  }
  std::printf("%d deaths: %d operations completed, %d chunks fetched, %d operations repeated\n",
              tally.deaths, tally.completed, tally.fetched, tally.repeated);
  EXPECT_GT(tally.completed, 0);
  EXPECT_GT(tally.repeated, 0);
  EXPECT_TRUE(tally.fetched > 0 || GetParam() == 2);
}

INSTANTIATE_TEST_SUITE_P(Nodes, DataJobRecoveryOf, ::testing::Values(2, 3, 4));

// There is room for one operation at a time: launches wait, and go on waiting in the next epoch.
TEST(DataJobRecovery, WithLittleRoom) {
  Tally tally;
  die_at_every_turn(3, 1, 16u << 10, tally);
}

TEST(DataJobRecovery, OneDeathAfterAnother) {
  int completed = 0;
  int repeated = 0;
  const uint64_t seeds = testing_support::scaled(150, 30);
  for (uint32_t seed = 1; seed <= seeds; ++seed) {
    std::mt19937 random(seed);
    SurvivorOptions options = a_job(4, seed);
    if (seed % 3 == 0) options.staging_bytes = 16u << 10;
    RecoveryCluster job(options);
    std::vector<int> alive{0, 1, 2, 3};
    for (int deaths = 1 + static_cast<int>(random() % 3); deaths > 0; --deaths) {
      for (auto turns = static_cast<int>(random() % 150); turns > 0 && job.turn(); --turns) {
      }
      const size_t victim = random() % alive.size();
      job.kill(alive[victim]);
      alive.erase(alive.begin() + static_cast<ptrdiff_t>(victim));
    }
    ASSERT_TRUE(job.run_to_the_end()) << "seed " << seed << ": " << job.wrong();
    completed += job.completed();
    repeated += job.repeated();
  }
  EXPECT_GT(completed, 0);
  EXPECT_GT(repeated, 0);
}

TEST(DataJobRecovery, AChunkThatNobodyWaitsForIsRefused) {
  RecoveryCluster job(a_job(2, 1));
  ASSERT_TRUE(job.run_to_the_end()) << job.wrong();
  EXPECT_EQ(job.stray_chunk().message(), "nobody waits for chunk 0 of operation 1");
}

}  // namespace
}  // namespace rueda::engine::testing
