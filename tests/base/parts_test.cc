#include "daemon/base/parts.h"

#include <numeric>

#include <gtest/gtest.h>

namespace rueda {
namespace {

using Shape = std::vector<int64_t>;

// Checks that the parts of all ranks follow each other without gaps.
void expect_row(const std::vector<ElementRange>& parts, int64_t elements) {
  int64_t at = 0;
  for (const ElementRange& part : parts) {
    EXPECT_EQ(part.begin, at);
    EXPECT_GE(part.count(), 0);
    at = part.end;
  }
  EXPECT_EQ(at, elements);
}

TEST(Parts, AreAsEvenAsCanBeAndTheFirstHaveOneRowMore) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (int64_t rows = 0; rows <= 20; ++rows) {
      const Shape shape{rows, 3};
      const PartedTensor tensor{"t", CollectiveKind::kReduceScatter, shape, {}};
      ASSERT_TRUE(check_parts(tensor, ranks).is_ok());
      const std::vector<ElementRange> parts = parts_of(tensor, ranks);
      ASSERT_EQ(parts.size(), static_cast<size_t>(ranks));
      expect_row(parts, rows * 3);
      EXPECT_LE(parts.front().count() - parts.back().count(), 3);
      EXPECT_GE(parts.front().count(), parts.back().count());
    }
  }
}

TEST(Parts, AreAsTheCountsSay) {
  const Shape shape{6, 2};
  const Shape counts{3, 0, 1, 2};
  const PartedTensor tensor{"t", CollectiveKind::kAllgather, shape, counts};
  ASSERT_TRUE(check_parts(tensor, 4).is_ok());
  EXPECT_EQ(parts_of(tensor, 4), (std::vector<ElementRange>{{0, 6}, {6, 6}, {6, 8}, {8, 12}}));
}

struct Wrong {
  CollectiveKind kind;
  Shape shape;
  Shape counts;
  const char* words;
};

TEST(Parts, WhatCannotBeSaysWhy) {
  const Wrong all[] = {
      {CollectiveKind::kAllgather, {}, {}, "no first dimension"},
      {CollectiveKind::kAllgather, {6}, {1, 2, 3, 0}, "4 counts, and 3 ranks need 3"},
      {CollectiveKind::kAllgather, {6}, {1, 2, 4}, "a count of 4"},
      {CollectiveKind::kAllgather, {6}, {1, 2, -3}, "a count of -3"},
      {CollectiveKind::kAllgather, {6}, {1, 2, 2}, "add up to 5 rows, and it has 6"},
      {CollectiveKind::kAlltoall, {6}, {}, "cannot exchange in equal parts"},
      {CollectiveKind::kAlltoall, {6}, {1, 2, 3}, "3 counts, and 3 ranks need 9"},
  };
  for (const Wrong& wrong : all) {
    const Status status = check_parts({"t", wrong.kind, wrong.shape, wrong.counts}, 3);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << wrong.words;
    EXPECT_NE(status.message().find(wrong.words), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("\"t\""), std::string::npos);
  }
  const Shape scalar;
  EXPECT_TRUE(check_parts({"t", CollectiveKind::kAllreduce, scalar, {}}, 3).is_ok());
}

TEST(Splits, WhatOneSendsIsWhatTheOtherReceives) {
  const int ranks = 4;
  Shape counts(ranks * ranks);
  std::iota(counts.begin(), counts.end(), 0);
  const Shape uneven{std::accumulate(counts.begin(), counts.end(), int64_t{0}), 2};
  const Shape even{ranks * ranks * 5, 2};
  for (const PartedTensor& tensor : {PartedTensor{"t", CollectiveKind::kAlltoall, uneven, counts},
                                     PartedTensor{"t", CollectiveKind::kAlltoall, even, {}}}) {
    ASSERT_TRUE(check_parts(tensor, ranks).is_ok());
    const Splits splits(tensor, ranks);
    int64_t all = 0;
    for (int i = 0; i < ranks; ++i) {
      const Extent extent = extent_of(tensor, i, ranks, false);
      EXPECT_EQ(extent.input, splits.sent_at(i, ranks));
      EXPECT_EQ(extent.output, splits.received_at(ranks, i));
      EXPECT_FALSE(extent.can_be_in_place);
      all += extent.input;
      for (int j = 0; j < ranks; ++j) {
        const int64_t rows = tensor.counts.empty() ? 5 : counts[static_cast<size_t>(i * ranks + j)];
        EXPECT_EQ(splits.elements(i, j), rows * 2);
        EXPECT_EQ(splits.received_at(i + 1, j) - splits.received_at(i, j), rows * 2);
      }
    }
    EXPECT_EQ(all, tensor.shape[0] * 2);
  }
}

TEST(Extent, OnlyTheRootHasBothSides) {
  const Shape shape{8};
  const auto extent = [&](CollectiveKind kind, bool is_root) {
    return extent_of({"t", kind, shape, {}}, 1, 4, is_root);
  };
  EXPECT_EQ(extent(CollectiveKind::kAllreduce, false), (Extent{8, 8, 0, 0, true}));
  EXPECT_EQ(extent(CollectiveKind::kBroadcast, true), (Extent{8, 8, 0, 0, true}));
  EXPECT_EQ(extent(CollectiveKind::kBroadcast, false), (Extent{0, 8, 0, 0, true}));
  EXPECT_EQ(extent(CollectiveKind::kReduce, false), (Extent{8, 0, 0, 0, true}));
  EXPECT_EQ(extent(CollectiveKind::kGather, true), (Extent{2, 8, 2, 0, true}));
  EXPECT_EQ(extent(CollectiveKind::kGather, false), (Extent{2, 0, 2, 0, true}));
  EXPECT_EQ(extent(CollectiveKind::kScatter, true), (Extent{8, 2, 0, 2, true}));
  EXPECT_EQ(extent(CollectiveKind::kScatter, false), (Extent{0, 2, 0, 2, true}));
  EXPECT_EQ(extent(CollectiveKind::kBarrier, false), Extent{});
  EXPECT_EQ(extent(CollectiveKind::kJoin, false), Extent{});
}

}  // namespace
}  // namespace rueda
