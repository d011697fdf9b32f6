#include "daemon/core/modes/response_cache.h"

#include <gtest/gtest.h>

#include "tests/core/builders.h"

namespace rueda::core {
namespace {

TEST(ResponseCache, FindsExactlyTheTensorThatWasDecreed) {
  ResponseCache cache(8);
  cache.on_decreed({tensor("a", 4), tensor("b", 4)});
  EXPECT_EQ(cache.find(*tensor("a", 4)), 0u);
  EXPECT_EQ(cache.find(*tensor("b", 4)), 1u);
  EXPECT_FALSE(cache.find(*tensor("a", 5)).has_value()) << "another shape";
  EXPECT_FALSE(cache.find(*tensor("c", 4)).has_value());
}

TEST(ResponseCache, AnOldVersionStillDecodesWhatItMeant) {
  ResponseCache cache(1);
  cache.on_decreed({tensor("a")});
  const uint64_t before = cache.version();
  cache.on_decreed({tensor("b")});
  ASSERT_TRUE(cache.at(0, before));
  EXPECT_EQ(cache.at(0, before)->name, "a");
  EXPECT_EQ(cache.at(0, cache.version())->name, "b");
  cache.forget_before(cache.version());
  EXPECT_FALSE(cache.at(0, before));
  EXPECT_FALSE(cache.at(7, cache.version())) << "a slot that never was";
}

TEST(ResponseCache, AChangedTensorKeepsItsSlot) {
  ResponseCache cache(8);
  cache.on_decreed({tensor("a", 4)});
  cache.on_decreed({tensor("a", 5)});
  EXPECT_EQ(cache.find(*tensor("a", 5)), 0u);
  EXPECT_EQ(cache.at(0, 1)->elements(), 4);
  EXPECT_EQ(cache.size(), 1u);
}

TEST(ResponseCache, DropsWhatWasUsedLeastLately) {
  ResponseCache cache(2);
  cache.on_decreed({tensor("a")});
  cache.on_decreed({tensor("b")});
  cache.on_decreed({tensor("a")});
  cache.on_decreed({tensor("c")});
  EXPECT_TRUE(cache.find(*tensor("a")).has_value());
  EXPECT_FALSE(cache.find(*tensor("b")).has_value());
  EXPECT_EQ(cache.capacity(), 2u);
}

// A step with one tensor more than fits would miss every tensor with LRU alone.
TEST(ResponseCache, GrowsWhenAStepHasMore) {
  ResponseCache cache(4);
  const auto step = [&] {
    for (int i = 0; i < 9; ++i) cache.on_decreed({tensor("t" + std::to_string(i))});
  };
  for (int i = 0; i < 4; ++i) step();
  EXPECT_GE(cache.capacity(), 9u);
  EXPECT_LE(cache.capacity(), 16u);
  for (int i = 0; i < 9; ++i) {
    EXPECT_TRUE(cache.find(*tensor("t" + std::to_string(i))).has_value()) << i;
  }
}

TEST(ResponseCache, DoesNotGrowForTensorsThatNeverComeBack) {
  ResponseCache cache(4);
  for (int i = 0; i < 1000; ++i) cache.on_decreed({tensor("once" + std::to_string(i))});
  EXPECT_EQ(cache.capacity(), 4u);
}

}  // namespace
}  // namespace rueda::core
