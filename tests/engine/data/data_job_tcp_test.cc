// Tests rings of real data loops, each a thread, over loopback TCP.
#include <future>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/engine/loop_ring.h"

namespace rueda::engine {
namespace {

using testing::LoopRing;
using testing::OperationFixture;
using testing::OperationSpec;

class DataJobStreams : public ::testing::TestWithParam<uint32_t> {};

TEST_P(DataJobStreams, ManyOperationsInEveryLane) {
  LoopRing ring({2, 1, 2}, GetParam());
  ring.begin_epoch();
  std::vector<std::unique_ptr<OperationFixture>> works;
  for (uint64_t seq = 1; seq <= 60; ++seq) {
    OperationSpec spec;
    spec.sizes = {static_cast<int64_t>(seq * seq * 29), 0, 3};
    spec.dtype = static_cast<DType>(seq % kDTypeCount);
    spec.op = static_cast<ReduceOp>(seq % kElementwiseOpCount);
    if (!has_operator(spec.dtype, spec.op)) spec.op = ReduceOp::kProduct;
    if (seq % 5 == 0) {
      spec.kind = CollectiveKind::kBroadcast;
      spec.root = Rank{static_cast<int32_t>(seq / 5 % 5)};
    }
    works.push_back(std::make_unique<OperationFixture>(spec, ring.shape(), Seq{seq}));
  }
  // The loops get four operations at a time, as core gives them.
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
    OperationSpec spec;
    spec.sizes = {4'000'000};
    const OperationFixture work(spec, ring.shape(), Seq{1});
    ring.run(work);
    EXPECT_TRUE(ring.end_epoch());
    EXPECT_EQ(ring.metrics().daemon().staging_bytes.Value(), 0);
  }
}

// The peer's machine takes what fits into its buffers, and nothing more. A broken path looks like
// that, too.
TEST(DataJobTcp, WhatIsNotAcknowledgedNamesThePairAndTheDirection) {
  boost::asio::io_context io{1};
  boost::asio::io_context peer_io{1};
  Turns turns{io, kTurnBytes, kLongestTurn};
  Turns peer_turns{peer_io, kTurnBytes, kLongestTurn};
  observe::Metrics metrics({"0", "test", "none"});
  std::vector<std::unique_ptr<transport::Transport>> transports;
  std::vector<std::unique_ptr<DataJob>> jobs;
  std::vector<std::string> addresses;
  for (boost::asio::io_context* at : {&io, &peer_io}) {
    transports.push_back(transport::make_tcp_transport(*at, {}));
    addresses.push_back(transports.back()->listen("127.0.0.1:0").value());
  }
  std::vector<std::tuple<NodeIndex, std::string, bool>> lost;
  bool is_done = false;
  for (int i = 0; i < 2; ++i) {
    DataJobOptions options = testing::data_job_options(2, i, i == 0 ? &turns : &peer_turns);
    options.data_addresses = addresses;
    options.chunk_bytes = 1 << 20;
    options.timeout_ms = 400;
    options.events.on_done = [&](Seq, double) { is_done = true; };
    options.events.on_channel_lost = [&](NodeIndex node, const Status& status, bool is_missed) {
      lost.emplace_back(node, status.message(), is_missed);
    };
    jobs.push_back(std::make_unique<DataJob>(
        i == 0 ? io : peer_io, *transports[static_cast<size_t>(i)], metrics, std::move(options)));
    jobs.back()->start();
  }
  const auto poll_both = [&] {
    for (boost::asio::io_context* at : {&io, &peer_io}) {
      at->restart();
      at->run_one_for(std::chrono::milliseconds(1));
    }
  };
  OperationSpec spec;
  spec.kind = CollectiveKind::kBroadcast;
  spec.root = Rank{0};
  spec.sizes = {1000};
  const OperationFixture first(spec, {1, 1}, Seq{1});
  for (int i = 0; i < 2; ++i) jobs[static_cast<size_t>(i)]->run(first.operation(NodeIndex{i}));
  const TicksMs give_up = steady_now_ms() + 60'000;
  while (!is_done && steady_now_ms() < give_up) poll_both();
  ASSERT_TRUE(is_done);
  // The peer's loop stands still from here on.
  spec.sizes = {8 << 20};
  const OperationFixture second(spec, {1, 1}, Seq{2});
  jobs[0]->run(second.operation(NodeIndex{0}));
  bool is_quiet = false;
  jobs[0]->when_quiet([&] { is_quiet = true; });
  while (lost.empty() && steady_now_ms() < give_up) {
    io.restart();
    io.run_one_for(std::chrono::milliseconds(100));
  }
  ASSERT_EQ(lost.size(), 1u);
  const auto& [node, text, is_missed] = lost[0];
  EXPECT_EQ(node, NodeIndex{1});
  EXPECT_TRUE(is_missed);
  EXPECT_TRUE(is_quiet) << "it waits no more";
  EXPECT_TRUE(text.starts_with("node n1 is lost: of what node n0 sent it, ")) << text;
  EXPECT_NE(text.find(" bytes were not acknowledged for 400 ms"), std::string::npos) << text;
  EXPECT_NE(text.find("pass from node n0 to node n1 (MTU)?"), std::string::npos) << text;
  jobs.clear();
}

INSTANTIATE_TEST_SUITE_P(Streams, DataJobStreams, ::testing::Values(1, 2, 4),
                         ::testing::PrintToStringParamName());

TEST(DataJobTcp, TheNumberOfStreamsDoesNotChangeABit) {
  OperationSpec spec;
  spec.op = ReduceOp::kAverage;
  spec.sizes = {400'003, 5};
  spec.random_seed = 42;
  std::vector<testing::Bytes> outputs;
  for (const uint32_t streams : {1u, 2u, 4u}) {
    LoopRing ring({1, 2, 1}, streams);
    ring.begin_epoch();
    const OperationFixture work(spec, ring.shape(), Seq{1});
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
  OperationSpec spec;
  spec.sizes = {4'000'000};
  const OperationFixture work(spec, ring.shape(), Seq{1});
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
