#include "daemon/core/plan/unlock_tally.h"

#include <gtest/gtest.h>

namespace rueda::core {
namespace {

Seq first_not_common(const std::vector<Frozen>& nodes, uint64_t lock_first = 10) {
  UnlockTally frozen;
  for (size_t i = 0; i < nodes.size(); ++i) frozen.add(NodeIndex{static_cast<int>(i)}, nodes[i]);
  return frozen.first_not_common(Seq{lock_first});
}

TEST(UnlockTally, WithoutAlternativesTheSlowestCounts) {
  EXPECT_EQ(first_not_common({{1, Seq{16}, {}}, {1, Seq{14}, {}}}), Seq{15});
}

TEST(UnlockTally, WhereWaysPartNothingIsCommon) {
  EXPECT_EQ(first_not_common({{1, Seq{14}, {0, 1, 2}}, {1, Seq{14}, {0, 3, 2}}}), Seq{13});
}

TEST(UnlockTally, OneWayIsLongerThanTheOther) {
  EXPECT_EQ(first_not_common({{1, Seq{14}, {0, 1, 2}}, {1, Seq{13}, {0, 1}}}), Seq{14});
}

// Operations that a node does not report any more were complete there, so all nodes had launched
// them.
TEST(UnlockTally, NodesTellFromDifferentOperationsOn) {
  EXPECT_EQ(first_not_common({{1, Seq{15}, {7, 7, 0, 1}}, {1, Seq{15}, {0, 2}}}), Seq{15});
}

TEST(UnlockTally, ANodeThatNeverSawThePlan) {
  EXPECT_EQ(first_not_common({{1, Seq{12}, {0, 1, 2}}, {1, Seq{9}, {}}}), Seq{10});
}

TEST(UnlockTally, WhatWasSaidFirstStands) {
  UnlockTally frozen;
  frozen.add(NodeIndex{0}, {1, Seq{12}, {}});
  frozen.add(NodeIndex{0}, {1, Seq{14}, {}});
  EXPECT_EQ(frozen.count(), 1u);
  EXPECT_EQ(frozen.first_not_common(Seq{10}), Seq{13});
}

}  // namespace
}  // namespace rueda::core
