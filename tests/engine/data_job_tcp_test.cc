// Rings of real data loops, each a thread, over loopback TCP.
#include <future>

#include <gtest/gtest.h>

#include "tests/engine/loop_ring.h"

namespace rueda::engine {
namespace {

using testing::LoopRing;
using testing::Work;
using testing::WorkSpec;

class DataJobStreams : public ::testing::TestWithParam<uint32_t> {};

TEST_P(DataJobStreams, ManyOperationsInEveryLane) {
  LoopRing ring({2, 1, 2}, GetParam());
  ring.begin_epoch();
  std::vector<std::unique_ptr<Work>> works;
  for (uint64_t seq = 1; seq <= 60; ++seq) {
    WorkSpec spec;
    spec.sizes = {static_cast<int64_t>(seq * seq * 29), 0, 3};
    spec.dtype = static_cast<DType>(seq % kDTypeCount);
    spec.op = static_cast<ReduceOp>(seq % kElementwiseOpCount);
    if (seq % 5 == 0) {
      spec.kind = CollectiveKind::kBroadcast;
      spec.root = Rank{static_cast<int32_t>(seq / 5 % 5)};
    }
    works.push_back(std::make_unique<Work>(spec, ring.shape(), Seq{seq}));
  }
  // As core does: four at a time.
  for (size_t i = 0; i < works.size(); ++i) {
    if (i >= 4 && i % 4 == 0) {
      ASSERT_EQ(ring.wait_for(i), "");
    }
    ring.run(*works[i]);
  }
  ASSERT_EQ(ring.wait_for(works.size()), "");
  for (const auto& work : works) EXPECT_EQ(work->check(), "");
  EXPECT_TRUE(ring.end_epoch());
  EXPECT_EQ(ring.metrics().daemon().staging_bytes.Value(), 0);
}

TEST_P(DataJobStreams, AnEpochMayEndInMidOperation) {
  for (int round = 0; round < 5; ++round) {
    LoopRing ring({1, 1}, GetParam());
    ring.begin_epoch();
    WorkSpec spec;
    spec.sizes = {4'000'000};
    const Work work(spec, ring.shape(), Seq{1});
    ring.run(work);
    EXPECT_TRUE(ring.end_epoch());
    EXPECT_EQ(ring.metrics().daemon().staging_bytes.Value(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Streams, DataJobStreams, ::testing::Values(1, 2, 4),
                         ::testing::PrintToStringParamName());

TEST(DataJobTcp, TheNumberOfStreamsDoesNotChangeABit) {
  WorkSpec spec;
  spec.op = ReduceOp::kAverage;
  spec.sizes = {400'003, 5};
  spec.random_seed = 42;
  std::vector<testing::Bytes> outputs;
  for (const uint32_t streams : {1u, 2u, 4u}) {
    LoopRing ring({1, 2, 1}, streams);
    ring.begin_epoch();
    const Work work(spec, ring.shape(), Seq{1});
    ring.run(work);
    ASSERT_EQ(ring.wait_for(1), "");
    EXPECT_EQ(work.check(), "");
    outputs.push_back(work.output(Rank{0}));
    EXPECT_TRUE(ring.end_epoch());
  }
  EXPECT_EQ(outputs[0], outputs[1]);
  EXPECT_EQ(outputs[0], outputs[2]);
}

TEST(DataJobTcp, ALoopThatStopsDropsWhatIsUnderWay) {
  LoopRing ring({1, 1});
  ring.begin_epoch();
  WorkSpec spec;
  spec.sizes = {4'000'000};
  const Work work(spec, ring.shape(), Seq{1});
  ring.run(work);
  ring.loop(0).stop();
  ring.loop(1).stop();
  EXPECT_EQ(ring.metrics().daemon().staging_bytes.Value(), 0);
}

TEST(DataLoop, AnEpochThatIsGoneIsQuietAndEnds) {
  LoopRing ring({1});
  std::promise<void> quiet;
  ring.loop(0).when_quiet("ring", Epoch{7}, [&] { quiet.set_value(); });
  EXPECT_EQ(quiet.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
  std::promise<void> ended;
  ring.loop(0).end_epoch("ring", Epoch{7}, [&] { ended.set_value(); });
  EXPECT_EQ(ended.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
}

TEST(DataLoop, APortThatIsTakenIsAnError) {
  observe::Metrics metrics({"0", "test", "none"});
  const auto tcp = [](boost::asio::io_context& io) { return transport::make_tcp_transport(io); };
  DataLoop first(metrics, tcp);
  const Result<std::string> bound = first.start("127.0.0.1:0");
  ASSERT_TRUE(bound.is_ok());
  DataLoop second(metrics, tcp);
  const Result<std::string> taken = second.start(bound.value());
  ASSERT_FALSE(taken.is_ok());
  EXPECT_NE(taken.status().message().find(bound.value()), std::string::npos)
      << taken.status().message();
}

}  // namespace
}  // namespace rueda::engine
