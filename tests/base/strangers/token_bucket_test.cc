#include "daemon/base/strangers/token_bucket.h"

#include <gtest/gtest.h>

namespace rueda {
namespace {

constexpr TicksUs kSecond = 1'000'000;

TEST(TokenBucket, IsFullAtFirstAndThenFillsByTheSecond) {
  TokenBucket bucket(4, 2);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(bucket.take(kSecond)) << i;
  EXPECT_FALSE(bucket.take(kSecond));
  EXPECT_EQ(bucket.wait_us(kSecond), kSecond / 2);
  EXPECT_FALSE(bucket.take(kSecond + kSecond / 2 - 1));
  EXPECT_TRUE(bucket.take(kSecond + kSecond / 2));
  EXPECT_EQ(bucket.wait_us(kSecond + kSecond / 2, 3), kSecond + kSecond / 2);
}

TEST(TokenBucket, HoldsNoMoreThanItsBurst) {
  TokenBucket bucket(2, 10);
  EXPECT_TRUE(bucket.take(0));
  bucket.give_back(5);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(bucket.take(1'000 * kSecond)) << i;
  EXPECT_FALSE(bucket.take(1'000 * kSecond));
}

TEST(TokenBucket, WhatIsGivenBackCanBeTaken) {
  TokenBucket bucket(2, 1);
  EXPECT_TRUE(bucket.take(0, 2));
  bucket.give_back();
  EXPECT_EQ(bucket.wait_us(0), 0);
  EXPECT_TRUE(bucket.take(0));
  EXPECT_FALSE(bucket.take(0));
}

TEST(TokenBucket, IsNotFilledByAClockThatGoesBack) {
  TokenBucket bucket(1, 1);
  EXPECT_TRUE(bucket.take(10 * kSecond));
  EXPECT_FALSE(bucket.take(5 * kSecond));
  EXPECT_FALSE(bucket.take(10 * kSecond + kSecond / 2));
  EXPECT_TRUE(bucket.take(11 * kSecond));
}

}  // namespace
}  // namespace rueda
