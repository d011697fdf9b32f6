// Tests whole rings: every rank has the right values, and they are the same bits everywhere.
#include "daemon/engine/data/data_job.h"

#include <boost/asio/post.hpp>
#include <gtest/gtest.h>

#include "tests/engine/ring.h"

namespace rueda::engine {
namespace {

using testing::Bytes;
using testing::OperationFixture;
using testing::OperationSpec;
using testing::Ring;
using testing::RingOptions;

OperationSpec allreduce(DType dtype, ReduceOp op, std::vector<int64_t> sizes) {
  OperationSpec spec;
  spec.dtype = dtype;
  spec.op = op;
  spec.sizes = std::move(sizes);
  return spec;
}

OperationSpec broadcast(DType dtype, Rank root, std::vector<int64_t> sizes) {
  OperationSpec spec;
  spec.kind = CollectiveKind::kBroadcast;
  spec.dtype = dtype;
  spec.root = root;
  spec.sizes = std::move(sizes);
  return spec;
}

OperationSpec barrier() {
  OperationSpec spec;
  spec.kind = CollectiveKind::kBarrier;
  spec.sizes = {0};
  return spec;
}

// The shapes have one node or more, and even and odd numbers of ranks on a node.
const std::vector<std::vector<int>> kShapes{
    {1}, {4}, {1, 1}, {3, 2}, {1, 2, 1}, {2, 2, 2, 2}, {1, 1, 2, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1}};

class DataJobShapes : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  RingOptions options() const {
    RingOptions options;
    options.ranks_per_node = GetParam();
    return options;
  }
  int ranks() const {
    int all = 0;
    for (const int k : GetParam()) all += k;
    return all;
  }
};

TEST_P(DataJobShapes, AllDtypesAndOpsAtOddSizes) {
  Ring ring(options());
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    for (int op = 0; op < kElementwiseOpCount; ++op) {
      if (!has_operator(static_cast<DType>(dtype), static_cast<ReduceOp>(op))) continue;
      for (const int64_t elements : {1, 3, 1021, 20'011}) {
        ring.add(allreduce(static_cast<DType>(dtype), static_cast<ReduceOp>(op), {elements}));
      }
    }
  }
  ASSERT_TRUE(ring.run_all());
  EXPECT_EQ(ring.check(), "");
}

TEST_P(DataJobShapes, BroadcastFromEveryRootInPiecesFarMoreThanSlots) {
  Ring ring(options());
  for (int root = 0; root < ranks(); ++root) {
    ring.add(broadcast(DType::kInt64, Rank{root}, {100'003}));
    ring.add(broadcast(DType::kBFloat16, Rank{root}, {1}));
  }
  ASSERT_TRUE(ring.run_all());
  EXPECT_EQ(ring.check(), "");
}

TEST_P(DataJobShapes, BatchesWithEmptyTensorsInPlaceAndScaled) {
  Ring ring(options());
  for (const bool in_place : {false, true}) {
    OperationSpec spec =
        allreduce(DType::kFloat64, ReduceOp::kAverage, {0, 999, 1, 0, 5001, 13, 0});
    spec.in_place = in_place;
    spec.prescale = 0.5;
    spec.postscale = 4.0;
    ring.add(spec);
    ring.add(allreduce(DType::kFloat32, ReduceOp::kSum, {0, 0}));
    spec = broadcast(DType::kFloat16, Rank{ranks() - 1}, {0, 4097, 0, 2});
    spec.in_place = in_place;
    ring.add(spec);
    ring.add(barrier());
  }
  ASSERT_TRUE(ring.run_all());
  EXPECT_EQ(ring.check(), "");
}

TEST_P(DataJobShapes, ASumDecodesIntoItsContributors) {
  if (ranks() > 8) GTEST_SKIP() << "2^rank is for 8 ranks at most";
  Ring ring(options());
  ring.add(allreduce(DType::kInt32, ReduceOp::kSum, {12'345}));
  ASSERT_TRUE(ring.run_all());
  for (int rank = 0; rank < ranks(); ++rank) {
    const Bytes out = ring.work(0).output(Rank{rank});
    for (size_t at = 0; at < out.size(); at += 4) {
      ASSERT_EQ(testing::get_number(DType::kInt32, out.data() + at), (1 << ranks()) - 1)
          << "rank " << rank << ", element " << at / 4;
    }
  }
}

// Invariant I2: an element's order of additions depends on its shard, not on the cut.
TEST_P(DataJobShapes, TheSizeOfAChunkDoesNotChangeABit) {
  std::vector<Bytes> results;
  for (const uint64_t chunk_bytes : {4096u, 8192u, 65'536u, 1u << 20}) {
    RingOptions with = options();
    with.chunk_bytes = chunk_bytes;
    Ring ring(with);
    OperationSpec spec = allreduce(DType::kFloat32, ReduceOp::kAverage, {7, 50'021});
    spec.random_seed = 42;
    ring.add(spec);
    ASSERT_TRUE(ring.run_all());
    ASSERT_EQ(ring.check(), "");
    results.push_back(ring.work(0).output(Rank{0}));
  }
  for (const Bytes& result : results) EXPECT_EQ(result, results.front());
}

// The operations run one after the other in the same slots, each with another setting.
TEST_P(DataJobShapes, OperationsAreCutAsTheyAreTuned) {
  RingOptions with = options();
  with.widest_chunk_bytes = 64 << 10;
  Ring ring(with);
  OperationSpec spec = allreduce(DType::kFloat32, ReduceOp::kAverage, {7, 50'021});
  spec.random_seed = 42;
  const std::vector<uint32_t> tuned{0, 16 << 10, 64 << 10, 4096, 5000, 1 << 30};
  for (const uint32_t chunk_bytes : tuned) {
    spec.tuning.chunk_bytes = chunk_bytes;
    ring.add(spec);
  }
  ASSERT_TRUE(ring.run_all());
  ASSERT_EQ(ring.check(), "");
  for (size_t i = 1; i < tuned.size(); ++i) {
    EXPECT_EQ(ring.work(i).output(Rank{0}), ring.work(0).output(Rank{0})) << tuned[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Rings, DataJobShapes, ::testing::ValuesIn(kShapes), [](const auto& shape) {
  std::string name = "Nodes" + std::to_string(shape.param.size()) + "Ranks";
  for (const int k : shape.param) name += std::to_string(k);
  return name;
});

TEST(DataJob, OperationsOfOneLaneFollowEachOther) {
  RingOptions options;
  options.ranks_per_node = {1, 1, 1};
  options.lanes = 1;
  Ring ring(options);
  for (int i = 0; i < 40; ++i) {
    ring.add(allreduce(DType::kInt32, ReduceOp::kSum, {1 + 1500 * (i % 7)}));
    ring.add(broadcast(DType::kInt32, Rank{i % 3}, {9000}));
  }
  ASSERT_TRUE(ring.run_all());
  EXPECT_EQ(ring.check(), "");
  for (int i = 0; i < 3; ++i) {
    for (size_t done = 0; done < ring.works(); ++done) {
      ASSERT_EQ(ring.node(i).done[done], Seq{done + 1}) << "node " << i;
    }
  }
}

// Rule L12: priority decides which of the operations under way is done first. All of them are done,
// whatever the priorities.
TEST(DataJob, WhatIsMoreUrgentIsDoneFirst) {
  for (const bool in_order : {true, false}) {
    RingOptions options;
    options.ranks_per_node = {1, 1, 1};
    options.chunk_bytes = 32 * 1024;
    Ring ring(options);
    for (int i = 0; i < 4; ++i) {
      OperationSpec spec = allreduce(DType::kFloat32, ReduceOp::kSum, {375'000});
      spec.urgency = {in_order ? -i : 0, static_cast<uint64_t>(i)};
      ring.add(std::move(spec));
    }
    ASSERT_TRUE(ring.run_all());
    EXPECT_EQ(ring.check(), "");
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(ring.node(i).done.front(), Seq{in_order ? 1u : 4u}) << "node " << i;
    }
  }
}

TEST(DataJob, FramesThatComeEarlyWaitInTheirSlots) {
  RingOptions options;
  options.ranks_per_node = {1, 2, 1};
  Ring ring(options);
  for (int i = 0; i < 4; ++i) ring.add(allreduce(DType::kFloat32, ReduceOp::kSum, {30'001}));
  ring.settle();
  for (const int node : {0, 2}) {
    while (ring.launch_next(node)) {
    }
    ring.settle();
  }
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(ring.node(i).done.empty()) << "node " << i;
  ASSERT_TRUE(ring.run_all());
  EXPECT_EQ(ring.check(), "");
}

// A root has done its part of a broadcast when it has read its values, so it may run far ahead.
TEST(DataJob, ARootMayBeManyBroadcastsAhead) {
  RingOptions options;
  options.ranks_per_node = {1, 1, 1};
  Ring ring(options);
  for (int i = 0; i < 30; ++i) ring.add(broadcast(DType::kFloat32, Rank{1}, {i % 3 ? 5 : 2000}));
  ring.add(allreduce(DType::kFloat32, ReduceOp::kSum, {4000}));
  while (ring.launch_next(1) || ring.poll()) {
  }
  EXPECT_GT(ring.node(1).done.size(), 4u);
  EXPECT_TRUE(ring.node(0).done.empty());
  ASSERT_TRUE(ring.run_all());
  EXPECT_EQ(ring.check(), "");
}

TEST(DataJob, OperationsMayBeGivenBeforeTheChannelsAreOpen) {
  Ring ring(RingOptions{});
  ring.add(allreduce(DType::kInt64, ReduceOp::kMax, {777}));
  EXPECT_TRUE(ring.launch_next(0));
  EXPECT_TRUE(ring.launch_next(1));
  EXPECT_TRUE(ring.node(0).done.empty());
  ASSERT_TRUE(ring.run_all());
  EXPECT_EQ(ring.check(), "");
}

// A long operation on one node is done in turns, so that other jobs get theirs.
TEST(DataJob, OneNodeGivesWayInALongOperation) {
  RingOptions options;
  options.ranks_per_node = {2};
  Ring ring(options);
  ring.add(allreduce(DType::kFloat32, ReduceOp::kSum, {5 << 20}));
  ASSERT_TRUE(ring.launch_next(0));
  EXPECT_TRUE(ring.node(0).done.empty());
  bool others_turn = false;
  boost::asio::post(ring.io(), [&] { others_turn = ring.node(0).done.empty(); });
  ASSERT_TRUE(ring.run_all());
  EXPECT_TRUE(others_turn);
  EXPECT_EQ(ring.check(), "");
}

TEST(DataJob, TheTestFaultIsSeenOnEveryRank) {
  RingOptions options;
  options.ranks_per_node = {1, 1};
  options.corrupt = true;
  Ring ring(options);
  ring.add(allreduce(DType::kFloat32, ReduceOp::kSum, {100}));
  ASSERT_TRUE(ring.run_all());
  EXPECT_NE(ring.work(0).check(), "");
  EXPECT_EQ(ring.work(0).output(Rank{0}), ring.work(0).output(Rank{1}));
}

TEST(DataJob, QuietAtOnceWhenNothingIsUnderWay) {
  Ring ring(RingOptions{});
  ring.settle();
  int calls = 0;
  ring.node(0).job->when_quiet([&] { ++calls; });
  EXPECT_EQ(calls, 1);
}

// The root is done with a broadcast long before its neighbour has the values. Quiet means that the
// neighbour has taken them.
TEST(DataJob, QuietMeansThatTheNeighbourHasTakenEverything) {
  Ring ring(RingOptions{});
  ring.add(broadcast(DType::kFloat32, Rank{0}, {1000}));
  ring.settle();
  ASSERT_TRUE(ring.launch_next(0));
  ring.settle();
  ASSERT_EQ(ring.node(0).done.size(), 1u);
  int calls = 0;
  for (int i = 0; i < 2; ++i) ring.node(0).job->when_quiet([&] { ++calls; });
  ring.settle();
  EXPECT_EQ(calls, 0) << "the neighbour has not launched it";
  ASSERT_TRUE(ring.run_all());
  ring.settle();
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(ring.check(), "");
}

TEST(DataJob, QuietHandlersAreCalledWhenTheJobGoes) {
  Ring ring(RingOptions{});
  ring.add(broadcast(DType::kFloat32, Rank{0}, {1000}));
  ring.settle();
  ring.launch_next(0);
  int calls = 0;
  ring.node(0).job->when_quiet([&] { ++calls; });
  ring.settle();
  ASSERT_EQ(calls, 0);
  ring.node(0).job.reset();
  EXPECT_EQ(calls, 1);
}

// The neighbour takes the values when its turn has come. A goodbye waits for that, and not for a
// time.
TEST(DataJob, ASlowNeighbourIsWaitedForUntilItHasTakenEverything) {
  RingOptions options;
  options.timeout_ms = 20;
  Ring ring(options);
  ring.add(broadcast(DType::kFloat32, Rank{0}, {1000}));
  ring.settle();
  ring.launch_next(0);
  bool called = false;
  ring.node(0).job->when_quiet([&] { called = true; });
  const TicksMs later = steady_now_ms() + 4 * options.timeout_ms;
  ASSERT_TRUE(ring.run_until([&] { return called || steady_now_ms() > later; }));
  EXPECT_FALSE(called);
  EXPECT_TRUE(ring.node(0).lost.empty());
  ASSERT_TRUE(ring.run_all());
  ring.settle();
  EXPECT_TRUE(called);
  EXPECT_EQ(ring.check(), "");
}

TEST(DataJob, StagingIsBoundedCountedAndGivenBack) {
  prometheus::Gauge* staging = nullptr;
  {
    RingOptions options;
    options.ranks_per_node = {1, 1, 1};
    options.chunk_bytes = 4 << 20;
    options.staging_bytes = 16 << 20;
    Ring ring(options);
    staging = &ring.metrics().daemon().staging_bytes;
    EXPECT_GT(staging->Value(), 0);
    EXPECT_LE(staging->Value(), 3.0 * (16 << 20));
    ring.add(allreduce(DType::kFloat32, ReduceOp::kSum, {3'000'001}));
    ASSERT_TRUE(ring.run_all());
    EXPECT_EQ(ring.check(), "");
    EXPECT_LE(staging->Value(), 3.0 * (16 << 20));
    for (int i = 0; i < 3; ++i) ring.node(i).job.reset();
    EXPECT_EQ(staging->Value(), 0);
  }
}

TEST(DataJob, OneNodeNeedsNoStaging) {
  RingOptions options;
  options.ranks_per_node = {4};
  Ring ring(options);
  EXPECT_EQ(ring.metrics().daemon().staging_bytes.Value(), 0);
}

TEST(DataJob, CountsTheTrafficOfEachNeighbour) {
  RingOptions options;
  options.ranks_per_node = {1, 1, 1};
  Ring ring(options);
  ring.add(allreduce(DType::kFloat32, ReduceOp::kSum, {3000}));
  ASSERT_TRUE(ring.run_all());
  ring.settle();
  for (int i = 0; i < 3; ++i) ring.node(i).job.reset();
  // Each node sends 2 (n - 1) / n of the bytes, and headers; in this test all nodes share one
  // registry.
  for (const char* peer : {"n0", "n1", "n2"}) {
    const auto series = ring.metrics().peer(peer, "mem");
    const observe::PeerMetrics& traffic = *series;
    EXPECT_GE(traffic.sent_bytes.Value(), 16'000) << peer;
    EXPECT_LE(traffic.sent_bytes.Value(), 16'000 + 4 * 64) << peer;
    EXPECT_EQ(traffic.sent_bytes.Value(), traffic.received_bytes.Value()) << peer;
  }
}

}  // namespace
}  // namespace rueda::engine
