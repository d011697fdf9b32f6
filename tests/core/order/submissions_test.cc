#include "daemon/core/order/submissions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/builders.h"

namespace rueda::core {
namespace {

using testing::ElementsAre;

// Sets up a node with global ranks 4 and 6.
class Submissions : public testing::Test {
 protected:
  Status add(int local_rank, uint64_t ticket, const DescriptorPtr& descriptor) {
    return table_.add({LocalRank{local_rank}, Ticket{ticket}, descriptor});
  }
  static std::vector<uint64_t> tickets(const std::vector<LocalSubmission>& submissions) {
    std::vector<uint64_t> numbers;
    for (const LocalSubmission& item : submissions) numbers.push_back(item.ticket.value);
    return numbers;
  }

  SubmissionTable table_{{Rank{4}, Rank{6}}};
};

TEST_F(Submissions, ATensorIsReadyOnceAllLocalRanksHaveSubmittedIt) {
  ASSERT_TRUE(add(1, 10, tensor("a")).is_ok());
  EXPECT_FALSE(table_.take_ready("a"));
  ASSERT_TRUE(add(0, 20, tensor("a")).is_ok());
  const std::optional<ReadyTensor> ready = table_.take_ready("a");
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->rank, Rank{4});
  EXPECT_EQ(ready->descriptor->name, "a");
  EXPECT_EQ(ready->mismatch, "");
}

TEST_F(Submissions, ATensorIsReportedOnce) {
  ASSERT_TRUE(add(0, 1, tensor("a")).is_ok());
  ASSERT_TRUE(add(1, 1, tensor("a")).is_ok());
  EXPECT_TRUE(table_.take_ready("a"));
  EXPECT_FALSE(table_.take_ready("a"));
  EXPECT_FALSE(table_.take_ready("never seen"));
}

TEST_F(Submissions, RanksOfOneNodeThatDisagreeAreBothNamed) {
  ASSERT_TRUE(add(0, 1, tensor("a", 3)).is_ok());
  ASSERT_TRUE(add(1, 1, tensor("a", 5)).is_ok());
  EXPECT_EQ(table_.take_ready("a")->mismatch,
            "ranks disagree on tensor \"a\": shape is [3] on rank 4 and [5] on rank 6; submit the "
            "same on every rank");
}

TEST_F(Submissions, ANameInFlightIsRefusedToTheRankThatHasIt) {
  ASSERT_TRUE(add(1, 1, tensor("a")).is_ok());
  const Status again = add(1, 2, tensor("a"));
  EXPECT_EQ(again.code(), Code::kDuplicateName);
  EXPECT_EQ(again.message(),
            "rank 6 submitted tensor \"a\" again before its first submission was complete; wait "
            "for the first, or use another name");
  EXPECT_EQ(table_.submissions(), 1u);
  EXPECT_TRUE(add(0, 1, tensor("a")).is_ok()) << "the other rank is not to blame";
}

TEST_F(Submissions, AfterItsEndANameIsFreeAgain) {
  ASSERT_TRUE(add(0, 1, tensor("a")).is_ok());
  EXPECT_THAT(tickets(table_.remove("a")), ElementsAre(1));
  EXPECT_EQ(table_.find("a"), nullptr);
  EXPECT_TRUE(table_.remove("a").empty());
  EXPECT_TRUE(add(0, 2, tensor("a")).is_ok());
}

TEST_F(Submissions, RemoveReturnsWhatIsThereByLocalRank) {
  ASSERT_TRUE(add(1, 11, tensor("a")).is_ok());
  ASSERT_TRUE(add(0, 10, tensor("a")).is_ok());
  EXPECT_THAT(tickets(table_.remove("a")), ElementsAre(10, 11));
  EXPECT_EQ(table_.submissions(), 0u);
}

TEST_F(Submissions, WhatIsReportedIsTheCoordinatorsToEnd) {
  for (const int rank : {0, 1}) ASSERT_TRUE(add(rank, 1, tensor("reported")).is_ok());
  ASSERT_TRUE(table_.take_ready("reported"));
  ASSERT_TRUE(add(0, 2, tensor("z")).is_ok());
  ASSERT_TRUE(add(1, 3, tensor("b")).is_ok());
  EXPECT_THAT(tickets(table_.remove_unreported()), ElementsAre(3, 2)) << "in the order of names";
  EXPECT_EQ(table_.submissions(), 2u);
  EXPECT_NE(table_.find("reported"), nullptr);
  EXPECT_THAT(tickets(table_.remove_all()), ElementsAre(1, 1));
  EXPECT_EQ(table_.submissions(), 0u);
}

TEST_F(Submissions, CountsByRank) {
  ASSERT_TRUE(add(0, 1, tensor("a")).is_ok());
  ASSERT_TRUE(add(0, 2, tensor("b")).is_ok());
  ASSERT_TRUE(add(1, 1, tensor("a")).is_ok());
  EXPECT_EQ(table_.submissions(), 3u);
  EXPECT_EQ(table_.submissions_of(LocalRank{0}), 2u);
  EXPECT_EQ(table_.submissions_of(LocalRank{1}), 1u);
}

}  // namespace
}  // namespace rueda::core
