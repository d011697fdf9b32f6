#include "daemon/core/stall/near_miss.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace rueda::core {
namespace {

// Returns the distance, and checks that it is the same both ways, because it must not matter which
// rank waits.
std::optional<int> distance(const std::string& one, const std::string& other) {
  int64_t budget = 1 << 20;
  const auto distance = near_miss_distance(one, other, budget);
  EXPECT_EQ(distance, near_miss_distance(other, one, budget)) << one << ' ' << other;
  return distance;
}

// Computes the whole table of distances, cell by cell.
size_t plain_distance(const std::string& one, const std::string& other) {
  std::vector<std::vector<size_t>> table(one.size() + 1, std::vector<size_t>(other.size() + 1));
  for (size_t i = 0; i <= one.size(); ++i) {
    for (size_t k = 0; k <= other.size(); ++k) {
      if (i == 0 || k == 0) {
        table[i][k] = i + k;
        continue;
      }
      const size_t same = one[i - 1] == other[k - 1] ? 0 : 1;
      table[i][k] =
          std::min({table[i - 1][k] + 1, table[i][k - 1] + 1, table[i - 1][k - 1] + same});
      if (i > 1 && k > 1 && one[i - 1] == other[k - 2] && one[i - 2] == other[k - 1]) {
        table[i][k] = std::min(table[i][k], table[i - 2][k - 2] + 1);
      }
    }
  }
  return table[one.size()][other.size()];
}

TEST(NearMiss, CountsWhatATypingErrorDoes) {
  EXPECT_EQ(distance("layer1.weight", "layer1.weights"), 1) << "a letter more";
  EXPECT_EQ(distance("layer1.weight", "layer2.weight"), 1) << "another letter";
  EXPECT_EQ(distance("layer1.weight", "layer1.wieght"), 1) << "two letters in the wrong order";
  EXPECT_EQ(distance("layer1.weight", "layer_1_weight"), 2);
  EXPECT_EQ(distance("layer1.weight", "Layer1_weights"), 3);
}

TEST(NearMiss, FourErrorsAreAnotherName) {
  EXPECT_EQ(distance("layer1.weight", "Layer_1_Weight"), std::nullopt);
  EXPECT_EQ(distance("layer1.weight", "layer1.bias"), std::nullopt);
  EXPECT_EQ(distance("layer1.weight", "layer1.weight_mask"), std::nullopt);
}

TEST(NearMiss, ShortNamesMustBeNearer) {
  EXPECT_EQ(distance("w", "b"), std::nullopt);
  EXPECT_EQ(distance("w1", "w2"), std::nullopt);
  EXPECT_EQ(distance("fc1", "fc2"), 1);
  EXPECT_EQ(distance("fc1", "fd2"), std::nullopt);
  EXPECT_EQ(distance("", "abc"), std::nullopt);
}

TEST(NearMiss, AWrappersPrefixIsNear) {
  EXPECT_EQ(distance("fc.weight", "module.fc.weight"), 1);
  EXPECT_EQ(distance("w", "tower/w"), 1);
  EXPECT_EQ(distance("weight", "deadweight"), std::nullopt) << "no separator";
}

TEST(NearMiss, IsWhatTheWholeTableSays) {
  std::mt19937 random(7);
  const auto any = [&](size_t most) { return random() % (most + 1); };
  size_t near = 0;
  for (int turn = 0; turn < 20'000; ++turn) {
    std::string one;
    while (one.size() < 9 + any(6)) one += static_cast<char>('a' + any(2));
    std::string other = one;
    for (size_t errors = any(5); errors > 0 && !other.empty(); --errors) {
      const size_t at = any(other.size() - 1);
      if (any(2) == 0)
        other.erase(at, 1);
      else if (any(1) == 0)
        other.insert(at, 1, static_cast<char>('a' + any(2)));
      else if (at > 0)
        std::swap(other[at], other[at - 1]);
    }
    const size_t limit = std::min<size_t>(std::min(one.size(), other.size()) / 3, 3);
    const size_t expected = plain_distance(one, other);
    const bool is_near = expected > 0 && expected <= limit;
    near += is_near ? 1 : 0;
    ASSERT_EQ(distance(one, other),
              is_near ? std::optional(static_cast<int>(expected)) : std::nullopt)
        << one << ' ' << other;
  }
  EXPECT_GT(near, 1'000u);
}

// 64 names that hang, each compared with 4,096 others of 255 characters, once took 40 seconds.
TEST(NearMiss, ManyLongNamesTakeNoMoreThanTheBudget) {
  const std::string common(250, 'n');
  int64_t budget = 1 << 20;
  size_t compared = 0;
  while (budget > 0) {
    near_miss_distance(common + "one", common + std::to_string(compared % 1'000), budget);
    ++compared;
  }
  EXPECT_LT(compared, 2'000u);
  EXPECT_GT(budget, -10'000);
  EXPECT_EQ(near_miss_distance("fc1", "fc2", budget), std::nullopt) << "it is spent";
}

TEST(NearMiss, ANameIsNoMissOfItself) { EXPECT_EQ(distance("grad", "grad"), std::nullopt); }

}  // namespace
}  // namespace rueda::core
