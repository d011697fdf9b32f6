// Tests R1 and R2 on the bytes of one node: what is held, for how long, and how much.
#include "daemon/engine/channels/retained_finals.h"

#include <cstring>

#include <gtest/gtest.h>

namespace rueda::engine {
namespace {

using core::Track;

constexpr size_t kBound = 4096;

Operation sum_of(int64_t elements, uint64_t seq) {
  Operation operation;
  operation.epoch = Epoch{1};
  operation.seq = Seq{seq};
  operation.first_element = {0, elements};
  return operation;
}

class HeldFinalsOnTwoNodes : public ::testing::Test {
 protected:
  core::RingCut cut(int64_t elements) const { return {elements, 2, 1024}; }
  void launch(int64_t elements, uint64_t seq) {
    ASSERT_TRUE(held_->launch(sum_of(elements, seq), cut(elements)));
  }
  // Completes both chunks of an operation of 8 floats.
  void complete(uint64_t seq) {
    held_->keep(Seq{seq}, 0, values_);
    held_->keep(Seq{seq}, 1, values_);
  }
  double metric() { return metrics_.daemon().unstable_bytes.Value(); }

  observe::Metrics metrics_{{"0", "test", "none"}};
  std::unique_ptr<RetainedFinals> held_ =
      RetainedFinals::make(Track::kLockable, kBound, metrics_).value();
  const std::byte values_[4096]{};
};

TEST_F(HeldFinalsOnTwoNodes, WhatIsStableAndDeliveredGoes) {
  launch(8, 1);
  launch(8, 2);
  EXPECT_EQ(held_->bytes(), 128);
  EXPECT_EQ(metric(), 128);
  complete(1);
  EXPECT_EQ(held_->complete(), Seq{1});
  held_->note_stable(Seq{1});
  EXPECT_TRUE(held_->holds(Seq{1})) << "its values are not in the outputs yet";
  held_->note_delivered(Seq{1});
  EXPECT_FALSE(held_->holds(Seq{1}));
  complete(2);
  held_->note_delivered(Seq{2});
  EXPECT_TRUE(held_->holds(Seq{2})) << "another node may lack it";
  held_->note_stable(Seq{2});
  EXPECT_EQ(held_->bytes(), 0);
  EXPECT_EQ(metric(), 0);
}

TEST_F(HeldFinalsOnTwoNodes, TheBoundIsOneOperationAtLeast) {
  EXPECT_TRUE(held_->has_room(Seq{9}, 1 << 20)) << "nothing is held";
  launch(1000, 1);
  EXPECT_FALSE(held_->has_room(Seq{9}, 1 << 20));
  EXPECT_TRUE(held_->has_room(Seq{9}, 64));
  EXPECT_FALSE(held_->has_room(Seq{9}, 128)) << "4032 of 4096 are in use";
}

TEST_F(HeldFinalsOnTwoNodes, ChunksAreHandedOutAsTheyCame) {
  launch(8, 1);
  const float upper[] = {5, 6, 7, 8};
  held_->keep(Seq{1}, 1, reinterpret_cast<const std::byte*>(upper));
  const std::span<const std::byte> chunk = held_->chunk(Seq{1}, 1);
  ASSERT_EQ(chunk.size(), sizeof(upper));
  EXPECT_EQ(std::memcmp(chunk.data(), upper, sizeof(upper)), 0);
  EXPECT_EQ(held_->complete(), Seq{0});
  // Final values do not change.
  held_->keep(Seq{1}, 1, values_);
  EXPECT_EQ(std::memcmp(chunk.data(), upper, sizeof(upper)), 0);
}

TEST_F(HeldFinalsOnTwoNodes, TheReportSaysWhatIsHeld) {
  for (const uint64_t seq : {1, 2, 3}) launch(8, seq);
  complete(1);
  held_->note_delivered(Seq{1});
  held_->keep(Seq{2}, 1, values_);
  const core::Report report = held_->report();
  ASSERT_EQ(report.operations.size(), 3u);
  EXPECT_EQ(report.freed, Seq{0});
  EXPECT_EQ(report.operations[0].chunks, (std::vector<bool>{true, true}));
  EXPECT_TRUE(report.operations[0].delivered);
  EXPECT_FALSE(report.operations[0].partial) << "its inputs may be overwritten now";
  EXPECT_EQ(report.operations[1].chunks, (std::vector<bool>{false, true}));
  EXPECT_TRUE(report.operations[1].partial);
  EXPECT_EQ(report.operations[2].chunks, (std::vector<bool>{false, false}));
}

TEST_F(HeldFinalsOnTwoNodes, CancelledOperationsGiveTheirRoomBack) {
  for (const uint64_t seq : {1, 2, 3}) launch(8, seq);
  held_->cancel(Seq{2});
  EXPECT_EQ(held_->bytes(), 64);
  EXPECT_FALSE(held_->holds(Seq{2}));
  launch(500, 2);
  EXPECT_EQ(held_->bytes(), 64 + 2048);
  held_->cancel(Seq{9});
  EXPECT_TRUE(held_->holds(Seq{2}));
}

TEST_F(HeldFinalsOnTwoNodes, ADecisionLeavesWhatItNamesUnderNewNumbers) {
  for (const uint64_t seq : {1, 2, 3, 4}) launch(8, seq);
  complete(1);
  held_->note_delivered(Seq{1});
  held_->note_stable(Seq{1});
  complete(2);
  core::TrackDecision decision;
  decision.first = Seq{1};  // another node has not freed number 1
  const core::OperationVerdict done{core::Verdict::kComplete, {NodeIndex{0}, NodeIndex{0}}};
  // number 4 was not launched everywhere
  decision.operations = {done, done, {core::Verdict::kRedo, {}}};
  held_->carry_over(decision);
  EXPECT_EQ(held_->bytes(), 128);
  EXPECT_EQ(held_->complete(), Seq{2});
  EXPECT_EQ(held_->stable(), Seq{0}) << "nobody has said so in this epoch";
  EXPECT_FALSE(held_->holds(Seq{1}));
  EXPECT_TRUE(held_->is_whole(Seq{2}));
  EXPECT_FALSE(held_->is_whole(Seq{3}));
  launch(8, 3);  // launches it again, in the memory that it had
  launch(8, 4);  // launches a new operation
  EXPECT_EQ(held_->bytes(), 192);
}

TEST_F(HeldFinalsOnTwoNodes, BroadcastsCountFromTheirFirstNumber) {
  held_ = RetainedFinals::make(Track::kDecreed, kBound, metrics_).value();
  EXPECT_EQ(held_->complete(), core::before_first_of(Track::kDecreed));
  const Seq first = core::first_of(Track::kDecreed);
  ASSERT_TRUE(held_->launch(sum_of(8, first.value), {8, 1, 1024}));
  held_->keep(first, 0, values_);
  EXPECT_EQ(held_->complete(), first);
  held_->note_delivered(first);
  held_->note_stable(first);
  EXPECT_EQ(held_->bytes(), 0);
}

TEST_F(HeldFinalsOnTwoNodes, TheMetricForgetsWhatGoesWithAnEpoch) {
  launch(8, 1);
  EXPECT_EQ(metric(), 64);
  held_.reset();
  EXPECT_EQ(metric(), 0);
}

}  // namespace
}  // namespace rueda::engine
