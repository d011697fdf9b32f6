// Tests what becomes of a frame, by what a data job knows of its operations.
#include "daemon/engine/data/operation_table.h"

#include <gtest/gtest.h>

namespace rueda::engine {
namespace {

using Verdict = Admission::Verdict;

constexpr NodeIndex kPeer{1};

class OperationTableTest : public ::testing::Test {
 protected:
  OperationTableTest() {
    options_.process_set = 3;
    options_.node_ids = {"a", "b"};
    options_.events.on_diverged = [this](Seq seq, uint32_t, NodeIndex) {
      diverged_.push_back(seq);
    };
  }

  RunningOperation& launch(uint64_t seq, uint32_t generation = 0, bool locked = false) {
    auto operation = std::make_unique<Operation>();
    operation->seq = Seq{seq};
    operation->generation = generation;
    operation->locked = locked;
    operation->plan_hash = 7;
    table_.note_launched(Seq{seq});
    return table_.add(
        std::make_unique<RunningOperation>(std::move(operation), core::RingCut(0, 2, 1), 2));
  }
  static transport::FrameHeader frame(uint64_t seq, uint32_t generation = 0) {
    transport::FrameHeader header;
    header.process_set = 3;
    header.seq = seq;
    header.lock_generation = generation;
    header.plan_hash = 7;
    return header;
  }
  Verdict verdict(const transport::FrameHeader& header) {
    return table_.admit(header, kPeer).verdict;
  }

  DataJobOptions options_;
  OperationTable table_{options_};
  std::vector<Seq> diverged_;
};

TEST_F(OperationTableTest, AFrameIsTakenForTheOperationThatIsUnderWay) {
  RunningOperation& running = launch(1);
  const Admission admitted = table_.admit(frame(1), kPeer);
  EXPECT_EQ(admitted.verdict, Verdict::kTaken);
  EXPECT_EQ(admitted.running, &running);
}

TEST_F(OperationTableTest, AFrameIsEarlyUntilItsOperationIsLaunchedAndRefusedOnceThatIsOver) {
  EXPECT_EQ(verdict(frame(1)), Verdict::kEarly);
  const RunningOperation& running = launch(1);
  EXPECT_EQ(verdict(frame(2)), Verdict::kEarly);
  EXPECT_TRUE(table_.erase(running));
  EXPECT_EQ(verdict(frame(1)), Verdict::kRefused);
}

TEST_F(OperationTableTest, TheTracksDoNotKnowOfEachOther) {
  launch(5);
  EXPECT_EQ(verdict(frame(core::kDecreedBit + 1)), Verdict::kEarly);
}

TEST_F(OperationTableTest, AFrameOfAnotherProcessSetIsRefused) {
  launch(1);
  transport::FrameHeader header = frame(1);
  header.process_set = 4;
  const Admission admitted = table_.admit(header, kPeer);
  EXPECT_EQ(admitted.verdict, Verdict::kRefused);
  EXPECT_EQ(admitted.why.message(), "it sent a frame of process set 4");
}

TEST_F(OperationTableTest, WhatIsCancelledIsStaleAndItsNumberComesAgain) {
  launch(1, 1, true);
  launch(2, 1, true);
  std::vector<Seq> let_go;
  table_.cancel({.first = Seq{2}, .generation = 2},
                [&](const RunningOperation& running) { let_go.push_back(running.operation->seq); });
  EXPECT_EQ(let_go, std::vector<Seq>{Seq{2}});
  EXPECT_TRUE(table_.find(Seq{1})->launched_everywhere);
  EXPECT_EQ(verdict(frame(1, 1)), Verdict::kTaken);
  EXPECT_EQ(verdict(frame(2, 1)), Verdict::kStale);
  EXPECT_EQ(verdict(frame(2, 2)), Verdict::kEarly);
  launch(2, 2, true);
  EXPECT_EQ(verdict(frame(2, 2)), Verdict::kTaken);
  EXPECT_EQ(verdict(frame(2, 3)), Verdict::kEarly);
}

TEST_F(OperationTableTest, AnotherPlanHashIsAMismatchButUnderAPlanItIsToldOnceAndWaits) {
  launch(1);
  transport::FrameHeader header = frame(1);
  header.plan_hash = 8;
  const Admission admitted = table_.admit(header, kPeer);
  EXPECT_EQ(admitted.verdict, Verdict::kRefused);
  EXPECT_EQ(admitted.why.code(), Code::kMismatch);
  EXPECT_EQ(admitted.why.origin().node_id, "b");

  launch(2, 1, true);
  header = frame(2, 1);
  header.plan_hash = 8;
  EXPECT_EQ(verdict(header), Verdict::kEarly);
  EXPECT_EQ(verdict(header), Verdict::kEarly);
  EXPECT_EQ(diverged_, std::vector<Seq>{Seq{2}});
}

TEST_F(OperationTableTest, TheFirstThatMayGoIsTakenAndAllBeforeItAreAsked) {
  for (uint64_t seq = 1; seq <= 3; ++seq) {
    auto operation = std::make_unique<Operation>();
    operation->seq = Seq{seq};
    table_.wait(std::move(operation));
  }
  std::vector<Seq> asked;
  const auto taken = table_.take_waiting([&](const Operation& operation) {
    asked.push_back(operation.seq);
    return operation.seq == Seq{2};
  });
  EXPECT_EQ(taken->seq, Seq{2});
  EXPECT_EQ(asked, (std::vector<Seq>{Seq{1}, Seq{2}}));
  EXPECT_EQ(table_.waiting().size(), 2u);
  EXPECT_EQ(table_.take_waiting([](const Operation&) { return false; }), nullptr);
}

}  // namespace
}  // namespace rueda::engine
