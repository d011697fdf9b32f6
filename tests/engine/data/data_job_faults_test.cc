// Tests a DataJob whose neighbour dies, stands still or breaks the rules: the channel is lost with
// a reason, and nothing crashes.
#include <cstring>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/engine/data/data_job_with_peer.h"

namespace rueda::engine {
namespace {

using testing::DataJobWithPeer;
using testing::OperationFixture;
using testing::OperationSpec;
using testing::Ring;
using testing::RingOptions;
using testing::sum_of;
using transport::FrameKind;

// Eight floats on two nodes make chunk 0 (this node's shard) and chunk 1, of four floats each.
TEST_F(DataJobWithPeer, ThePeersFramesAreUnderstood) {
  const OperationFixture work(sum_of({8}), {1, 1}, Seq{1});
  launch(work);
  ASSERT_EQ(from_events_.frames.size(), 1u);
  EXPECT_EQ(from_events_.frames[0].kind, FrameKind::kReduce);
  EXPECT_EQ(from_events_.frames[0].chunk, 0u);
  EXPECT_EQ(from_events_.frames[0].seq, 1u);
  EXPECT_EQ(from_events_.frames[0].plan_hash, 7u);
  EXPECT_EQ(from_events_.frames[0].payload_bytes, 16u);
  EXPECT_EQ(from_events_.frames[0].stable_seq, 0u);
  for (int i = 0; i < 4; ++i) {  // are rank 1's elements 4 to 7
    testing::put_number(DType::kFloat32, i % 2 ? 1 : 2, memory_.data() + i * 4);
  }
  send({.kind = FrameKind::kReduce, .chunk = 1, .slot = 2});
  ASSERT_EQ(from_events_.frames.size(), 2u);
  EXPECT_EQ(from_events_.frames[1].kind, FrameKind::kGather);
  EXPECT_EQ(from_events_.frames[1].chunk, 1u);
  for (int i = 0; i < 4; ++i) {
    testing::put_number(DType::kFloat32, 3, memory_.data() + i * 4);
  }
  send({.kind = FrameKind::kGather, .chunk = 0, .slot = 1});
  EXPECT_EQ(done_, (std::vector<Seq>{Seq{1}}));
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(testing::get_number(DType::kFloat32, work.output_of(Rank{0}, 0) + i * 4), 3) << i;
  }
}

TEST_F(DataJobWithPeer, AChunkThatTheOperationDoesNotHave) {
  const OperationFixture work(sum_of({8}), {1, 1}, Seq{1});
  launch(work);
  send({.chunk = 2});
  EXPECT_EQ(reason(), "it sent a frame of operation 1 with chunk 2");
}

TEST_F(DataJobWithPeer, TheLargestChunkNumber) {
  const OperationFixture work(sum_of({8}), {1, 1}, Seq{1});
  launch(work);
  send({.chunk = UINT32_MAX});
  EXPECT_EQ(reason(), "it sent a frame of operation 1 with chunk 4294967295");
}

TEST_F(DataJobWithPeer, AChunkOfAnotherSize) {
  const OperationFixture work(sum_of({8}), {1, 1}, Seq{1});
  launch(work);
  send({.chunk = 1, .bytes = 12});
  EXPECT_EQ(reason(), "it sent a frame of operation 1 with 12 bytes in chunk 1");
}

TEST_F(DataJobWithPeer, AKindThatTheOperationHasNot) {
  const OperationFixture work(sum_of({8}), {1, 1}, Seq{1});
  launch(work);
  send({.kind = FrameKind::kGather, .chunk = 1, .bytes = 16});
  EXPECT_EQ(reason(), "it sent a frame of operation 1 with a phase that node has no part in");
}

TEST_F(DataJobWithPeer, AReductionForABroadcast) {
  OperationSpec spec = sum_of({8});
  spec.kind = CollectiveKind::kBroadcast;
  spec.root = Rank{1};
  const OperationFixture work(spec, {1, 1}, Seq{1});
  launch(work);
  send({.kind = FrameKind::kReduce, .chunk = 0, .bytes = 32});
  EXPECT_EQ(reason(), "it sent a frame of operation 1 with a phase that node has no part in");
}

TEST_F(DataJobWithPeer, ValuesForTheRoot) {
  OperationSpec spec = sum_of({kChunkFloats * 64});
  spec.kind = CollectiveKind::kBroadcast;
  spec.root = Rank{0};
  const OperationFixture work(spec, {1, 1}, Seq{1});
  launch(work);
  ASSERT_TRUE(done_.empty()) << "it should be waiting for slots";
  send({.kind = FrameKind::kGather, .chunk = 63, .bytes = kChunkBytes});
  EXPECT_EQ(reason(), "it sent a frame of operation 1 with a phase that node has no part in");
}

TEST_F(DataJobWithPeer, AReductionOfTheShardThatStartedHere) {
  const OperationFixture work(sum_of({8}), {1, 1}, Seq{1});
  launch(work);
  send({.kind = FrameKind::kReduce, .chunk = 0});
  EXPECT_EQ(reason(), "it sent a frame of operation 1 with a phase that node has no part in");
}

TEST_F(DataJobWithPeer, AResultOfTheShardThatEndsHere) {
  const OperationFixture work(sum_of({8}), {1, 1}, Seq{1});
  launch(work);
  send({.kind = FrameKind::kGather, .chunk = 1});
  EXPECT_EQ(reason(), "it sent a frame of operation 1 with a phase that node has no part in");
}

TEST_F(DataJobWithPeer, AnAcknowledgementWhereNothingIsHeld) {
  send({.kind = FrameKind::kStable, .chunk = 2, .bytes = 0});
  EXPECT_EQ(reason(), "it sent an acknowledgement that cannot be");
}

TEST_F(DataJobWithPeer, AnAcknowledgementThatWasNotAskedFor) {
  open(2, 60'000, core::DeathPolicy::kShrink);
  send({.kind = FrameKind::kStable,
        .chunk = 2,
        .slot = geometry_.acknowledgement_slot(core::Track::kLockable),
        .bytes = 0});
  EXPECT_EQ(reason(), "it sent an acknowledgement that cannot be");
}

TEST_F(DataJobWithPeer, AnAcknowledgementOfAnotherNodesTurn) {
  open(2, 60'000, core::DeathPolicy::kShrink);
  send({.kind = FrameKind::kStable,
        .chunk = 1,
        .slot = geometry_.acknowledgement_slot(core::Track::kLockable),
        .bytes = 0});
  EXPECT_EQ(reason(), "it sent an acknowledgement that cannot be");
}

TEST_F(DataJobWithPeer, AnOperationThatIsStableBeforeItIsComplete) {
  open(2, 60'000, core::DeathPolicy::kShrink);
  const OperationFixture work(sum_of({8}), {1, 1}, Seq{1});
  launch(work);
  send({.kind = FrameKind::kGather, .chunk = 0, .slot = 1, .stable_seq = 1});
  EXPECT_EQ(reason(), "it sent a frame of operation 1 with a stability that cannot be");
}

TEST_F(DataJobWithPeer, AFrameOfAnOperationThatIsOver) {
  const OperationFixture work(sum_of({8}), {1, 1}, Seq{1});
  launch(work);
  send({.kind = FrameKind::kReduce, .chunk = 1, .slot = 2});
  send({.kind = FrameKind::kGather, .chunk = 0, .slot = 1});
  ASSERT_EQ(done_.size(), 1u);
  send({.kind = FrameKind::kGather, .chunk = 0, .slot = 5});
  EXPECT_EQ(reason(), "it sent a frame of operation 1, which is complete here");
}

// Counting chunks is not enough: a piece is complete when each of its chunks has come.
TEST_F(DataJobWithPeer, TheSameResultTwiceDoesNotCompleteAPiece) {
  const OperationFixture work(sum_of({8}), {1, 1}, Seq{1});
  launch(work);
  send({.kind = FrameKind::kGather, .chunk = 0, .slot = 1});
  send({.kind = FrameKind::kGather, .chunk = 0, .slot = 3});
  EXPECT_TRUE(done_.empty());
  EXPECT_EQ(reason(), "it sent a frame of operation 1 with chunk 0 again");
}

TEST_F(DataJobWithPeer, TheSamePartialSumTwiceIsNotAddedTwice) {
  const OperationFixture work(sum_of({8}), {1, 1}, Seq{1});
  launch(work);
  send({.kind = FrameKind::kReduce, .chunk = 1, .slot = 2});
  send({.kind = FrameKind::kReduce, .chunk = 1, .slot = 4});
  EXPECT_TRUE(done_.empty());
  EXPECT_EQ(reason(), "it sent a frame of operation 1 with chunk 1 again");
}

// Node 0 of three adds to shard 2 and passes it on.
TEST_F(DataJobWithPeer, APartialSumToPassOnTwice) {
  open(3);
  const OperationFixture work(sum_of({12}), {1, 1, 1}, Seq{1});
  launch(work);
  send({.kind = FrameKind::kReduce, .chunk = 2, .slot = 2});
  send({.kind = FrameKind::kReduce, .chunk = 2, .slot = 4});
  EXPECT_EQ(reason(), "it sent a frame of operation 1 with chunk 2 again");
}

TEST_F(DataJobWithPeer, ABroadcastsChunkTwice) {
  OperationSpec spec = sum_of({kChunkFloats * 3});
  spec.kind = CollectiveKind::kBroadcast;
  spec.root = Rank{1};
  const OperationFixture work(spec, {1, 1}, Seq{1});
  launch(work);
  send({.kind = FrameKind::kGather, .chunk = 1, .slot = 1, .bytes = kChunkBytes});
  send({.kind = FrameKind::kGather, .chunk = 1, .slot = 2, .bytes = kChunkBytes});
  EXPECT_EQ(reason(), "it sent a frame of operation 1 with chunk 1 again");
}

TEST_F(DataJobWithPeer, AnotherPlanIsAMismatchThatNamesTheNode) {
  const OperationFixture work(sum_of({8}), {1, 1}, Seq{1});
  launch(work);
  send({.chunk = 1, .plan_hash = 8});
  ASSERT_EQ(failed_.size(), 1u);
  EXPECT_EQ(failed_[0].first, Seq{1});
  EXPECT_EQ(failed_[0].second.code(), Code::kMismatch);
  EXPECT_EQ(failed_[0].second.message(),
            "node n1 means another batch by operation 1 than this node");
  EXPECT_EQ(failed_[0].second.origin(), (Origin{"n1", {}}));
  EXPECT_TRUE(lost_.empty());
}

// Rule L9: the neighbour has taken another alternative. Its frames wait until the operation is
// cancelled.
TEST_F(DataJobWithPeer, AnotherWayOfAPlanIsToldOnceAndCancelled) {
  const auto run = [&](const OperationFixture& work, uint32_t generation, bool locked) {
    auto operation = work.operation(NodeIndex{0});
    operation->generation = generation;
    operation->locked = locked;
    job_->run(std::move(operation));
    poll();
  };
  const OperationFixture planned(sum_of({8}), {1, 1}, Seq{1});
  run(planned, 1, true);
  send({.chunk = 1, .slot = 2, .plan_hash = 8, .generation = 1});
  send({.kind = FrameKind::kGather, .chunk = 0, .slot = 1, .plan_hash = 8, .generation = 1});
  ASSERT_EQ(diverged_.size(), 1u);
  EXPECT_EQ(diverged_[0], std::tuple(Seq{1}, 1u, NodeIndex{1}));
  EXPECT_TRUE(failed_.empty() && lost_.empty() && done_.empty());
  job_->cancel({Seq{1}, 2});
  poll();
  // Both slots were given back, and the operation that comes again uses them.
  const OperationFixture again(sum_of({8}), {1, 1}, Seq{1});
  run(again, 2, false);
  send({.chunk = 1, .slot = 2, .generation = 2});
  send({.kind = FrameKind::kGather, .chunk = 0, .slot = 1, .generation = 2});
  EXPECT_EQ(done_.size(), 1u);
  EXPECT_TRUE(failed_.empty() && lost_.empty());
}

TEST_F(DataJobWithPeer, AnotherPlanThatCameEarly) {
  send({.chunk = 1, .plan_hash = 8});
  const OperationFixture work(sum_of({8}), {1, 1}, Seq{1});
  launch(work);
  ASSERT_EQ(failed_.size(), 1u);
  EXPECT_EQ(failed_[0].second.code(), Code::kMismatch);
}

TEST_F(DataJobWithPeer, WhatCameEarlyIsCheckedLikeTheRest) {
  send({.chunk = 77});
  EXPECT_TRUE(lost_.empty());
  const OperationFixture work(sum_of({8}), {1, 1}, Seq{1});
  launch(work);
  EXPECT_EQ(reason(), "it sent a frame of operation 1 with chunk 77");
}

// No more than one frame for each slot can wait, so the number of slots is the bound.
TEST_F(DataJobWithPeer, FramesOfOperationsThatNeverComeFillTheSlotsAndNoMore) {
  for (uint32_t slot = 0; slot < geometry_.slots(); ++slot) {
    send({.seq = 1000 + slot, .slot = slot});
    EXPECT_FALSE(to_job_->slot_free(slot));
  }
  EXPECT_TRUE(lost_.empty());
}

TEST_F(DataJobWithPeer, AfterALossNothingMoreHappens) {
  const OperationFixture work(sum_of({8}), {1, 1}, Seq{1});
  launch(work);
  send({.chunk = 2});
  ASSERT_EQ(lost_.size(), 1u);
  send({.kind = FrameKind::kReduce, .chunk = 1, .slot = 2});
  send({.kind = FrameKind::kGather, .chunk = 0, .slot = 1});
  const OperationFixture next(sum_of({8}), {1, 1}, Seq{2});
  launch(next);
  EXPECT_TRUE(done_.empty());
  EXPECT_EQ(lost_.size(), 1u);
}

TEST_F(DataJobWithPeer, APeerThatVanishesIsNamed) {
  const OperationFixture work(sum_of({8}), {1, 1}, Seq{1});
  launch(work);
  to_job_.reset();
  poll();
  EXPECT_NE(reason().find("closed channel 1->0"), std::string::npos) << reason();
  EXPECT_TRUE(done_.empty());
}

// The channel to the next node dies, and the next node is reported as lost.
TEST_F(DataJobWithPeer, TheNextNodeIsBlamedForItsOwnChannel) {
  open(3);
  const OperationFixture work(sum_of({12}), {1, 1, 1}, Seq{1});
  launch(work);
  from_job_.reset();
  poll();
  ASSERT_EQ(lost_.size(), 1u);
  EXPECT_EQ(lost_[0].first, NodeIndex{1});
  EXPECT_EQ(lost_[0].second.origin().node_id, "n1");
}

TEST_F(DataJobWithPeer, TheJobMayGoInMidOperation) {
  const OperationFixture work(sum_of({kChunkFloats * 100}), {1, 1}, Seq{1});
  launch(work);
  send({.kind = FrameKind::kReduce, .chunk = 1, .slot = 2, .bytes = kChunkBytes});
  send({.seq = 9, .slot = 40});
  job_.reset();
  poll();
  EXPECT_TRUE(from_events_.closed);
  EXPECT_TRUE(to_events_.closed);
  EXPECT_TRUE(done_.empty());
  EXPECT_EQ(metrics_.daemon().staging_bytes.Value(), 0);
}

TEST(DataJobFaults, APeerThatNeverComesIsNamed) {
  boost::asio::io_context io{1};
  Turns turns{io, kTurnBytes, kLongestTurn};
  auto transport = transport::make_mem_transport(io, transport::make_mem_network());
  observe::Metrics metrics({"0", "test", "none"});
  DataJobOptions options = testing::data_job_options(2, 0, &turns);
  options.timeout_ms = 50;
  std::vector<Status> lost;
  options.events.on_channel_lost = [&](NodeIndex, const Status& status, bool) {
    lost.push_back(status);
  };
  DataJob job(io, *transport, metrics, std::move(options));
  job.start();
  const TicksMs give_up = steady_now_ms() + 60'000;
  while (lost.empty() && steady_now_ms() < give_up) io.run_one_for(std::chrono::seconds(1));
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].code(), Code::kNodeLost);
  EXPECT_EQ(lost[0].origin().node_id, "n1");
  EXPECT_TRUE(lost[0].message().starts_with("node n1 is lost: ")) << lost[0].message();
}

TEST(DataJobFaults, AJobMayGoBeforeItsChannelsAreOpen) {
  boost::asio::io_context io{1};
  Turns turns{io, kTurnBytes, kLongestTurn};
  auto transport = transport::make_mem_transport(io, transport::make_mem_network());
  observe::Metrics metrics({"0", "test", "none"});
  {
    DataJob job(io, *transport, metrics, testing::data_job_options(2, 0, &turns));
    job.start();
  }
  io.poll();
  DataJob again(io, *transport, metrics, testing::data_job_options(2, 0, &turns));
  again.start();
}

// Nodes that were given other sizes of chunks cannot form a ring.
TEST(DataJobFaults, OtherChunksOnTheNeighbour) {
  boost::asio::io_context io{1};
  Turns turns{io, kTurnBytes, kLongestTurn};
  const auto network = transport::make_mem_network();
  observe::Metrics metrics({"0", "test", "none"});
  std::vector<std::unique_ptr<transport::Transport>> transports;
  std::vector<std::unique_ptr<DataJob>> jobs;
  std::vector<Status> lost;
  for (int i = 0; i < 2; ++i) {
    DataJobOptions options = testing::data_job_options(2, i, &turns);
    options.chunk_bytes = i == 0 ? 4096 : 8192;
    options.timeout_ms = 2000;
    options.events.on_channel_lost = [&](NodeIndex, const Status& status, bool) {
      lost.push_back(status);
    };
    transports.push_back(transport::make_mem_transport(io, network));
    ASSERT_TRUE(transports.back()->listen(options.data_addresses[static_cast<size_t>(i)]).is_ok());
    jobs.push_back(std::make_unique<DataJob>(io, *transports.back(), metrics, std::move(options)));
  }
  for (const auto& job : jobs) job->start();
  const TicksMs give_up = steady_now_ms() + 60'000;
  while (lost.size() < 2 && steady_now_ms() < give_up) io.run_one_for(std::chrono::seconds(1));
  ASSERT_EQ(lost.size(), 2u);
  for (const Status& status : lost) {
    EXPECT_NE(status.message().find("4096"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("8192"), std::string::npos) << status.message();
  }
  jobs.clear();
}

// One node goes at any moment; the others lose a channel to it, and nothing breaks.
TEST(DataJobFaults, ANodeMayGoAtAnyMoment) {
  for (int turns = 0; turns < 200; turns += 3) {
    RingOptions options;
    options.ranks_per_node = {1, 2, 1};
    Ring ring(options);
    for (int i = 0; i < 3; ++i) ring.add(sum_of({9001}));
    for (int i = 0; i < 3; ++i) {
      while (ring.launch_next(i)) {
      }
    }
    for (int i = 0; i < turns; ++i) ring.poll();
    if (ring.node(1).done.size() == 3) break;
    ring.node(1).job.reset();
    if (turns < 20) continue;  // the channels may not be open, and their deadline is long
    ASSERT_TRUE(ring.run_until([&] {
      return !ring.node(0).lost.empty() && !ring.node(2).lost.empty();
    })) << "after "
        << turns << " turns";
    for (const int survivor : {0, 2}) {
      EXPECT_EQ(ring.node(survivor).lost[0].first, NodeIndex{1});
      EXPECT_EQ(ring.node(survivor).lost[0].second.origin().node_id, "n1");
    }
  }
}

}  // namespace
}  // namespace rueda::engine
