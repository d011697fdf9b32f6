#include "daemon/core/recovery/decision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/builders.h"
#include "tests/core/recovery/last_launched.h"

namespace rueda::core {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<NodeIndex> kFour = {n0, n1, n2, n3};

constexpr bool kPartial = true;

// Reads "1.1" as chunks 0 and 2 of three.
Holding holds(const std::string& chunks, bool partial, bool delivered = false) {
  Holding holding;
  for (const char chunk : chunks) holding.chunks.push_back(chunk == '1');
  holding.partial = partial;
  holding.delivered = delivered;
  return holding;
}

std::map<NodeIndex, NodeReport> lockable(const std::map<NodeIndex, Report>& reports) {
  std::map<NodeIndex, NodeReport> whole;
  for (const auto& [node, report] : reports) whole[node].tracks[0] = report;
  return whole;
}

Decision decide_shrink(const std::map<NodeIndex, Report>& reports) {
  return decide(Epoch{2}, kFour, lockable(reports), DeathPolicy::kShrink);
}

TEST(Decision, NamesWhoGoesOnAndWhoIsLost) {
  const Decision decision = decide_shrink({{n0, {}}, {n2, {}}, {n3, {}}});
  EXPECT_EQ(decision.epoch, Epoch{2});
  EXPECT_THAT(decision.members, ElementsAre(n0, n2, n3));
  EXPECT_THAT(decision.lost, ElementsAre(n1));
  EXPECT_THAT(decision.tracks[0].operations, IsEmpty());
  EXPECT_FALSE(decision.ends_job);
}

TEST(Decision, CompleteIfTheirChunksCoverTheOperation) {
  const Decision decision = decide_shrink(
      {{n0, {Seq{0}, {holds("11..", kPartial)}}}, {n1, {Seq{0}, {holds("..11", kPartial)}}}});
  ASSERT_EQ(decision.tracks[0].operations.size(), 1u);
  EXPECT_EQ(decision.tracks[0].operations[0].verdict, Verdict::kComplete);
  EXPECT_THAT(decision.tracks[0].operations[0].servers, ElementsAre(n0, n0, n1, n1));
}

TEST(Decision, RedoIfAChunkIsNowhere) {
  const Decision decision = decide_shrink(
      {{n0, {Seq{0}, {holds("11..", kPartial)}}}, {n1, {Seq{0}, {holds("1..1", kPartial)}}}});
  ASSERT_EQ(decision.tracks[0].operations.size(), 1u);
  EXPECT_EQ(decision.tracks[0].operations[0].verdict, Verdict::kRedo);
}

// A broadcast ends on its root before the others begin, and is decided upon all the same.
TEST(Decision, ABroadcastThatOneHasNotLaunchedIsFetchedThere) {
  std::map<NodeIndex, Report> reports{{n0, {Seq{3}, {holds("11", !kPartial, true)}}},
                                      {n1, {Seq{3}, {}}}};
  EXPECT_THAT(decide_shrink(reports).tracks[0].operations, IsEmpty());
  extend_to_last_launched(reports);
  const Decision decision = decide_shrink(reports);
  ASSERT_EQ(decision.tracks[0].operations.size(), 1u);
  EXPECT_EQ(decision.tracks[0].operations[0].verdict, Verdict::kComplete);
  EXPECT_THAT(decision.tracks[0].operations[0].servers, ElementsAre(n0, n0));
  EXPECT_EQ(decision.tracks[0].returned(), Seq{5});
}

TEST(Decision, WhoDeliveredForcesComplete) {
  const Decision decision = decide_shrink(
      {{n0, {Seq{0}, {holds("...", kPartial)}}}, {n1, {Seq{0}, {holds("111", !kPartial, true)}}}});
  EXPECT_EQ(decision.tracks[0].operations[0].verdict, Verdict::kComplete);
  EXPECT_THAT(decision.tracks[0].operations[0].servers, ElementsAre(n1, n1, n1));
}

TEST(Decision, ServingIsSpreadOverThoseThatHoldAChunk) {
  const Decision decision = decide_shrink({{n0, {Seq{0}, {holds("1111", !kPartial)}}},
                                           {n1, {Seq{0}, {holds("1111", !kPartial)}}},
                                           {n2, {Seq{0}, {holds("....", kPartial)}}}});
  EXPECT_THAT(decision.tracks[0].operations[0].servers, ElementsAre(n0, n1, n0, n1));
}

TEST(Decision, WhatOneHasFreedOthersMayStillHold) {
  // n0 knows that operations 1 and 2 are stable; n1 does not know it yet.
  const Decision decision =
      decide_shrink({{n0, {Seq{2}, {holds(".", kPartial)}}},
                     {n1, {Seq{1}, {holds("1", !kPartial, true), holds(".", kPartial)}}}});
  EXPECT_EQ(decision.tracks[0].first, Seq{2});
  ASSERT_EQ(decision.tracks[0].operations.size(), 2u);
  EXPECT_EQ(decision.tracks[0].operations[0].verdict, Verdict::kComplete);
  EXPECT_EQ(decision.tracks[0].operations[1].verdict, Verdict::kRedo);
}

TEST(Decision, WhatOneHasNotLaunchedReturns) {
  const Decision decision = decide_shrink(
      {{n0, {Seq{4}, {holds("..", kPartial), holds("..", kPartial), holds("..", kPartial)}}},
       {n1, {Seq{4}, {holds("..", kPartial)}}}});
  EXPECT_EQ(decision.tracks[0].operations.size(), 1u);
  EXPECT_EQ(decision.tracks[0].returned(), Seq{6});
}

// All nodes launched operation 5, but not the same one: its generation differed, or its alternative
// of the plan. So nobody has completed it, nor anything after it.
TEST(Decision, ANumberWithTwoNamesIsNotLaunchedByAll) {
  const auto named = [](uint32_t generation, uint64_t plan_hash) {
    Holding holding = holds("..", kPartial);
    holding.name = {generation, plan_hash};
    return holding;
  };
  const auto decided = [&](const Holding& mine, const Holding& theirs) {
    return decide_shrink({{n0, {Seq{3}, {named(1, 7), mine, named(1, 9)}}},
                          {n1, {Seq{3}, {named(1, 7), theirs, named(1, 9)}}}})
        .tracks[0]
        .operations.size();
  };
  EXPECT_EQ(decided(named(1, 8), named(1, 8)), 3u);
  EXPECT_EQ(decided(named(1, 8), named(2, 8)), 1u);
  EXPECT_EQ(decided(named(1, 8), named(1, 80)), 1u);
  // A node that heard of the operation from the decision before, and has not launched it, means the
  // same operation.
  EXPECT_EQ(decided(named(1, 8), holds("", kPartial)), 3u);
}

// The operation was decided REDO in an epoch that broke before all nodes had launched it again.
TEST(Decision, WhatIsCarriedOverAndNotLaunchedIsStillThere) {
  const Decision decision = decide_shrink(
      {{n0, {Seq{0}, {holds("", kPartial)}}}, {n1, {Seq{0}, {holds("1.", kPartial)}}}});
  EXPECT_EQ(decision.tracks[0].operations[0].verdict, Verdict::kRedo);
  EXPECT_EQ(decision.tracks[0].returned(), Seq{2});
}

TEST(Decision, OfAnotherNumberOfChunksTheMissingOnesDoNotCount) {
  const Decision decision = decide_shrink(
      {{n0, {Seq{0}, {holds("", kPartial)}}}, {n1, {Seq{0}, {holds("11", !kPartial)}}}});
  EXPECT_EQ(decision.tracks[0].operations[0].verdict, Verdict::kComplete);
  EXPECT_THAT(decision.tracks[0].operations[0].servers, ElementsAre(n1, n1));
}

TEST(Decision, PolicyFailEndsTheJob) {
  const Decision decision = decide(
      Epoch{2}, kFour, lockable({{n0, {Seq{0}, {holds(".", kPartial)}}}}), DeathPolicy::kFail);
  EXPECT_TRUE(decision.ends_job);
  EXPECT_THAT(decision.tracks[0].operations, IsEmpty());
  EXPECT_EQ(decision.irrecoverable, Seq{});
  EXPECT_THAT(decision.lost, ElementsAre(n1, n2, n3));
}

// A broken rule R1 alone leads to this case, and guessing would be worse.
TEST(Decision, NeitherNorEndsTheJob) {
  const Decision decision = decide_shrink(
      {{n0, {Seq{0}, {holds("1.", kPartial)}}}, {n1, {Seq{0}, {holds("1.", !kPartial)}}}});
  EXPECT_TRUE(decision.ends_job);
  EXPECT_EQ(decision.irrecoverable, Seq{1});
}

}  // namespace
}  // namespace rueda::core
