#include "daemon/base/status.h"

#include <memory>
#include <set>
#include <type_traits>

#include <gtest/gtest.h>

namespace rueda {
namespace {

TEST(Status, TheDefaultIsOk) {
  const Status status;
  EXPECT_TRUE(status.is_ok());
  EXPECT_EQ(status, Status::ok());
  EXPECT_EQ(status.message(), "");
  EXPECT_EQ(status.origin(), Origin{});
  EXPECT_EQ(status.to_string(), "OK");
}

TEST(Status, AnErrorSaysWhatAndWho) {
  const Status status(Code::kRankLost, "rank 3 died", Origin{"node-b", Rank{3}});
  EXPECT_FALSE(status.is_ok());
  EXPECT_EQ(status.code(), Code::kRankLost);
  EXPECT_EQ(status.to_string(), "RANK_LOST: rank 3 died");
  EXPECT_EQ(status.origin().node_id, "node-b");
  EXPECT_EQ(status.origin().rank, Rank{3});
}

TEST(Status, TheOriginCountsInComparisons) {
  const Status nobody(Code::kTimeout, "late");
  EXPECT_EQ(nobody, Status(Code::kTimeout, "late"));
  EXPECT_NE(nobody, Status(Code::kTimeout, "late", Origin{"n1", {}}));
  EXPECT_NE(nobody, Status(Code::kTimeout, "late", Origin{{}, Rank{0}}));
  EXPECT_NE(nobody, Status(Code::kUnavailable, "late"));
  EXPECT_NE(nobody, Status(Code::kTimeout, "too late"));
}

TEST(Status, OnlyUnavailableIsRetryable) {
  for (int code = 1; code <= static_cast<int>(Code::kInternal); ++code) {
    const Status status(static_cast<Code>(code), "x");
    EXPECT_EQ(status.is_retryable(), static_cast<Code>(code) == Code::kUnavailable) << code;
  }
  EXPECT_FALSE(Status::ok().is_retryable());
}

TEST(Status, EveryCodeHasANameOfItsOwn) {
  std::set<std::string> names;
  for (int code = 0; code <= static_cast<int>(Code::kInternal); ++code) {
    names.insert(to_string(static_cast<Code>(code)));
  }
  EXPECT_EQ(names.size(), 15u);
  EXPECT_FALSE(names.contains("UNKNOWN"));
  EXPECT_STREQ(to_string(static_cast<Code>(99)), "UNKNOWN");
}

Result<int> half(int number) {
  if (number % 2 != 0) return Status(Code::kInvalidArgument, "odd");
  return number / 2;
}

TEST(Result, HoldsAValueOrAStatus) {
  const Result<int> good = half(4);
  ASSERT_TRUE(good.is_ok());
  EXPECT_EQ(good.value(), 2);
  EXPECT_EQ(good.status(), Status::ok());

  const Result<int> bad = half(3);
  EXPECT_FALSE(bad.is_ok());
  EXPECT_EQ(bad.status(), Status(Code::kInvalidArgument, "odd"));
}

TEST(Result, MovesWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(7);
  *result.value() += 1;
  const std::unique_ptr<int> owned = std::move(result).value();
  EXPECT_EQ(*owned, 8);
}

TEST(ResultDeathTest, AnErrorWithoutAnErrorIsABug) {
  EXPECT_DEATH(Result<int>(Status::ok()), "rueda: bug: check failed");
}

}  // namespace
}  // namespace rueda
