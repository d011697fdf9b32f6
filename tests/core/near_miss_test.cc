#include "daemon/core/near_miss.h"

#include <string>

#include <gtest/gtest.h>

namespace rueda::core {
namespace {

// Both ways round: which rank waits must not matter.
std::optional<int> distance(const std::string& one, const std::string& other) {
  EXPECT_EQ(near_miss_distance(one, other), near_miss_distance(other, one)) << one << ' ' << other;
  return near_miss_distance(one, other);
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

TEST(NearMiss, ANameIsNoMissOfItself) { EXPECT_EQ(distance("grad", "grad"), std::nullopt); }

}  // namespace
}  // namespace rueda::core
