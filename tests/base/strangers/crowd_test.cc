#include "daemon/base/strangers/crowd.h"

#include <gtest/gtest.h>

namespace rueda {
namespace {

TEST(Crowd, TheOldestOfTheAddressThatHasMostGoesFirst) {
  Crowd<int> crowd;
  EXPECT_EQ(crowd.next_to_go(), std::nullopt);
  crowd.add(1, "a");
  crowd.add(2, "b");
  EXPECT_EQ(crowd.next_to_go(), 1) << "as many each: the oldest";
  crowd.add(3, "b");
  EXPECT_EQ(crowd.next_to_go(), 2);
  EXPECT_EQ(crowd.oldest_of("a"), 1);
  EXPECT_EQ(crowd.oldest_of("c"), std::nullopt);
  EXPECT_EQ(crowd.size_of("b"), 2u);
  crowd.remove(2);
  crowd.remove(2);
  EXPECT_EQ(crowd.next_to_go(), 1);
  crowd.remove(1);
  EXPECT_EQ(crowd.size_of("a"), 0u);
  EXPECT_EQ(crowd.next_to_go(), 3);
  EXPECT_FALSE(crowd.contains(1));
  EXPECT_EQ(crowd.size(), 1u);
}

TEST(Crowd, AStrangerWhoFloodsPushesOutHimself) {
  Crowd<int> crowd;
  for (int i = 0; i < 3; ++i) crowd.add(i, "other" + std::to_string(i));
  for (int i = 10; i < 1'000; ++i) {
    crowd.add(i, "stranger");
    while (crowd.size() > 8) crowd.remove(*crowd.next_to_go());
  }
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(crowd.contains(i));
  EXPECT_EQ(crowd.size_of("stranger"), 5u);
}

}  // namespace
}  // namespace rueda
