#include "daemon/base/strangers/fair_queue.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda {
namespace {

std::string pop_all(FairQueue<std::string>& queue) {
  std::string out;
  while (const auto item = queue.pop()) out += *item + ' ';
  return out;
}

TEST(FairQueue, LetsPartiesInByTurnsAndEachInTheOrderInWhichItCame) {
  FairQueue<std::string> queue(10);
  EXPECT_FALSE(queue.pop());
  for (const char* item : {"a1", "a2", "a3", "b1", "c1", "b2"}) {
    EXPECT_FALSE(queue.push(std::string(1, item[0]), item));
  }
  EXPECT_EQ(queue.size(), 6u);
  EXPECT_EQ(pop_all(queue), "a1 b1 c1 a2 b2 a3 ");
  EXPECT_EQ(queue.size(), 0u);
}

TEST(FairQueue, WhoHasComeAgainWaitsBehindWhoHasWaitedLonger) {
  FairQueue<std::string> queue(10);
  for (const char* item : {"a1", "b1"}) queue.push(std::string(1, item[0]), item);
  EXPECT_EQ(queue.pop(), "a1");
  queue.push("a", "a2");
  EXPECT_EQ(pop_all(queue), "b1 a2 ");
}

TEST(FairQueue, WhoComesInCrowdsKeepsNobodyOut) {
  FairQueue<std::string> queue(4);
  for (const char* item : {"a1", "a2", "a3", "a4"}) queue.push("a", item);
  EXPECT_EQ(queue.push("a", "a5"), "a5");
  EXPECT_EQ(queue.push("b", "b1"), "a4");
  EXPECT_EQ(queue.push("c", "c1"), "a3");
  EXPECT_EQ(queue.push("c", "c2"), "c2");
  EXPECT_EQ(pop_all(queue), "a1 b1 c1 a2 ");
  // Of parties that have one item each, the one that came last has none any more.
  for (const char* item : {"a", "b", "c", "d"}) queue.push(item, item);
  EXPECT_EQ(queue.push("e", "e"), "e");
  EXPECT_EQ(queue.size(), 4u);
  queue.clear();
  EXPECT_EQ(pop_all(queue), "");
}

}  // namespace
}  // namespace rueda
