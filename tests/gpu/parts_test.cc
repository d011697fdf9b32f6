#include "daemon/gpu/worker/parts.h"

#include <numeric>

#include <gtest/gtest.h>

namespace rueda::gpu {
namespace {

// Checks that each element occurs once, in order, and that cuts within a segment are at multiples
// of 64.
void expect_cut(const std::vector<uint64_t>& counts, size_t parts) {
  const auto cut = cut_into_parts(counts, parts);
  ASSERT_EQ(cut.size(), parts);
  size_t segment = 0;
  uint64_t reached = 0;
  for (const auto& part : cut) {
    for (const SegmentPart& piece : part) {
      while (segment < counts.size() && reached == counts[segment]) ++segment, reached = 0;
      ASSERT_EQ(piece.segment, segment);
      ASSERT_EQ(piece.begin, reached);
      ASSERT_LT(piece.begin, piece.end);
      EXPECT_EQ(piece.begin % 64, 0u);
      reached = piece.end;
    }
  }
  while (segment < counts.size() && reached == counts[segment]) ++segment, reached = 0;
  EXPECT_EQ(segment, counts.size());
}

uint64_t elements_of(const std::vector<SegmentPart>& part) {
  return std::accumulate(part.begin(), part.end(), uint64_t{0},
                         [](uint64_t sum, const auto& one) { return sum + one.end - one.begin; });
}

TEST(Parts, EveryElementIsInOne) {
  for (size_t parts = 1; parts <= 8; ++parts) {
    expect_cut({1}, parts);
    expect_cut({64}, parts);
    expect_cut({1000}, parts);
    expect_cut({1'000'003}, parts);
    expect_cut({1, 2, 3, 700, 64, 65, 1'000'000, 7}, parts);
    expect_cut(std::vector<uint64_t>(1000, 10), parts);
  }
}

TEST(Parts, AreNearlyEqual) {
  const auto one = cut_into_parts(std::vector<uint64_t>{1'000'003}, 4);
  for (const auto& part : one) EXPECT_NEAR(static_cast<double>(elements_of(part)), 250'000, 64);
  const auto many = cut_into_parts(std::vector<uint64_t>(10'000, 100), 4);
  for (const auto& part : many) EXPECT_NEAR(static_cast<double>(elements_of(part)), 250'000, 200);
}

TEST(Parts, OfASegmentBeginWhereItIsAlignedAsItsBeginningIs) {
  const auto cut = cut_into_parts(std::vector<uint64_t>{1000, 9000}, 2);
  ASSERT_EQ(cut[0].size(), 2u);
  EXPECT_EQ(cut[0][1].end, 3968u);  // is the largest multiple of 64 up to 4000
  ASSERT_EQ(cut[1].size(), 1u);
  EXPECT_EQ(cut[1][0].begin, 3968u);
  EXPECT_EQ(cut[1][0].end, 9000u);
}

TEST(Parts, ASmallBatchIsNotSharedOut) {
  EXPECT_EQ(parts_of(0, 4), 1u);
  EXPECT_EQ(parts_of(2 * kLeastPartBytes - 1, 4), 1u);
  EXPECT_EQ(parts_of(2 * kLeastPartBytes, 4), 2u);
  EXPECT_EQ(parts_of(4 * kLeastPartBytes - 1, 4), 3u);
  EXPECT_EQ(parts_of(uint64_t{1} << 40, 4), 4u);
  EXPECT_EQ(parts_of(uint64_t{1} << 40, 1), 1u);
}

}  // namespace
}  // namespace rueda::gpu
