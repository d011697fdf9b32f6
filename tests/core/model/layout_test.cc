#include "daemon/core/model/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/base/limits.h"
#include "tests/core/builders.h"

namespace rueda::core {
namespace {

using testing::HasSubstr;

LayoutNode node(const std::string& id, const std::vector<int32_t>& ranks) {
  LayoutNode made{id, id + ":28400", {}};
  for (const int32_t rank : ranks) made.ranks.push_back(Rank{rank});
  return made;
}

std::string error_of(std::vector<LayoutNode> nodes) {
  const Result<Layout> made = Layout::make(std::move(nodes));
  EXPECT_FALSE(made.is_ok());
  EXPECT_EQ(made.status().code(), Code::kInvalidArgument);
  return made.status().message();
}

TEST(Layout, KnowsWhereRanksLive) {
  const Layout layout =
      Layout::make({node("a", {0, 3}), node("b", {1}), node("c", {2, 4})}).value();
  EXPECT_EQ(layout.node_count(), 3);
  EXPECT_EQ(layout.world_size(), 5);
  EXPECT_EQ(layout.node_of(Rank{0}), NodeIndex{0});
  EXPECT_EQ(layout.node_of(Rank{1}), NodeIndex{1});
  EXPECT_EQ(layout.node_of(Rank{3}), NodeIndex{0});
  EXPECT_EQ(layout.node(NodeIndex{2}).node_id, "c");
  EXPECT_EQ(layout.coordinator(), NodeIndex{0});
  EXPECT_TRUE(layout.has_rank(Rank{4}));
  EXPECT_FALSE(layout.has_rank(Rank{5}));
  EXPECT_FALSE(layout.has_rank(Rank{-1}));
}

TEST(Layout, ARingOfRanksHasThoseOfANodeNextToEachOther) {
  const Layout layout =
      Layout::make({node("a", {0, 3}), node("b", {1}), node("c", {2, 4})}).value();
  const auto ring_of = [](const Layout& ring) {
    std::vector<std::pair<std::string, std::vector<Rank>>> members;
    for (const NodeIndex member : ring.members()) {
      members.emplace_back(ring.node(member).node_id, ring.node(member).ranks);
      EXPECT_EQ(ring.node_of(ring.node(member).ranks.front()), member);
    }
    return members;
  };
  using Members = std::vector<std::pair<std::string, std::vector<Rank>>>;
  EXPECT_EQ(ring_of(layout.by_rank()), (Members{{"a", {Rank{0}}},
                                                {"a", {Rank{3}}},
                                                {"b", {Rank{1}}},
                                                {"c", {Rank{2}}},
                                                {"c", {Rank{4}}}}));
  EXPECT_EQ(layout.by_rank().member_ranks(), 5);
  const Layout some = layout.subset({Rank{2}, Rank{3}, Rank{4}}).by_rank();
  EXPECT_EQ(ring_of(some), (Members{{"a", {Rank{3}}}, {"c", {Rank{2}}}, {"c", {Rank{4}}}}));
  EXPECT_EQ(some.ranks(), (std::vector<Rank>{Rank{2}, Rank{3}, Rank{4}}));
  EXPECT_FALSE(some.has_rank(Rank{0}));
}

TEST(Layout, NextAndPreviousGoRound) {
  const Layout layout = layout_of({1, 1, 1});
  EXPECT_EQ(layout.next(NodeIndex{0}), NodeIndex{1});
  EXPECT_EQ(layout.next(NodeIndex{2}), NodeIndex{0});
  EXPECT_EQ(layout.previous(NodeIndex{0}), NodeIndex{2});
  EXPECT_EQ(layout_of({2}).next(NodeIndex{0}), NodeIndex{0});
}

TEST(Layout, TheRingHasAnOrderOfItsOwn) {
  Layout layout = layout_of({1, 2, 1, 1});
  const auto indices = [](std::vector<int32_t> values) {
    std::vector<NodeIndex> nodes;
    for (const int32_t value : values) nodes.push_back(NodeIndex{value});
    return nodes;
  };
  EXPECT_EQ(layout.ring(), indices({0, 1, 2, 3}));
  for (const auto& wrong : {indices({0, 1, 2}), indices({0, 1, 2, 2}), indices({0, 1, 2, 4})}) {
    EXPECT_THAT(layout.set_ring(wrong).message(), HasSubstr("does not have each member once"));
  }
  ASSERT_TRUE(layout.set_ring(indices({0, 2, 3, 1})).is_ok());
  EXPECT_EQ(layout.next(NodeIndex{0}), NodeIndex{2});
  EXPECT_EQ(layout.next(NodeIndex{1}), NodeIndex{0});
  EXPECT_EQ(layout.previous(NodeIndex{0}), NodeIndex{1});
  EXPECT_EQ(layout.ring_index(NodeIndex{3}), NodeIndex{2});
  EXPECT_EQ(layout.members(), indices({0, 1, 2, 3}));
  EXPECT_EQ(layout.coordinator(), NodeIndex{0});
  // The ranks of a node stand next to each other: of ranks 0 to 4, node 1 has two.
  EXPECT_EQ(layout.by_rank().ring(), indices({0, 3, 4, 1, 2}));
  // The expected rings are of a process set without node 2, and of the rest when node 0 is lost.
  EXPECT_EQ(layout.subset({Rank{0}, Rank{2}, Rank{4}}).ring(), indices({0, 3, 1}));
  layout.shrink_to(indices({1, 2, 3}));
  EXPECT_EQ(layout.ring(), indices({2, 3, 1}));
  ASSERT_TRUE(layout.set_ring({}).is_ok());
  EXPECT_EQ(layout.ring(), indices({1, 2, 3}));
}

TEST(Layout, ShrinksToItsSurvivors) {
  Layout layout = Layout::make({node("a", {0, 3}), node("b", {1}), node("c", {2, 4})}).value();
  const uint64_t hash = layout.hash();
  layout.shrink_to({NodeIndex{1}, NodeIndex{2}});
  EXPECT_EQ(layout.coordinator(), NodeIndex{1});
  EXPECT_EQ(layout.next(NodeIndex{2}), NodeIndex{1});
  EXPECT_EQ(layout.previous(NodeIndex{1}), NodeIndex{2});
  EXPECT_EQ(layout.member_ranks(), 3);
  EXPECT_FALSE(layout.has_rank(Rank{3}));
  EXPECT_TRUE(layout.has_rank(Rank{4}));
  // Nodes and ranks keep their numbers, and the job is the same one.
  EXPECT_EQ(layout.node(NodeIndex{0}).node_id, "a");
  EXPECT_EQ(layout.world_size(), 5);
  EXPECT_EQ(layout.hash(), hash);
}

TEST(Layout, RefusesWhatCannotBe) {
  EXPECT_THAT(error_of({}), HasSubstr("has no nodes"));
  EXPECT_THAT(error_of({node("", {0})}), HasSubstr("node id that is empty"));
  EXPECT_THAT(error_of({node(std::string(limits::kMaxNodeIdBytes + 1, 'x'), {0})}),
              HasSubstr("longer than 63 bytes"));
  EXPECT_THAT(error_of({node("a\nforged", {0})}), HasSubstr("not printable"));
  EXPECT_THAT(error_of({node("a", {0}), node("a", {1})}), HasSubstr("names node a twice"));
  EXPECT_THAT(error_of({node("a", {0}), node("b", {})}), HasSubstr("gives node b no rank"));
  EXPECT_THAT(error_of({node("a", {1, 0})}), HasSubstr("ranks of node a out of order"));
  EXPECT_THAT(error_of({node("a", {0}), node("b", {2})}), HasSubstr("rank 2 in a world of 2"));
  EXPECT_THAT(error_of({node("a", {-1, 0})}), HasSubstr("rank -1"));
  EXPECT_THAT(error_of({node("a", {0, 1}), node("b", {1})}), HasSubstr("rank 1 twice"));
  EXPECT_THAT(error_of({node("a", {0, 0})}), HasSubstr("rank 0 twice"));
}

TEST(Layout, RefusesMoreThanTheLimits) {
  std::vector<int32_t> many(limits::kMaxLocalRanks + 1);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<int32_t>(i);
  EXPECT_THAT(error_of({node("a", many)}), HasSubstr("gives node a 65 ranks; the limit is 64"));
  std::vector<LayoutNode> nodes;
  for (int32_t i = 0; i <= limits::kMaxNodes; ++i) nodes.push_back(node(std::to_string(i), {i}));
  EXPECT_THAT(error_of(nodes), HasSubstr("has 4097 nodes; the limit is 4096"));
  nodes.pop_back();
  EXPECT_TRUE(Layout::make(nodes).is_ok());
}

TEST(Layout, TheHashIsOverNodeIdsAndRanks) {
  const auto hash = [](std::vector<LayoutNode> nodes) {
    return Layout::make(std::move(nodes)).value().hash();
  };
  const uint64_t usual = hash({node("a", {0, 1}), node("b", {2})});
  EXPECT_EQ(usual, hash({node("a", {0, 1}), node("b", {2})}));
  EXPECT_NE(usual, hash({node("a", {0}), node("b", {1, 2})}));
  EXPECT_NE(usual, hash({node("b", {0, 1}), node("a", {2})}));
  EXPECT_NE(usual, hash({node("a", {0, 2}), node("b", {1})}));
  // Nodes may reach each other under different addresses.
  LayoutNode elsewhere = node("b", {2});
  elsewhere.control_address = "10.0.0.2:28400";
  EXPECT_EQ(usual, hash({node("a", {0, 1}), elsewhere}));
}

TEST(LayoutDeathTest, ANodeThatIsNotThereIsABug) {
  EXPECT_DEATH((void)layout_of({1}).node(NodeIndex{1}), "check failed");
}

}  // namespace
}  // namespace rueda::core
