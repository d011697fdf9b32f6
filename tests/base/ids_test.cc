#include "daemon/base/ids.h"

#include <concepts>
#include <type_traits>
#include <unordered_set>

#include <gtest/gtest.h>

namespace rueda {
namespace {

// One kind of id never converts to another kind, nor to a bare number.
static_assert(!std::is_convertible_v<Rank, LocalRank>);
static_assert(!std::is_constructible_v<NodeIndex, Rank>);
static_assert(!std::is_convertible_v<int, Rank>);
static_assert(!std::is_convertible_v<Rank, int>);
static_assert(!std::is_constructible_v<int, Rank>);
static_assert(!std::equality_comparable_with<Rank, NodeIndex>);
static_assert(!std::equality_comparable_with<Seq, Ticket>);
static_assert(!std::equality_comparable_with<Rank, int>);

// Ids are as small as their numbers.
static_assert(sizeof(Rank) == sizeof(int32_t) && sizeof(Seq) == sizeof(uint64_t));
static_assert(std::is_trivially_copyable_v<Rank> && std::is_trivially_copyable_v<Seq>);

static_assert(Rank{} == Rank{0});
static_assert(Rank{1} < Rank{2} && Rank{2} >= Rank{2} && Rank{1} != Rank{2});
static_assert(Seq{UINT64_MAX} > Seq{1});

TEST(StrongId, CanBeHashed) {
  const std::unordered_set<Rank> ranks{Rank{1}, Rank{2}, Rank{1}};
  EXPECT_EQ(ranks.size(), 2u);
  EXPECT_TRUE(ranks.contains(Rank{2}));
  EXPECT_FALSE(ranks.contains(Rank{3}));
}

}  // namespace
}  // namespace rueda
