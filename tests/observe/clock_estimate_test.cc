#include "daemon/observe/clock_estimate.h"

#include <cstdlib>
#include <random>

#include <gtest/gtest.h>

namespace rueda::observe {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecond = 1'000 * kMs;

// Returns an exchange with a clock that is `offset_ns` ahead; the question and the answer take so
// long.
ClockExchange exchange(int64_t asked_ns, int64_t offset_ns, int64_t there_ns, int64_t back_ns,
                       int64_t work_ns = 1'000) {
  const int64_t heard_ns = asked_ns + there_ns + offset_ns;
  const int64_t replied_ns = heard_ns + work_ns;
  return {asked_ns, heard_ns, replied_ns, replied_ns - offset_ns + back_ns};
}

TEST(ClockEstimate, KnowsNothingBeforeTheFirstExchange) {
  EXPECT_FALSE(ClockEstimate().at(0).has_value());
}

TEST(ClockEstimate, IsExactWhereBothWaysTakeAsLong) {
  ClockEstimate clock;
  clock.add(exchange(kSecond, -250 * kMs, 3 * kMs, 3 * kMs));
  const auto found = clock.at(kSecond);
  EXPECT_EQ(found->offset_ns, -250 * kMs);
  EXPECT_EQ(found->error_ns, 3 * kMs);
}

TEST(ClockEstimate, TheQuickestExchangeCounts) {
  ClockEstimate clock;
  clock.add(exchange(1 * kSecond, 250 * kMs, 20 * kMs, 1 * kMs));
  clock.add(exchange(2 * kSecond, 250 * kMs, 100'000, 80'000));
  clock.add(exchange(3 * kSecond, 250 * kMs, 1 * kMs, 90 * kMs));
  const auto found = clock.at(3 * kSecond);
  EXPECT_NEAR(found->offset_ns, 250 * kMs, 10'000);
  EXPECT_LT(found->error_ns, 90'000 + 2 * kSecond / 1'000'000 * ClockEstimate::kDriftPpm);
  EXPECT_EQ(clock.exchanges(), 3u);
}

TEST(ClockEstimate, TheErrorBoundsWhatIsWrongWhateverTheNetworkDoes) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int64_t> way(10'000, 30 * kMs);
  for (int round = 0; round < 200; ++round) {
    ClockEstimate clock;
    // The clocks drift by 80 parts in a million.
    const auto offset_at = [](int64_t now) { return 5 * kSecond + now / 1'000'000 * 80; };
    int64_t now = kSecond;
    for (int i = 0; i < 50; ++i, now += kSecond) {
      clock.add(exchange(now, offset_at(now), way(random), way(random)));
    }
    const auto found = clock.at(now);
    EXPECT_LE(std::abs(found->offset_ns - offset_at(now)), found->error_ns);
  }
}

TEST(ClockEstimate, AgeCountsAgainstAnExchange) {
  ClockEstimate clock;
  clock.add(exchange(0, 0, 100'000, 100'000));
  const int64_t later = 20 * kSecond;
  clock.add(exchange(later, 1 * kMs, 1 * kMs, 1 * kMs));
  // The drift at 100 ppm in 20 s, 2 ms, and the error of 100 us are more than 1 ms.
  EXPECT_EQ(clock.at(later)->offset_ns, 1 * kMs);
}

TEST(ClockEstimate, WhatCannotBeIsIgnored) {
  ClockEstimate clock;
  clock.add({10, 100, 90, 20});   // was replied to before it was heard
  clock.add({10, 100, 200, 20});  // was there longer than it was away
  EXPECT_FALSE(clock.at(20).has_value());
}

TEST(ClockMap, TheFirstEstimateHoldsFromEver) {
  ClockMap map;
  map.set(100 * kSecond, {250 * kMs, 1});
  EXPECT_EQ(map.restate(0), 250 * kMs);
  EXPECT_EQ(map.restate(100 * kSecond), 100 * kSecond + 250 * kMs);
}

TEST(ClockMap, ABetterEstimateIsApproachedSlowly) {
  ClockMap map;
  map.set(0, {10 * kMs, 1});
  map.set(kSecond, {9 * kMs, 100});
  EXPECT_EQ(map.at(kSecond).offset_ns, 10 * kMs);
  EXPECT_EQ(map.at(kSecond).error_ns, 1 * kMs + 100);
  // At 500 ppm, 1 ms takes 2 s.
  EXPECT_NEAR(map.at(2 * kSecond).offset_ns, 9 * kMs + kMs / 2, 1'000);
  EXPECT_EQ(map.at(4 * kSecond).offset_ns, 9 * kMs);
}

TEST(ClockMap, NothingRunsBackwardsAndWhatWasSaidStays) {
  std::mt19937 random(11);
  std::uniform_int_distribution<int64_t> offset(-20 * kMs, 20 * kMs);
  ClockMap map;
  int64_t last = INT64_MIN;
  int64_t now = 0;
  for (int i = 0; i < 2'000; ++i) {
    map.set(now, {offset(random), 0});
    const int64_t said = map.restate(now);
    for (int step = 0; step < 10; ++step, now += 10 * kMs) {
      const int64_t restated = map.restate(now);
      ASSERT_GT(restated, last);
      last = restated;
    }
    ASSERT_EQ(map.restate(now - 100 * kMs), said);
  }
}

}  // namespace
}  // namespace rueda::observe
