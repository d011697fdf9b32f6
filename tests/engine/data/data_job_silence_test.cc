// Tests a DataJob whose neighbour stands still, or goes before it has sent everything: which node
// is named, and what may take any time.
#include <gtest/gtest.h>

#include "tests/engine/data/data_job_with_peer.h"

namespace rueda::engine {
namespace {

using testing::OperationFixture;
using testing::sum_of;
using transport::FrameKind;

class DataJobSilence : public testing::DataJobWithPeer {};

TEST_F(DataJobSilence, APeerThatHoldsWhatItWasSentStandsStill) {
  open(3, 50);
  const OperationFixture work(sum_of({12}), {1, 1, 1}, Seq{1});
  launch(work);
  ASSERT_TRUE(run_until([&] { return !lost_.empty(); }));
  EXPECT_EQ(lost_[0].first, NodeIndex{1}) << "the next node has not freed its slot";
  EXPECT_EQ(
      lost_[0].second.message(),
      "node n1 is lost: it took nothing of what node n0 sent it for 50 ms while operation 1 was "
      "under way");
}

TEST_F(DataJobSilence, APeerThatSendsNothingStandsStill) {
  open(3, 50);
  const OperationFixture work(sum_of({12}), {1, 1, 1}, Seq{1});
  launch(work);
  ASSERT_EQ(from_events_.frames.size(), 1u);
  from_job_->release(from_events_.frames[0].slot);
  ASSERT_TRUE(run_until([&] { return !lost_.empty(); }));
  EXPECT_EQ(
      reason(),
      "node n0 got nothing from it for 50 ms while operation 1 was under way; does its daemon "
      "stand still, or can large packets not pass from it to here (MTU)?");
  EXPECT_TRUE(missed_[0]) << "nobody watches it any more";
}

// A channel closes while a node that is gone for good is waited for.
TEST_F(DataJobSilence, APeerThatClosesBeforeItHasSentEverythingIsMissed) {
  const OperationFixture work(sum_of({8}), {1, 1}, Seq{1});
  launch(work);
  send({.kind = FrameKind::kReduce, .chunk = 1, .slot = 2});
  to_job_.reset();
  poll();
  ASSERT_EQ(missed_.size(), 1u);
  EXPECT_TRUE(missed_[0]);
}

TEST_F(DataJobSilence, APeerThatClosesAfterItHasSentEverythingIsNotMissed) {
  const OperationFixture work(sum_of({8}), {1, 1}, Seq{1});
  launch(work);
  send({.kind = FrameKind::kReduce, .chunk = 1, .slot = 2});
  send({.kind = FrameKind::kGather, .chunk = 0, .slot = 1});
  ASSERT_EQ(done_.size(), 1u);
  to_job_.reset();
  poll();
  ASSERT_EQ(missed_.size(), 1u);
  EXPECT_FALSE(missed_[0]);
}

// A node may leave, and its daemon go, before its channels were ever there.
TEST(DataJobSilent, ANodeThatNeverCameIsNotMissedUntilThereIsSomethingToDo) {
  boost::asio::io_context io{1};
  Turns turns{io, kTurnBytes, kLongestTurn};
  auto transport = transport::make_mem_transport(io, transport::make_mem_network());
  observe::Metrics metrics({"0", "test", "none"});
  DataJobOptions options = testing::data_job_options(2, 0, &turns);
  options.timeout_ms = 20;
  std::vector<bool> missed;
  options.events.on_channel_lost = [&](NodeIndex, const Status&, bool is_missed) {
    missed.push_back(is_missed);
  };
  DataJob job(io, *transport, metrics, std::move(options));
  job.start();
  const TicksMs give_up = steady_now_ms() + 60'000;
  const auto run_until = [&](size_t losses) {
    while (missed.size() < losses && steady_now_ms() < give_up) {
      io.restart();
      io.run_one_for(std::chrono::seconds(1));
    }
  };
  run_until(1);
  EXPECT_EQ(missed, std::vector<bool>{false});
  const OperationFixture work(sum_of({8}), {1, 1}, Seq{1});
  job.run(work.operation(NodeIndex{0}));
  run_until(2);
  EXPECT_EQ(missed, (std::vector<bool>{false, true}));
}

// As long as a member may not have launched a locked operation, the operation waits for an
// application, without a deadline. A node whose channel has closed launches nothing.
TEST_F(DataJobSilence, ALockedOperationIsNotWaitedForWhenThePeerHasGone) {
  open(2, 50);
  const OperationFixture work(sum_of({8}), {1, 1}, Seq{1});
  auto operation = work.operation(NodeIndex{0});
  operation->generation = 1;
  operation->locked = true;
  job_->run(std::move(operation));
  to_job_.reset();
  ASSERT_TRUE(run_until([&] { return lost_.size() == 2; }));
  EXPECT_EQ(missed_, (std::vector<bool>{false, true}));
}

// Rule L7: every node has launched the operations that a cancel leaves. So nothing but the
// neighbour can hold them up.
TEST_F(DataJobSilence, WhatACancelLeavesHasADeadline) {
  open(2, 50);
  const OperationFixture work(sum_of({8}), {1, 1}, Seq{1});
  auto operation = work.operation(NodeIndex{0});
  operation->generation = 1;
  operation->locked = true;
  job_->run(std::move(operation));
  job_->cancel({Seq{2}, 2});
  ASSERT_TRUE(run_until([&] { return !lost_.empty(); }));
  EXPECT_TRUE(missed_[0]);
}

}  // namespace
}  // namespace rueda::engine
