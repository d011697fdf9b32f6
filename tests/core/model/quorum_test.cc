#include "daemon/core/model/quorum.h"

#include <gtest/gtest.h>

namespace rueda::core {
namespace {

std::vector<NodeIndex> nodes(int count) {
  std::vector<NodeIndex> all;
  for (int i = 0; i < count; ++i) all.push_back(NodeIndex{i});
  return all;
}

// Returns whether the votes, one bit a node, reach the quorum.
bool reached(const Quorum& quorum, unsigned votes) {
  return quorum.reached_by([&](NodeIndex node) { return ((votes >> node.value) & 1) != 0; });
}

TEST(Quorum, MoreThanHalfOfTheMembers) {
  const Quorum three(nodes(3));
  EXPECT_TRUE(reached(three, 0b011));
  EXPECT_TRUE(reached(three, 0b110));
  EXPECT_FALSE(reached(three, 0b001));
  EXPECT_TRUE(reached(Quorum(nodes(1)), 0b1));
}

TEST(Quorum, OfTwoHalvesTheOneWithTheLowestMemberGoesOn) {
  const Quorum four(nodes(4));
  EXPECT_TRUE(reached(four, 0b0101));
  EXPECT_FALSE(reached(four, 0b1010));
  EXPECT_TRUE(reached(four, 0b1110)) << "more than half needs nobody in particular";
  EXPECT_TRUE(reached(Quorum({NodeIndex{3}, NodeIndex{7}}), 1u << 3));
  EXPECT_FALSE(reached(Quorum({NodeIndex{3}, NodeIndex{7}}), 1u << 7));
}

TEST(Quorum, OrTheOneWithTheWitness) {
  const Quorum two(nodes(2), NodeIndex{2});
  EXPECT_TRUE(reached(two, 0b110));
  EXPECT_TRUE(reached(two, 0b011));
  EXPECT_FALSE(reached(two, 0b001)) << "the lowest alone: the other half may have the witness";
  EXPECT_FALSE(reached(two, 0b100));
}

TEST(Quorum, TheWitnessHasNoVoteWhereNothingCanTie) {
  const Quorum three(nodes(3), NodeIndex{3});
  EXPECT_EQ(three.voters(), nodes(3));
  EXPECT_FALSE(reached(three, 0b1001));
}

TEST(Quorum, VotesOfOthersDoNotCount) {
  const Quorum some({NodeIndex{0}, NodeIndex{2}, NodeIndex{4}});
  EXPECT_FALSE(reached(some, 0b01011));
  EXPECT_TRUE(reached(some, 0b00101));
}

// Rules R4 and R5 depend on this.
TEST(Quorum, AnyTwoHaveAVoterInCommon) {
  for (int count = 1; count <= 7; ++count) {
    for (const bool has_witness : {false, true}) {
      const Quorum quorum(
          nodes(count), has_witness ? std::optional(NodeIndex{count}) : std::optional<NodeIndex>());
      for (unsigned a = 0; a < 1u << (count + 1); ++a) {
        for (unsigned b = 0; b < 1u << (count + 1); ++b) {
          if ((a & b) != 0 || !reached(quorum, a)) continue;
          ASSERT_FALSE(reached(quorum, b)) << count << " members: " << a << " and " << b;
        }
      }
    }
  }
}

}  // namespace
}  // namespace rueda::core
