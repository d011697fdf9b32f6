#include "bench/cli/layout.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace rueda::bench {
namespace {

constexpr int kRanks = 4;
constexpr size_t kElements = 4 * 300;
constexpr size_t kPart = kElements / kRanks;
constexpr Work kCollectives[] = {Work::kAllreduce, Work::kBroadcast,     Work::kReduce,
                                 Work::kAllgather, Work::kReduceScatter, Work::kAlltoall,
                                 Work::kGather,    Work::kScatter};

Scenario scenario_of(Pattern pattern) {
  return {.dtype = RUEDA_INT64, .op = RUEDA_SUM, .pattern = pattern, .nranks = kRanks, .seed = 3};
}

Layout layout_of(Work work, int rank, int root = 1) {
  return {.work = work, .count = kElements, .nranks = kRanks, .rank = rank, .root = root};
}

std::vector<int64_t> given(const Scenario& scenario, int rank) {
  std::vector<int64_t> values(kElements);
  fill(scenario, rank, 0, kElements, values.data());
  return values;
}

// Computes the right result by the definition of each collective.
std::vector<int64_t> right_result(const Layout& layout, const Scenario& scenario) {
  std::vector<std::vector<int64_t>> inputs;
  for (int rank = 0; rank < kRanks; ++rank) inputs.push_back(given(scenario, rank));
  std::vector<int64_t> sums(kElements);
  for (const auto& input : inputs) {
    for (size_t i = 0; i < kElements; ++i) {
      sums[i] =
          static_cast<int64_t>(static_cast<uint64_t>(sums[i]) + static_cast<uint64_t>(input[i]));
    }
  }
  const auto part = [](const std::vector<int64_t>& values, int which) {
    const auto begin = values.begin() + which * static_cast<ptrdiff_t>(kPart);
    return std::vector<int64_t>(begin, begin + static_cast<ptrdiff_t>(kPart));
  };
  const auto root = static_cast<size_t>(layout.root);
  const bool is_root = layout.rank == layout.root;
  std::vector<int64_t> result;
  switch (layout.work) {
    case Work::kBroadcast: return inputs[root];
    case Work::kReduce: return is_root ? sums : result;
    case Work::kReduceScatter: return part(sums, layout.rank);
    case Work::kScatter: return part(inputs[root], layout.rank);
    case Work::kGather:
      if (!is_root) return result;
      [[fallthrough]];
    case Work::kAllgather:
    case Work::kAlltoall:
      for (const auto& input : inputs) {
        const auto one = part(input, layout.work == Work::kAlltoall ? layout.rank : 0);
        result.insert(result.end(), one.begin(), one.end());
      }
      return result;
    default: return sums;
  }
}

template <class Visitor>
void for_every_rank(Visitor visitor) {
  for (Work work : kCollectives) {
    for (Pattern pattern : kAllPatterns) {
      for (int rank = 0; rank < kRanks; ++rank) {
        SCOPED_TRACE(std::string(to_string(work)) + " " + to_string(pattern) + " rank " +
                     std::to_string(rank));
        visitor(layout_of(work, rank), scenario_of(pattern));
      }
    }
  }
}

TEST(LayoutTest, WhatRanksGiveAndGet) {
  EXPECT_EQ(layout_of(Work::kAllgather, 2).input(), kPart);
  EXPECT_EQ(layout_of(Work::kAllgather, 2).output(), kElements);
  EXPECT_EQ(layout_of(Work::kAllgather, 2).shape(), kPart);
  EXPECT_EQ(layout_of(Work::kGather, 2).output(), 0u);
  EXPECT_EQ(layout_of(Work::kGather, 1).output(), kElements);
  EXPECT_EQ(layout_of(Work::kScatter, 2).input(), 0u);
  EXPECT_EQ(layout_of(Work::kScatter, 2).output(), kPart);
  EXPECT_EQ(layout_of(Work::kScatter, 2).shape(), kElements);
  EXPECT_EQ(layout_of(Work::kReduce, 2).input(), kElements);
  EXPECT_EQ(layout_of(Work::kReduce, 2).output(), 0u);
}

TEST(LayoutTest, InPlaceTheSmallerSideIsTheRanksOwnPart) {
  EXPECT_EQ(layout_of(Work::kAllgather, 2).input_begin(), 2 * kPart);
  EXPECT_EQ(layout_of(Work::kAllgather, 2).output_begin(), 0u);
  EXPECT_EQ(layout_of(Work::kReduceScatter, 2).output_begin(), 2 * kPart);
  EXPECT_EQ(layout_of(Work::kScatter, 1).output_begin(), kPart);
  EXPECT_EQ(layout_of(Work::kScatter, 2).output_begin(), 0u);
  EXPECT_EQ(layout_of(Work::kGather, 1).input_begin(), kPart);
  EXPECT_EQ(layout_of(Work::kAllreduce, 2).input_begin(), 0u);
}

TEST(LayoutTest, AcceptsTheRightResult) {
  for_every_rank([](const Layout& layout, const Scenario& scenario) {
    const auto result = right_result(layout, scenario);
    ASSERT_EQ(result.size(), layout.output());
    EXPECT_EQ(check_result(layout, scenario, result.data()).wrong, 0u);
  });
}

// The test changes the first and the last element of every rank's part.
TEST(LayoutTest, FindsEveryWrongElement) {
  for_every_rank([](const Layout& layout, const Scenario& scenario) {
    auto result = right_result(layout, scenario);
    for (size_t i = 0; i < result.size(); i += kPart) {
      for (size_t place : {i, i + kPart - 1}) {
        result[place] ^= 1;
        const Verdict verdict = check_result(layout, scenario, result.data());
        EXPECT_EQ(verdict.wrong, 1u) << place;
        const bool counts_from_its_part = layout.work == Work::kReduceScatter;
        const size_t first = counts_from_its_part ? static_cast<size_t>(layout.rank) * kPart : 0;
        EXPECT_EQ(verdict.index, first + place);
        result[place] ^= 1;
      }
    }
  });
}

TEST(LayoutTest, FindsTheResultOfAnotherRank) {
  for (Work work : {Work::kReduceScatter, Work::kAlltoall, Work::kScatter}) {
    const Scenario scenario = scenario_of(Pattern::kIntegers);
    const auto result = right_result(layout_of(work, 2), scenario);
    EXPECT_GT(check_result(layout_of(work, 3), scenario, result.data()).wrong, kPart / 2)
        << to_string(work);
  }
}

TEST(LayoutTest, FindsPartsInAnotherOrder) {
  for (Work work : {Work::kAllgather, Work::kAlltoall, Work::kGather}) {
    for (Pattern pattern : kAllPatterns) {
      const Layout layout = layout_of(work, 1);
      auto result = right_result(layout, scenario_of(pattern));
      std::swap_ranges(result.begin(), result.begin() + kPart, result.begin() + 2 * kPart);
      EXPECT_GT(check_result(layout, scenario_of(pattern), result.data()).wrong, kPart)
          << to_string(work) << " " << to_string(pattern);
    }
  }
}

TEST(LayoutTest, NothingIsNeverWrong) {
  for (Work work : kCollectives) {
    const Layout nothing = {.work = work, .count = 0, .nranks = kRanks, .rank = 1, .root = 1};
    EXPECT_EQ(check_result(nothing, scenario_of(Pattern::kRandom), nullptr).wrong, 0u);
  }
}

}  // namespace
}  // namespace rueda::bench
