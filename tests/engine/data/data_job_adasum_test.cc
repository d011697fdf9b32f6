// Tests Adasum on whole rings: every rank has what the formula says of whole vectors, in the same
// bits.
#include <gtest/gtest.h>

#include "tests/engine/ring.h"

namespace rueda::engine {
namespace {

using testing::Bytes;
using testing::OperationSpec;
using testing::Ring;
using testing::RingOptions;

constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16};

OperationSpec adasum(DType dtype, std::vector<int64_t> sizes) {
  OperationSpec spec;
  spec.dtype = dtype;
  spec.op = ReduceOp::kAdasum;
  spec.sizes = std::move(sizes);
  return spec;
}

// The shapes have one to six nodes, and even and odd numbers of nodes and ranks.
const std::vector<std::vector<int>> kAdasumShapes{
    {1}, {4}, {3}, {1, 1}, {3, 2}, {1, 2, 1}, {2, 2, 2, 2}, {1, 1, 2, 1, 1}, {1, 1, 1, 1, 1, 1}};

class DataJobAdasum : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  RingOptions options() const {
    RingOptions options;
    options.ranks_per_node = GetParam();
    return options;
  }
};

TEST_P(DataJobAdasum, AllFloatingTypesAtOddSizes) {
  Ring ring(options());
  for (const DType dtype : kFloats) {
    for (const int64_t elements : {1, 3, 1021, 20'011}) ring.add(adasum(dtype, {elements}));
  }
  ASSERT_TRUE(ring.run_all());
  EXPECT_EQ(ring.check(), "");
}

// Each tensor has weights of its own; some tensors are smaller than a chunk, some larger, some
// empty.
TEST_P(DataJobAdasum, BatchesTensorByTensorInPlaceAndScaled) {
  Ring ring(options());
  for (const DType dtype : kFloats) {
    for (const bool in_place : {false, true}) {
      OperationSpec spec = adasum(dtype, {0, 999, 1, 0, 5001, 13, 0, 1, 1});
      spec.in_place = in_place;
      spec.prescale = 0.5;
      spec.postscale = -4.0;
      ring.add(spec);
    }
  }
  ring.add(adasum(DType::kFloat32, {0, 0}));
  ASSERT_TRUE(ring.run_all());
  EXPECT_EQ(ring.check(), "");
}

TEST_P(DataJobAdasum, RoundedOnItsWay) {
  Ring ring(options());
  for (const WireDType wire : {WireDType::kFloat16, WireDType::kBFloat16}) {
    OperationSpec spec = adasum(DType::kFloat32, {7000, 3});
    spec.wire_dtype = wire;
    ring.add(spec);
  }
  ASSERT_TRUE(ring.run_all());
  EXPECT_EQ(ring.check(), "");
}

// The tensor takes more than a turn of the first passes, and has many times the slots' size.
TEST_P(DataJobAdasum, FarMoreThanStaging) {
  RingOptions with = options();
  with.staging_bytes = 1 << 20;
  Ring ring(with);
  ring.add(adasum(DType::kFloat32, {2'500'003, 11}));
  OperationSpec sum;
  sum.sizes = {100'000};
  ring.add(sum);  // shows that others go on beside it
  ring.add(adasum(DType::kFloat64, {300'000}));
  ASSERT_TRUE(ring.run_all());
  EXPECT_EQ(ring.check(), "");
}

TEST_P(DataJobAdasum, AnyAlgorithmOfTheJob) {
  for (const auto algorithm : {core::AlgorithmChoice::kAuto, core::AlgorithmChoice::kDirect}) {
    RingOptions with = options();
    with.algorithm = algorithm;
    Ring ring(with);
    ring.add(adasum(DType::kFloat32, {100, 5}));
    ASSERT_TRUE(ring.run_all());
    EXPECT_EQ(ring.check(), "");
  }
}

// The chunks' products are exact here, so their order does not show.
TEST_P(DataJobAdasum, TheSizeOfAChunkDoesNotChangeABit) {
  for (const int ranks : GetParam()) {
    if (ranks > 1 && GetParam().size() > 1) GTEST_SKIP() << "the nodes' vectors are rounded";
  }
  std::vector<Bytes> results;
  for (const uint64_t chunk_bytes : {4096u, 8192u, 65'536u, 1u << 20}) {
    RingOptions with = options();
    with.chunk_bytes = chunk_bytes;
    Ring ring(with);
    ring.add(adasum(DType::kFloat32, {7, 50'021}));
    ASSERT_TRUE(ring.run_all());
    ASSERT_EQ(ring.check(), "");
    results.push_back(ring.work(0).output(Rank{0}));
  }
  for (const Bytes& result : results) EXPECT_EQ(result, results.front());
}

INSTANTIATE_TEST_SUITE_P(Rings, DataJobAdasum, ::testing::ValuesIn(kAdasumShapes),
                         [](const auto& shape) {
                           std::string name =
                               "Nodes" + std::to_string(shape.param.size()) + "Ranks";
                           for (const int k : shape.param) name += std::to_string(k);
                           return name;
                         });

// A node goes after any number of events, and so in every stage: the others hear of it, nothing
// crashes, and a node that was done has the right result.
TEST(DataJobAdasumFaults, ANodeThatGoesInAnyStageIsReported) {
  for (int events = 0;; events += 17) {
    SCOPED_TRACE(events);
    RingOptions options;
    options.timeout_ms = 500;
    options.ranks_per_node = {1, 2, 1};
    Ring ring(options);
    ring.add(adasum(DType::kFloat32, {20'000}));
    for (int node = 0; node < 3; ++node) ring.launch_next(node);
    for (int i = 0; i < events && ring.poll(); ++i) {
    }
    if (!ring.node(1).done.empty()) break;
    ring.node(1).job.reset();
    ASSERT_TRUE(ring.run_until([&] {
      return (!ring.node(0).lost.empty() || !ring.node(0).done.empty()) &&
             (!ring.node(2).lost.empty() || !ring.node(2).done.empty());
    }));
    for (const int node : {0, 2}) {
      for (const auto& [peer, status] : ring.node(node).lost) {
        EXPECT_EQ(status.code(), Code::kNodeLost) << status.message();
      }
    }
  }
}

// The turn of the pass that is under way finds another operation under the number.
TEST(DataJobAdasumFaults, ItsNumberMayComeAgainAsASumWhileItWeighs) {
  RingOptions options;
  options.ranks_per_node = {2, 1};
  testing::OperationFixture cancelled(adasum(DType::kFloat32, {3'000'000}), options.ranks_per_node,
                                      Seq{1});
  testing::OperationFixture sum({.sizes = {1000}}, options.ranks_per_node, Seq{1});
  Ring ring(options);
  ring.settle();  // opens the channels
  const auto launch = [&](testing::OperationFixture& work, int node, uint32_t generation) {
    auto operation = work.operation(NodeIndex{node});
    operation->generation = generation;
    operation->locked = true;
    ring.node(node).job->run(std::move(operation));
  };
  launch(cancelled, 0, 1);
  for (const int node : {0, 1}) {
    ring.node(node).job->cancel({.first = Seq{1}, .generation = 2});
    launch(sum, node, 2);
  }
  ASSERT_TRUE(
      ring.run_until([&] { return !ring.node(0).done.empty() && !ring.node(1).done.empty(); }));
  EXPECT_EQ(sum.check(), "");
}

TEST(DataJobAdasumFaults, PolicyShrinkRefusesIt) {
  RingOptions options;
  options.policy = core::DeathPolicy::kShrink;
  Ring ring(options);
  ring.add(adasum(DType::kFloat32, {100}));
  for (const int node : {0, 1}) ring.launch_next(node);
  ASSERT_TRUE(
      ring.run_until([&] { return !ring.node(0).failed.empty() && !ring.node(1).failed.empty(); }));
  EXPECT_EQ(ring.node(0).failed.front().second.code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace rueda::engine
