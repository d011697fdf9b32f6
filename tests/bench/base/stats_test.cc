#include "bench/base/stats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda::bench {
namespace {

TEST(StatsTest, Median) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({5}), 5);
  EXPECT_EQ(median({9, 1, 5}), 5);
  EXPECT_EQ(median({9, 1, 5, 7}), 6);
}

TEST(StatsTest, PercentileIsTheNearestRank) {
  std::vector<double> hundred;
  for (int i = 100; i >= 1; --i) hundred.push_back(i);
  EXPECT_EQ(percentile(hundred, 99), 99);
  EXPECT_EQ(percentile(hundred, 100), 100);
  EXPECT_EQ(percentile(hundred, 0), 1);
  EXPECT_EQ(percentile({3, 1, 2}, 99), 3);
  EXPECT_EQ(percentile({}, 99), 0);
}

TEST(StatsTest, SlowestOfRanks) {
  EXPECT_THAT(slowest_of_ranks({{1, 5, 3}, {2, 4, 3}}), testing::ElementsAre(2, 5, 3));
  EXPECT_THAT(slowest_of_ranks({}), testing::IsEmpty());
  EXPECT_EQ(slowest_pace({{1, 5, 3}, {2, 4, 6}}), 4);
  EXPECT_EQ(slowest_pace({{2, 4}, {4, 2}}), 3) << "not 4: they take turns";
  EXPECT_EQ(slowest_pace({}), 0);
}

TEST(StatsTest, Bandwidth) {
  EXPECT_DOUBLE_EQ(algbw_GBps(1'000'000, 1000), 1.0);
  EXPECT_EQ(algbw_GBps(0, 10), 0);
  EXPECT_EQ(algbw_GBps(10, 0), 0);
}

}  // namespace
}  // namespace rueda::bench
