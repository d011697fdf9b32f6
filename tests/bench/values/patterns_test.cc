#include "bench/values/patterns.h"

#include <cmath>
#include <cstring>
#include <set>

#include <gtest/gtest.h>

namespace rueda::bench {
namespace {

template <class Storage>
std::vector<Storage> values(const Scenario& scenario, int rank, size_t count, uint64_t first = 0) {
  std::vector<Storage> result(count);
  fill(scenario, rank, first, count, result.data());
  return result;
}

TEST(PatternsTest, ContributorsArePowersOfTwo) {
  const Scenario scenario = {.dtype = RUEDA_FLOAT32, .op = RUEDA_SUM, .nranks = 4};
  for (int rank = 0; rank < 4; ++rank) {
    for (float value : values<float>(scenario, rank, 10)) EXPECT_EQ(value, std::ldexp(1.0f, rank));
  }
}

// There are more ranks than bits. Every rank still shows in some element, and no sum loses a bit.
TEST(PatternsTest, ManyContributorsTakeTurns) {
  constexpr int kRanks = 20;
  const Scenario scenario = {.dtype = RUEDA_BFLOAT16, .op = RUEDA_SUM, .nranks = kRanks};
  EXPECT_EQ(contributor_group_size(RUEDA_BFLOAT16, RUEDA_SUM, kRanks), 8);
  constexpr size_t kCount = 12;
  std::vector<double> sums(kCount);
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto mine = values<uint16_t>(scenario, rank, kCount);
    bool visible = false;
    for (size_t i = 0; i < kCount; ++i) {
      sums[i] += bfloat16_to_float(mine[i]);
      visible = visible || mine[i] != 0;
    }
    EXPECT_TRUE(visible) << rank;
  }
  for (double sum : sums) EXPECT_LT(sum, 256);
}

TEST(PatternsTest, ExtremaTakeTurns) {
  const Scenario scenario = {.dtype = RUEDA_INT32, .op = RUEDA_MAX, .nranks = 3};
  std::set<int> winners;
  const auto zero = values<int32_t>(scenario, 0, 3);
  const auto one = values<int32_t>(scenario, 1, 3);
  const auto two = values<int32_t>(scenario, 2, 3);
  for (size_t i = 0; i < 3; ++i) {
    const int32_t largest = std::max({zero[i], one[i], two[i]});
    winners.insert(largest == zero[i] ? 0 : largest == one[i] ? 1 : 2);
  }
  EXPECT_EQ(winners.size(), 3u);
}

TEST(PatternsTest, ProductsOfContributorsDoNotOverflow) {
  for (rueda_dtype dtype : kRealDTypes) {
    const int size = contributor_group_size(dtype, RUEDA_PRODUCT, 64);
    const int exponent = size * (size + 1) / 2;
    with_element(dtype, [&]<class E>() { EXPECT_LE(exponent, E::kMaxExponent); });
  }
}

// The sum of any subset of the contributions, in any order, must be exact in the stored type.
TEST(PatternsTest, SmallIntegersHaveExactPartialSums) {
  for (int nranks : {1, 2, 3, 8, 64, 300}) {
    for (rueda_dtype dtype : kRealDTypes) {
      const Scenario scenario = {.dtype = dtype,
                                 .op = RUEDA_SUM,
                                 .pattern = Pattern::kIntegers,
                                 .nranks = nranks,
                                 .seed = 5};
      with_element(dtype, [&]<class E>() {
        constexpr size_t kCount = 50;
        std::vector<double> magnitudes(kCount);
        for (int rank = 0; rank < nranks; ++rank) {
          const auto mine = values<typename E::Storage>(scenario, rank, kCount);
          for (size_t i = 0; i < kCount; ++i) {
            const auto value = static_cast<double>(E::widen(mine[i]));
            EXPECT_EQ(value, std::floor(value));
            magnitudes[i] += std::abs(value);
          }
        }
        for (double magnitude : magnitudes) {
          EXPECT_LE(magnitude, std::ldexp(1.0, E::kExactBits)) << to_string(dtype) << nranks;
        }
      });
    }
  }
}

TEST(PatternsTest, ValuesFollowFromSeedRankAndIndexAlone) {
  Scenario scenario = {.dtype = RUEDA_FLOAT64, .pattern = Pattern::kRandom, .nranks = 4, .seed = 9};
  const auto whole = values<double>(scenario, 2, 100);
  const auto tail = values<double>(scenario, 2, 40, 60);
  EXPECT_EQ(std::memcmp(whole.data() + 60, tail.data(), 40 * sizeof(double)), 0);
  EXPECT_NE(values<double>(scenario, 1, 100), whole);
  scenario.seed = 10;
  EXPECT_NE(values<double>(scenario, 2, 100), whole);
}

TEST(PatternsTest, RandomFloatsFillTheirRange) {
  const Scenario scenario = {.dtype = RUEDA_FLOAT64, .pattern = Pattern::kRandom, .nranks = 4};
  double sum = 0;
  double least = 1;
  double most = -1;
  constexpr size_t kCount = 10'000;
  for (double value : values<double>(scenario, 0, kCount)) {
    sum += value;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  EXPECT_GE(least, -1);
  EXPECT_LT(most, 1);
  EXPECT_LT(least, -0.99);
  EXPECT_GT(most, 0.99);
  EXPECT_LT(std::abs(sum / kCount), 0.03);
}

TEST(PatternsTest, RandomFactorsKeepProductsNearOne) {
  constexpr int kRanks = 64;
  const Scenario scenario = {
      .dtype = RUEDA_FLOAT16, .op = RUEDA_PRODUCT, .pattern = Pattern::kRandom, .nranks = kRanks};
  double product = 1;
  for (int rank = 0; rank < kRanks; ++rank) {
    product *= half_to_float(values<uint16_t>(scenario, rank, 1)[0]);
  }
  EXPECT_GT(std::abs(product), 0.3);
  EXPECT_LT(std::abs(product), 3.0);
}

}  // namespace
}  // namespace rueda::bench
