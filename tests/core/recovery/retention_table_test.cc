#include "daemon/core/recovery/retention_table.h"

#include <gtest/gtest.h>

namespace rueda::core {
namespace {

constexpr uint32_t kRanks = 6;

// Sets up operations of two chunks and 10 bytes, in epoch 1.
class RetentionTableTest : public testing::Test {
 protected:
  void launch(uint64_t seq) { retention_.launch(Seq{seq}, {10, 2, {}, Epoch{1}, kRanks}); }
  void complete(uint64_t seq) {
    retention_.add_chunk(Seq{seq}, 0);
    retention_.add_chunk(Seq{seq}, 1);
    retention_.free_partial(Seq{seq});
  }
  static TrackDecision of(uint64_t first, const std::vector<Verdict>& verdicts) {
    TrackDecision decision;
    decision.first = Seq{first};
    for (const Verdict verdict : verdicts) decision.operations.push_back({verdict, {}});
    return decision;
  }

  RetentionTable retention_;
};

TEST_F(RetentionTableTest, AnOperationIsWholeWithItsLastChunk) {
  launch(1);
  EXPECT_TRUE(retention_.any_under_way());
  EXPECT_FALSE(retention_.add_chunk(Seq{1}, 0));
  EXPECT_FALSE(retention_.add_chunk(Seq{1}, 0)) << "again";
  EXPECT_TRUE(retention_.add_chunk(Seq{1}, 1));
  EXPECT_FALSE(retention_.add_chunk(Seq{1}, 1));
  EXPECT_FALSE(retention_.any_under_way());
}

TEST_F(RetentionTableTest, WhatItDoesNotKnowChangesNothing) {
  launch(1);
  EXPECT_FALSE(retention_.add_chunk(Seq{1}, 2));
  EXPECT_FALSE(retention_.add_chunk(Seq{2}, 0));
  EXPECT_FALSE(retention_.add_chunk(Seq{0}, 0));
}

TEST_F(RetentionTableTest, TheLastOneMayBeCancelledAndItsNumberComesAgain) {
  launch(1);
  launch(2);
  retention_.drop_last();
  EXPECT_EQ(retention_.bytes(), 10);
  EXPECT_EQ(retention_.next_seq(), Seq{2});
  launch(2);
  EXPECT_EQ(retention_.bytes(), 20);
}

TEST_F(RetentionTableTest, WhatIsAwaitedMayBeLaunchedLater) {
  launch(1);
  complete(1);
  retention_.await();
  EXPECT_TRUE(retention_.holds(Seq{2}));
  EXPECT_EQ(retention_.complete(), Seq{1});
  EXPECT_EQ(retention_.bytes(), 10);
  launch(2);
  complete(2);
  EXPECT_EQ(retention_.complete(), Seq{2});
  EXPECT_EQ(retention_.bytes(), 20);
}

TEST_F(RetentionTableTest, CompleteIsCumulative) {
  launch(1);
  launch(2);
  complete(2);
  EXPECT_EQ(retention_.complete(), Seq{0});
  complete(1);
  EXPECT_EQ(retention_.complete(), Seq{2});
}

TEST_F(RetentionTableTest, FIsFreedInOrderOnceStableAndDelivered) {
  launch(1);
  launch(2);
  complete(1);
  complete(2);
  EXPECT_FALSE(retention_.free_next_final(Seq{2})) << "not delivered";
  retention_.at(Seq{2}).delivered = true;
  EXPECT_FALSE(retention_.free_next_final(Seq{2})) << "not the next";
  retention_.at(Seq{1}).delivered = true;
  EXPECT_FALSE(retention_.free_next_final(Seq{0})) << "not stable";
  EXPECT_TRUE(retention_.free_next_final(Seq{1}));
  EXPECT_FALSE(retention_.free_next_final(Seq{1}));
  EXPECT_EQ(retention_.freed(), Seq{1});
  EXPECT_EQ(retention_.bytes(), 10);
  EXPECT_EQ(retention_.complete(), Seq{2});
}

TEST_F(RetentionTableTest, TheReportSaysWhatIsHeld) {
  launch(1);
  launch(2);
  complete(1);
  retention_.at(Seq{1}).delivered = true;
  retention_.add_chunk(Seq{2}, 1);
  const Report report = retention_.report();
  EXPECT_EQ(report.freed, Seq{0});
  ASSERT_EQ(report.operations.size(), 2u);
  EXPECT_EQ(report.operations[0].chunks, std::vector<bool>({true, true}));
  EXPECT_FALSE(report.operations[0].partial);
  EXPECT_TRUE(report.operations[0].delivered);
  EXPECT_EQ(report.operations[1].chunks, std::vector<bool>({false, true}));
  EXPECT_TRUE(report.operations[1].partial);
}

TEST_F(RetentionTableTest, WhatIsRepeatedStartsFromPAndKeepsItsPlace) {
  launch(1);
  launch(2);
  launch(3);
  complete(1);
  retention_.add_chunk(Seq{2}, 0);
  RetentionTable next = retention_.carried_over(of(1, {Verdict::kComplete, Verdict::kRedo}));
  EXPECT_EQ(next.next_seq(), Seq{3}) << "operation 3 has returned";
  EXPECT_EQ(next.bytes(), 20);
  EXPECT_TRUE(next.at(Seq{1}).whole());
  EXPECT_FALSE(next.at(Seq{2}).launched());
  EXPECT_TRUE(next.at(Seq{2}).partial);
  next.launch(Seq{2}, {10, 4, {}, Epoch{2}, 3});
  EXPECT_EQ(next.bytes(), 20) << "counted once";
  EXPECT_EQ(next.at(Seq{2}).chunks.size(), 4u);
  EXPECT_EQ(next.at(Seq{2}).epoch, Epoch{2});
  EXPECT_EQ(next.at(Seq{1}).epoch, Epoch{1}) << "the old divisor";
  EXPECT_EQ(next.at(Seq{1}).contributors, kRanks);
}

TEST_F(RetentionTableTest, WhatWasFreedStaysFreedUnderItsNewNumber) {
  for (uint64_t seq = 1; seq <= 3; ++seq) {
    launch(seq);
    complete(seq);
    retention_.at(Seq{seq}).delivered = true;
  }
  while (retention_.free_next_final(Seq{2})) {
  }
  const RetentionTable next =
      retention_.carried_over(of(2, {Verdict::kComplete, Verdict::kComplete}));
  EXPECT_EQ(next.freed(), Seq{1});
  EXPECT_TRUE(next.holds(Seq{2}));
  EXPECT_EQ(next.complete(), Seq{2});
  EXPECT_TRUE(next.at(Seq{2}).delivered) << "and is not delivered again";
}

}  // namespace
}  // namespace rueda::core
