// Tests operations that are shared out among several data loops.
#include "daemon/engine/data/data_loops.h"

#include <new>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/engine/cluster.h"
#include "tests/engine/loop_ring.h"

namespace rueda::engine {
namespace {

using testing::Bytes;
using testing::Cluster;
using testing::FakeSession;
using testing::LoopRing;
using testing::OperationFixture;
using testing::OperationSpec;

using Shape = std::vector<int>;

class SharesOfKind : public ::testing::TestWithParam<CollectiveKind> {};

INSTANTIATE_TEST_SUITE_P(Kinds, SharesOfKind,
                         ::testing::Values(CollectiveKind::kAllreduce, CollectiveKind::kAllgather,
                                           CollectiveKind::kReduceScatter,
                                           CollectiveKind::kAlltoall, CollectiveKind::kBroadcast,
                                           CollectiveKind::kReduce, CollectiveKind::kGather,
                                           CollectiveKind::kScatter));

// Each ring stands for one loop of every node.
TEST_P(SharesOfKind, AreTheWholeTogether) {
  for (const int of : {2, 3}) {
    OperationSpec spec;
    spec.kind = GetParam();
    spec.root = Rank{3};
    if (has_parts(spec.kind)) {
      // An all-to-all has a row of parts for each rank.
      const int64_t parts = spec.kind == CollectiveKind::kAlltoall ? 25 : 5;
      for (int64_t i = 0; i < parts; ++i) spec.counts.push_back(i * i * 997 % 8191);
      spec.sizes = {std::accumulate(spec.counts.begin(), spec.counts.end(), int64_t{0})};
    } else {
      spec.sizes = {30'011, 0, 2};
    }
    const OperationFixture work(spec, {2, 1, 2}, Seq{1});
    std::vector<std::unique_ptr<LoopRing>> rings;
    for (int index = 0; index < of; ++index) {
      rings.push_back(std::make_unique<LoopRing>(Shape{2, 1, 2}));
      rings.back()->begin_epoch();
      rings.back()->run(work, {index, of});
    }
    for (const auto& ring : rings) EXPECT_EQ(ring->wait_for(1), "");
    EXPECT_EQ(work.check(), "") << of << " shares";
  }
}

TEST(Shares, DoNotChangeABit) {
  OperationSpec spec;
  spec.op = ReduceOp::kAverage;
  spec.sizes = {400'003, 5};
  spec.random_seed = 42;
  std::vector<Bytes> outputs;
  for (const int of : {1, 2, 3}) {
    const OperationFixture work(spec, {1, 2, 1}, Seq{1});
    for (int index = 0; index < of; ++index) {
      LoopRing ring({1, 2, 1});
      ring.begin_epoch();
      ring.run(work, {index, of});
      ASSERT_EQ(ring.wait_for(1), "");
    }
    EXPECT_EQ(work.check(), "");
    outputs.push_back(work.output(Rank{0}));
  }
  EXPECT_EQ(outputs[0], outputs[1]);
  EXPECT_EQ(outputs[0], outputs[2]);
}

// The parameter has the number of loops by node; a job uses as many as the node with the fewest
// has.
class JobLoops : public ::testing::TestWithParam<std::vector<size_t>> {
 protected:
  Cluster cluster_{{.ranks_per_node = {2, 1}, .data_loops = GetParam()}};
};

using Loops = std::vector<size_t>;
INSTANTIATE_TEST_SUITE_P(Jobs, JobLoops,
                         ::testing::Values(Loops{1, 1}, Loops{2, 2}, Loops{3, 3}, Loops{3, 2},
                                           Loops{1, 4}));

TEST_P(JobLoops, LargeAndSmallOperationsOfAJob) {
  cluster_.register_everywhere("job");
  const auto sessions = cluster_.start("job");
  ASSERT_EQ(sessions.size(), 3u);
  core::TensorDescriptor sum;
  sum.op = ReduceOp::kSum;
  std::vector<Cluster::Tensor*> tensors;
  const std::vector<int64_t> sizes{3, 400'001, 70'000, 1'000'003, 262'144};
  for (size_t rank = 0; rank < sessions.size(); ++rank) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      tensors.push_back(&cluster_.submit(*sessions[rank], "t" + std::to_string(i), sizes[i],
                                         static_cast<float>(1 << rank), sum));
    }
  }
  ASSERT_TRUE(cluster_.run_until([&] {
    return std::all_of(sessions.begin(), sessions.end(), [&](const FakeSession* session) {
      return session->flushed == sizes.size();
    });
  }));
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(tensors[i]->output,
              std::vector<float>(static_cast<size_t>(sizes[i % sizes.size()]), 7));
  }
  for (FakeSession* session : sessions) cluster_.detach(*session);
  cluster_.settle();
}

// An operation that waits for one loop is not dropped when another loop is done.
TEST(Shares, AnOperationIsDoneWhenAllOfThemAre) {
  Cluster cluster({.ranks_per_node = {2, 1}, .data_loops = {2, 2}});
  cluster.register_everywhere("job");
  const auto sessions = cluster.start("job");
  ASSERT_EQ(sessions.size(), 3u);
  cluster.block_data_loop(0);
  core::TensorDescriptor sum;
  sum.op = ReduceOp::kSum;
  std::vector<Cluster::Tensor*> tensors;
  for (FakeSession* session : sessions) {
    tensors.push_back(&cluster.submit(*session, "large", 1'000'000, 1, sum));
  }
  // Traffic is counted when a share is done, and the first loop can do no share here.
  const auto series = cluster.node(0).metrics->peer("n1", "mem");
  observe::PeerMetrics& traffic = *series;
  ASSERT_TRUE(cluster.run_until([&] { return traffic.sent_bytes.Value() > 0; }));
  cluster.loop().run_for(std::chrono::milliseconds(20));
  cluster.poll();
  for (const FakeSession* session : sessions) EXPECT_EQ(session->flushed, 0u);
  cluster.release_data_loop(0);
  ASSERT_TRUE(cluster.run_until([&] {
    return std::all_of(sessions.begin(), sessions.end(),
                       [](const FakeSession* session) { return session->flushed == 1; });
  }));
  for (const Cluster::Tensor* tensor : tensors) {
    EXPECT_EQ(tensor->output, std::vector<float>(1'000'000, 3));
  }
}

// A job that waited for what was lost would wait for ever, or for as long as silence is borne.
TEST(DataLoops, AHandlerThatThrowsEndsWhatIsUnderWay) {
  LoopRing ring({1, 1});
  ring.begin_epoch();
  const OperationFixture work({.sizes = {1000}}, {1, 1}, Seq{1});
  ring.loop(0).run("ring", Epoch{1}, 0, work.operation(NodeIndex{0}));
  ring.loop(0).post([] { throw std::bad_alloc(); });
  EXPECT_NE(ring.wait_for(1).find("its data loop could not go on (std::bad_alloc)"),
            std::string::npos);
  EXPECT_TRUE(ring.end_epoch());
}

TEST(DataLoops, AHandlerThatThrowsEndsNoJobThatDoesNothing) {
  LoopRing ring({1, 1});
  ring.begin_epoch();
  ring.loop(0).post([] { throw std::bad_alloc(); });
  const OperationFixture work({.sizes = {1000}}, {1, 1}, Seq{1});
  ring.run(work);
  EXPECT_EQ(ring.wait_for(1), "");
  EXPECT_EQ(work.check(), "");
}

TEST(DataLoops, AddressesOfLoopsAreOneText) {
  const std::vector<std::string> addresses{"10.0.0.1:2", "[::1]:3", ":4"};
  EXPECT_EQ(split_addresses(join_addresses(addresses)), addresses);
  EXPECT_EQ(split_addresses("10.0.0.1:2"), std::vector<std::string>{"10.0.0.1:2"});
}

TEST(DataLoops, IfOneCannotStartNoneRuns) {
  observe::Metrics metrics({"0", "test", "none"});
  const auto make = [&](size_t count) {
    std::vector<std::unique_ptr<DataLoop>> loops;
    while (loops.size() < count) {
      loops.push_back(std::make_unique<DataLoop>(
          metrics, [](boost::asio::io_context& io) { return transport::make_tcp_transport(io); }));
    }
    return DataLoops(std::move(loops));
  };
  DataLoops taken = make(1);
  const std::string address = taken.start({"127.0.0.1:0"}).value().front();
  DataLoops two = make(2);
  const auto started = two.start({"127.0.0.1:0", address});
  ASSERT_FALSE(started.is_ok());
  EXPECT_NE(started.status().message().find(address), std::string::npos);
}

}  // namespace
}  // namespace rueda::engine
