#include "daemon/engine/device/staged_rounds.h"

#include <gtest/gtest.h>

namespace rueda::engine {
namespace {

constexpr int64_t kMi = 1 << 20;

TEST(StagedRounds, FollowEachOtherWithoutAGap) {
  for (const int64_t elements :
       {int64_t{0}, int64_t{1}, 3 * kMi + 7, 64 * kMi - 1, 1000 * kMi + 3}) {
    for (const size_t size : {size_t{1}, size_t{2}, size_t{8}}) {
      for (const int nodes : {2, 3, 100}) {
        const std::vector<ElementRange> rounds = cut_into_rounds(elements, size, nodes);
        ASSERT_FALSE(rounds.empty());
        EXPECT_LE(rounds.size(), 32u);
        int64_t next = 0;
        for (const ElementRange& round : rounds) {
          EXPECT_EQ(round.begin, next);
          EXPECT_EQ(round.begin % 64, 0);
          next = round.end;
        }
        EXPECT_EQ(next, elements);
      }
    }
  }
}

TEST(StagedRounds, WhatIsSmallIsOne) {
  EXPECT_EQ(cut_into_rounds(kMi, 4, 2).size(), 1u);
  EXPECT_EQ(cut_into_rounds(2 * kMi, 4, 2).size(), 2u);
  EXPECT_EQ(cut_into_rounds(2 * kMi, 4, 64).size(), 1u) << "a shard is no chunk";
  EXPECT_EQ(cut_into_rounds(16 * kMi, 4, 2).size(), 16u);
}

}  // namespace
}  // namespace rueda::engine
