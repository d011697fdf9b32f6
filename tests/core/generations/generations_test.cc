// Tests what the simulator (tests/sim/generations) does not look at: texts, times, and messages
// that no honest node sends.
#include "daemon/core/generations/generations.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/base/limits.h"

namespace rueda::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

GenerationNode member(const std::string& name, std::vector<GenerationSlot> slots) {
  return {{name, 1}, name + ":1", std::move(slots)};
}

GenerationPtr generation(uint32_t epoch, std::vector<GenerationNode> nodes) {
  return std::make_shared<const Generation>(Generation{Epoch{epoch}, std::move(nodes), "why"});
}

GenerationPtr two_nodes() {
  return generation(1, {member("a", {{Slot{0}, Rank{0}}, {Slot{1}, Rank{1}}}),
                        member("b", {{Slot{0}, Rank{2}}, {Slot{1}, Rank{3}}})});
}

GenerationPtr three_nodes() {
  std::vector<GenerationNode> nodes = two_nodes()->nodes;
  nodes.push_back(member("c", {{Slot{0}, Rank{4}}}));
  return generation(1, std::move(nodes));
}

GenerationOptions options(int min_ranks, int max_ranks) {
  GenerationOptions out;
  out.job = "j";
  out.min_ranks = min_ranks;
  out.max_ranks = max_ranks;
  return out;
}

NodeOffer offer(const std::string& name, std::vector<OfferedSlot> slots, uint64_t incarnation = 1) {
  return {{name, incarnation}, name + ":1", std::move(slots)};
}

class GenerationsTest : public testing::Test {
 protected:
  GenerationsTest() : core_({"a", 1}, "a:1", {}, options(2, 5)) {
    core_.begin_first(three_nodes());
  }

  GenerationMessage from(const std::string& name, auto body, uint32_t epoch = 2,
                         uint64_t incarnation = 1) {
    return {{name, incarnation}, name + ":1", Epoch{epoch}, std::move(body)};
  }
  Present says(NodeOffer offered, bool forms, int awaited = 0) {
    return {++number_, std::move(offered), forms, awaited, "a rank of b has died", false, {}};
  }
  GenerationsOutput take(GenerationMessage message, TicksMs now = 0) {
    GenerationsOutput output;
    core_.on_message(now, message, output);
    return output;
  }

  Generations core_;
  uint64_t number_ = 0;
};

// --- Ranks ---------------------------------------------------------------------------------------

TEST(DealRanks, SurvivorsKeepTheirOrderAndNewcomersComeAfterThem) {
  const GenerationPtr before = two_nodes();
  const Generation next =
      deal_ranks(before.get(),
                 {offer("a", {{Slot{0}, false}, {Slot{1}, true}}), offer("b", {{Slot{1}, true}}),
                  offer("c", {{Slot{0}, false}})},
                 8);
  ASSERT_EQ(next.nodes.size(), 3u);
  EXPECT_THAT(next.nodes[0].slots,
              ElementsAre(GenerationSlot{Slot{1}, Rank{0}}, GenerationSlot{Slot{0}, Rank{2}}));
  EXPECT_THAT(next.nodes[1].slots, ElementsAre(GenerationSlot{Slot{1}, Rank{1}}));
  EXPECT_THAT(next.nodes[2].slots, ElementsAre(GenerationSlot{Slot{0}, Rank{3}}));
  EXPECT_TRUE(next.layout().is_ok());
}

TEST(DealRanks, TheNodeOfRankZeroCoordinates) {
  const GenerationPtr before = two_nodes();
  const Generation next =
      deal_ranks(before.get(), {offer("a", {{Slot{0}, false}}), offer("b", {{Slot{0}, true}})}, 8);
  EXPECT_EQ(next.nodes[0].id.node_id, "b");
}

TEST(DealRanks, ADaemonThatStartedAgainHasNoSurvivors) {
  const GenerationPtr before = two_nodes();
  const Generation next = deal_ranks(
      before.get(), {offer("a", {{Slot{0}, true}}, 2), offer("b", {{Slot{0}, true}})}, 8);
  EXPECT_EQ(next.nodes[0].id.node_id, "b");
}

TEST(DealRanks, WhoIsTooManyWaits) {
  const Generation next =
      deal_ranks(nullptr, {offer("a", {{Slot{0}}, {Slot{1}}}), offer("b", {{Slot{0}}})}, 2);
  ASSERT_EQ(next.nodes.size(), 1u);
  EXPECT_EQ(next.world_size(), 2);
}

// --- Forming -------------------------------------------------------------------------------------

TEST_F(GenerationsTest, TheRanksOfADeadProcessAreDealtAnewByWord) {
  GenerationsOutput output;
  core_.end_running(0, "a rank of b has died", output);
  core_.lose_node(0, {"c", 1}, output);
  core_.attach(1, Slot{0}, output);
  core_.attach(1, Slot{1}, output);
  EXPECT_TRUE(output.sends.empty()) << "it leads, and has heard of nobody";
  output = take(from("b", says(offer("b", {{Slot{1}, true}}), true)));
  ASSERT_EQ(output.sends.size(), 3u) << "Heard, Prepare to both";
  const auto& prepare = std::get<PrepareGeneration>(output.sends[1].second.body);
  output = take(from("b", PromiseGeneration{prepare.ballot, {}, nullptr, {}}));
  ASSERT_EQ(output.sends.size(), 2u) << "c may come back";
  const auto accept = std::get<AcceptGeneration>(output.sends[0].second.body);
  output = take(from("b", AcceptedGeneration{accept.ballot}));
  ASSERT_NE(output.begun, nullptr);
  EXPECT_EQ(output.begun->world_size(), 3);
  EXPECT_EQ(core_.state(), Generations::State::kRunning);
  ASSERT_EQ(output.sends.size(), 2u);
  EXPECT_EQ(output.sends[0].first, "b:1");
  EXPECT_EQ(output.sends[1].first, "c:1") << "it has to know that it was left out";
  EXPECT_TRUE(std::holds_alternative<LearnGeneration>(output.sends[0].second.body));
}

TEST_F(GenerationsTest, OneNodeNeedsNobody) {
  Generations alone({"a", 1}, "a:1", {}, options(1, 2));
  alone.begin_first(generation(1, {member("a", {{Slot{0}, Rank{0}}, {Slot{1}, Rank{1}}})}));
  GenerationsOutput output;
  alone.lose(0, Slot{0}, output);
  alone.end_running(0, "rank 0 has died", output);
  EXPECT_EQ(output.begun, nullptr);
  alone.attach(1, Slot{1}, output);
  ASSERT_NE(output.begun, nullptr);
  EXPECT_THAT(output.begun->nodes[0].slots, ElementsAre(GenerationSlot{Slot{1}, Rank{0}}));
  // The process that takes the dead one's slot is a newcomer, of which is told once.
  output = {};
  alone.attach(2, Slot{0}, output);
  EXPECT_TRUE(output.hosts_changed);
  output = {};
  alone.on_time(10'000, output);
  EXPECT_FALSE(output.hosts_changed);
  alone.end_running(10'001, "hosts have changed", output);
  alone.attach(10'002, Slot{1}, output);
  ASSERT_NE(output.begun, nullptr);
  EXPECT_THAT(output.begun->nodes[0].slots,
              ElementsAre(GenerationSlot{Slot{1}, Rank{0}}, GenerationSlot{Slot{0}, Rank{1}}));
}

TEST_F(GenerationsTest, HalfOfTheNodesGoOnOnlyWithTheLowest) {
  Generations lowest({"a", 1}, "a:1", {}, options(2, 4));
  lowest.begin_first(two_nodes());
  GenerationsOutput output;
  lowest.end_running(0, "b is lost", output);
  lowest.lose_node(0, {"b", 1}, output);
  lowest.attach(1, Slot{0}, output);
  lowest.attach(1, Slot{1}, output);
  EXPECT_NE(output.begun, nullptr);
  Generations other({"b", 1}, "b:1", {}, options(2, 4));
  other.begin_first(two_nodes());
  output = {};
  other.end_running(0, "a is lost", output);
  other.lose_node(0, {"a", 1}, output);
  other.attach(1, Slot{0}, output);
  other.attach(1, Slot{1}, output);
  other.on_time(20'000, output);
  EXPECT_EQ(output.begun, nullptr);
}

// A daemon that had stood still found its processes dead and the other node silent, and began with
// newcomers alone: rank 0 trained from nothing while the others had the state.
TEST(GenerationsState, NewcomersAloneWaitForNodesWhereItMayBe) {
  Generations core({"a", 1}, "a:1", {}, options(1, 4));
  core.begin_first(two_nodes());
  GenerationsOutput output;
  core.end_running(0, "node b is lost", output);
  core.lose(0, Slot{0}, output);
  core.lose(0, Slot{1}, output);
  core.attach(0, Slot{0}, output);
  core.lose_node(0, {"b", 1}, output);
  core.on_time(30'000, output);
  EXPECT_EQ(output.begun, nullptr);
  EXPECT_THAT(core.describe_wait(), HasSubstr("nothing is heard of b"));
  core.on_time(60'001, output);
  ASSERT_NE(output.begun, nullptr) << "they may all be dead";
  EXPECT_EQ(output.begun->world_size(), 1);
}

TEST(GenerationsState, NewcomersBeginOnceEverybodyHasSaidThatItIsGone) {
  Generations core({"a", 1}, "a:1", {}, options(1, 4));
  core.begin_first(two_nodes());
  GenerationsOutput output;
  core.end_running(0, "a rank has died", output);
  core.lose(0, Slot{0}, output);
  core.lose(0, Slot{1}, output);
  core.attach(0, Slot{0}, output);
  EXPECT_EQ(output.begun, nullptr);
  core.on_message(
      1, {{"b", 1}, "b:1", Epoch{2}, Present{1, offer("b", {}), true, 0, "", false, {}}}, output);
  core.on_message(2, {{"b", 1}, "b:1", Epoch{2}, PromiseGeneration{{1, NodeIndex{0}}, {}, {}, {}}},
                  output);
  core.on_message(3, {{"b", 1}, "b:1", Epoch{2}, AcceptedGeneration{{1, NodeIndex{0}}}}, output);
  ASSERT_NE(output.begun, nullptr);
  EXPECT_EQ(output.begun->world_size(), 1);
}

TEST_F(GenerationsTest, WhoIsWaitedForIsSaidWhenTheTimeIsOver) {
  GenerationsOutput output;
  core_.end_running(0, "b is lost", output);
  core_.attach(1'000, Slot{0}, output);
  ASSERT_TRUE(core_.wakes_at());
  core_.on_time(600'999, output);
  EXPECT_FALSE(output.over);
  core_.on_time(601'000, output);
  ASSERT_TRUE(output.over);
  EXPECT_EQ(output.over->code(), Code::kTimeout);
  EXPECT_THAT(output.over->message(), HasSubstr("600 s (--elastic-timeout)"));
  EXPECT_THAT(output.over->message(), HasSubstr("1 ranks wait, at least 2 must be there"));
  EXPECT_THAT(output.over->message(), HasSubstr("nothing is heard of b c"));
  EXPECT_EQ(core_.wakes_at(), std::nullopt);
}

TEST_F(GenerationsTest, AProcessThatDoesNotComeBackIsWaitedForUntilItsTimeIsOver) {
  GenerationsOutput output;
  core_.end_running(0, "a rank of b has died", output);
  core_.attach(1, Slot{0}, output);
  take(from("b", says(offer("b", {{Slot{0}, true}}), true)), 59'000);
  output = {};
  core_.on_time(60'000, output);
  const auto prepares = [&] {
    return std::count_if(output.sends.begin(), output.sends.end(), [](const auto& sent) {
      return std::holds_alternative<PrepareGeneration>(sent.second.body);
    });
  };
  EXPECT_EQ(prepares(), 0) << "slot 1 is awaited";
  core_.on_time(60'001, output);
  EXPECT_EQ(prepares(), 2);
}

// --- Messages that no honest node sends ----------------------------------------------------------

TEST_F(GenerationsTest, WhoIsNoMemberHasNoVote) {
  const Ballot high{9, NodeIndex{1}};
  EXPECT_TRUE(take(from("d", PrepareGeneration{high})).sends.empty());
  EXPECT_TRUE(take(from("b", PrepareGeneration{high}, 2, 7)).sends.empty()) << "another life of b";
  EXPECT_EQ(core_.state(), Generations::State::kRunning);
  EXPECT_EQ(take(from("b", PrepareGeneration{high})).sends.size(), 1u);
  EXPECT_EQ(core_.state(), Generations::State::kForming);
}

TEST_F(GenerationsTest, WhatIsNoGenerationIsNotLearnt) {
  EXPECT_EQ(take(from("b", LearnGeneration{nullptr}, 3)).begun, nullptr);
  EXPECT_EQ(take(from("b", LearnGeneration{generation(2, {})}, 3)).begun, nullptr);
  const GenerationPtr twice =
      generation(2, {member("a", {{Slot{0}, Rank{0}}}), member("b", {{Slot{0}, Rank{0}}})});
  EXPECT_EQ(take(from("b", LearnGeneration{twice}, 3)).begun, nullptr);
  EXPECT_EQ(core_.known()->epoch, Epoch{1});
  const GenerationPtr old = generation(1, {member("a", {{Slot{0}, Rank{0}}})});
  EXPECT_EQ(take(from("b", LearnGeneration{old}, 2)).begun, nullptr);
}

TEST_F(GenerationsTest, NobodyOffersForAnother) {
  EXPECT_TRUE(take(from("b", says(offer("c", {{Slot{0}, false}}), false))).sends.empty());
}

TEST_F(GenerationsTest, WhatCannotBeANodeIsNoOffer) {
  const std::vector<std::vector<OfferedSlot>> impossible = {
      {{Slot{-1}, false}},
      {{Slot{1}, false}, {Slot{0}, false}},
      {{Slot{0}, false}, {Slot{0}, false}},
      std::vector<OfferedSlot>(limits::kMaxLocalRanks + 1),
  };
  for (const std::vector<OfferedSlot>& slots : impossible) {
    EXPECT_TRUE(take(from("d", says(offer("d", slots), false))).sends.empty());
  }
  EXPECT_TRUE(take(from("", says(offer("", {{Slot{0}, false}}), false))).sends.empty());
  EXPECT_FALSE(take(from("d", says(offer("d", {{Slot{0}, false}}), false))).sends.empty());
}

// The next ballot of this node has to be above it.
TEST_F(GenerationsTest, ABallotThatLeavesNoRoundForOthersIsIgnored) {
  const Ballot last{UINT64_MAX, NodeIndex{1}};
  EXPECT_TRUE(take(from("b", PrepareGeneration{last})).sends.empty());
  EXPECT_TRUE(take(from("b", AcceptGeneration{last, three_nodes()})).sends.empty());
  take(from("b", RefuseGeneration{last}));
  EXPECT_EQ(take(from("b", PrepareGeneration{{1, NodeIndex{1}}})).sends.size(), 1u);
}

TEST_F(GenerationsTest, OfOnlySoManyNodesIsKeptWhatTheySay) {
  for (int i = 0; i < 5 * limits::kMaxNodes; ++i) {
    const std::string name = "x" + std::to_string(i);
    const bool is_heard =
        !take(from(name, says(offer(name, {{Slot{0}, false}}), false))).sends.empty();
    ASSERT_EQ(is_heard, i < 4 * limits::kMaxNodes);
  }
}

TEST_F(GenerationsTest, OnceAProcessHasEndedWellNewcomersAreNotTakenIn) {
  GenerationsOutput output;
  core_.finish(0, Slot{1}, output);
  EXPECT_TRUE(output.finished);
  EXPECT_FALSE(output.ended) << "what runs goes on";
  EXPECT_FALSE(take(from("d", says(offer("d", {{Slot{0}, false}}), false))).hosts_changed);
  GenerationsOutput late;
  core_.attach(1, Slot{1}, late);
  EXPECT_TRUE(late.finished) << "it is told each time";
  // The others hear it, also when the node goes for good.
  GenerationsOutput left;
  core_.leave(left);
  std::set<std::string> told;
  for (const auto& [address, message] : left.sends) {
    EXPECT_TRUE(std::get<Present>(message.body).finished);
    told.insert(address);
  }
  EXPECT_EQ(told, (std::set<std::string>{"b:1", "c:1", "d:1"})) << "who waits hears it, too";
}

TEST_F(GenerationsTest, AProcessThatWasInNoGenerationFinishesNothing) {
  GenerationsOutput output;
  core_.attach(0, Slot{5}, output);
  core_.finish(0, Slot{5}, output);
  EXPECT_FALSE(output.finished);
}

TEST_F(GenerationsTest, WhoFollowsADaemonKeepsItsPromisesAndSaysThatItIsThere) {
  const Ballot ballot{4, NodeIndex{1}};
  take(from("b", AcceptGeneration{ballot, generation(2, two_nodes()->nodes)}));
  Generations next({"a", 1}, "a:1", {}, options(2, 5));
  GenerationsOutput output;
  next.resume(0, core_.votes(), output);
  EXPECT_EQ(next.state(), Generations::State::kForming);
  EXPECT_THAT(next.awaited_slots(), ElementsAre(Slot{0}, Slot{1}));
  std::set<std::string> told;
  for (const auto& [address, message] : output.sends) {
    if (std::holds_alternative<Present>(message.body)) told.insert(address);
  }
  EXPECT_EQ(told, (std::set<std::string>{"b:1", "c:1"}));
  GenerationsOutput answer;
  next.on_message(1, from("b", PrepareGeneration{{3, NodeIndex{1}}}), answer);
  EXPECT_TRUE(std::holds_alternative<RefuseGeneration>(answer.sends.back().second.body));
  next.on_message(1, from("b", PrepareGeneration{{5, NodeIndex{1}}}), answer);
  const auto& promise = std::get<PromiseGeneration>(answer.sends.back().second.body);
  EXPECT_EQ(promise.accepted_in, ballot);
}

TEST_F(GenerationsTest, AnOldOfferAfterANewerOneIsDropped) {
  GenerationsOutput output;
  core_.end_running(0, "a rank of b has died", output);
  core_.lose_node(0, {"c", 1}, output);
  const Present old = says(offer("b", {{Slot{0}, true}, {Slot{1}, true}}), true);
  take(from("b", says(offer("b", {}), true, 2)));
  EXPECT_TRUE(take(from("b", old)).sends.empty());
  core_.attach(1, Slot{0}, output);
  core_.attach(1, Slot{1}, output);
  EXPECT_TRUE(output.sends.empty()) << "the processes of b are awaited";
}

// --- Settings ------------------------------------------------------------------------------------

// A node with another --algorithm was taken in once, so that the next generation failed on all
// nodes, and the one after it, and so on.
TEST(GenerationsSettings, ANewcomerWithOtherSettingsIsRefusedAndTheJobGoesOn) {
  GenerationOptions ours = options(1, 5);
  ours.settings = {{"--algorithm", "auto"}};
  GenerationOptions theirs = ours;
  theirs.settings = {{"--algorithm", "ring"}};
  Generations member_of_job({"a", 1}, "a:1", {}, ours);
  member_of_job.begin_first(generation(1, {member("a", {{Slot{0}, Rank{0}}})}));
  Generations newcomer({"n", 1}, "n:1", {"a:1"}, theirs);
  GenerationsOutput asked;
  newcomer.attach(0, Slot{0}, asked);
  // It learns of the job first, and asks to be in its next generation then.
  for (TicksMs now = 0; now < 1'000 && newcomer.state() != Generations::State::kOver; now += 300) {
    for (const auto& [address, said] : std::exchange(asked, {}).sends) {
      GenerationsOutput answers;
      member_of_job.on_message(now, said, answers);
      EXPECT_FALSE(answers.hosts_changed);
      for (const auto& [to, answer] : answers.sends) newcomer.on_message(now, answer, asked);
    }
    if (asked.over) break;
    newcomer.on_time(now + 300, asked);
  }
  EXPECT_EQ(asked.over, Status(Code::kMismatch,
                               "job j has for --algorithm auto on node a and ring on node n; "
                               "give it the same value on all nodes"));
  EXPECT_EQ(member_of_job.state(), Generations::State::kRunning);
}

// Only who has not been taken in yet can be refused: a member's settings have been compared.
TEST_F(GenerationsTest, AMemberIsNotRefused) {
  const GenerationsOutput output =
      take(from("b", Heard{"b:1", false, "job j has for --algorithm nonsense"}));
  EXPECT_EQ(output.over, std::nullopt);
  EXPECT_EQ(core_.state(), Generations::State::kRunning);
}

// --- The end -------------------------------------------------------------------------------------

const Status kEnded(Code::kShutDown, "the job was ended by user 0 on node b",
                    Origin{"b", {}, true});

std::set<std::string> told_of_end(const GenerationsOutput& output) {
  std::set<std::string> told;
  for (const auto& [address, message] : output.sends) {
    const auto* end = std::get_if<EndGenerations>(&message.body);
    if (end && end->why == kEnded && !end->is_answer) told.insert(address);
  }
  return told;
}

TEST_F(GenerationsTest, AnEndIsFinalAndToldToAllUntilTheyAnswer) {
  GenerationsOutput output;
  core_.end_running(0, "a rank of b has died", output);
  for (const int slot : {0, 1}) core_.attach(0, Slot{slot}, output);
  output = {};
  core_.end(10, kEnded, output);
  EXPECT_EQ(output.over, kEnded);
  EXPECT_EQ(core_.why_over(), kEnded);
  EXPECT_EQ(told_of_end(output), (std::set<std::string>{"b:1", "c:1"}));
  // It has no vote any more, and says why.
  output = take(from("b", PrepareGeneration{{7, NodeIndex{1}}}), 11);
  ASSERT_EQ(output.sends.size(), 1u);
  EXPECT_EQ(told_of_end(output), (std::set<std::string>{"b:1"}));
  output = take(from("b", LearnGeneration{generation(2, two_nodes()->nodes)}), 11);
  EXPECT_EQ(output.begun, nullptr);
  EXPECT_TRUE(take(from("b", EndGenerations{kEnded, true}), 12).sends.empty());
  ASSERT_TRUE(core_.wakes_at().has_value());
  output = {};
  core_.on_time(*core_.wakes_at(), output);
  EXPECT_EQ(told_of_end(output), (std::set<std::string>{"c:1"}));
  EXPECT_EQ(output.over, std::nullopt) << "it was over before";
  take(from("c", EndGenerations{kEnded, false}), 400);
  EXPECT_EQ(core_.wakes_at(), std::nullopt);
}

TEST_F(GenerationsTest, WhoHearsOfAnEndAnswersAndTellsTheOthers) {
  GenerationsOutput output = take(from("b", EndGenerations{kEnded, false}));
  EXPECT_EQ(output.over, kEnded);
  ASSERT_EQ(output.sends.size(), 2u);
  EXPECT_EQ(output.sends[0].first, "b:1");
  EXPECT_TRUE(std::get<EndGenerations>(output.sends[0].second.body).is_answer);
  EXPECT_EQ(told_of_end(output), (std::set<std::string>{"c:1"}));
  output = take(from("b", EndGenerations{kEnded, false}));
  EXPECT_EQ(output.over, std::nullopt);
  ASSERT_EQ(output.sends.size(), 1u) << "the answer may have been lost";
  EXPECT_TRUE(std::get<EndGenerations>(output.sends[0].second.body).is_answer);
}

TEST_F(GenerationsTest, WhoWaitsToBeTakenInIsToldOfAnEndToo) {
  take(from("d", says(offer("d", {{Slot{0}, false}}), false)));
  GenerationsOutput output;
  core_.end(10, kEnded, output);
  EXPECT_EQ(told_of_end(output), (std::set<std::string>{"b:1", "c:1", "d:1"}));
}

TEST_F(GenerationsTest, WhoNeverAnswersIsNotToldForEver) {
  GenerationsOutput output;
  core_.end(0, kEnded, output);
  TicksMs now = 0;
  int times = 0;
  while (core_.wakes_at() && times < 1'000) {
    ASSERT_GT(*core_.wakes_at(), now);
    now = *core_.wakes_at();
    core_.on_time(now, output);
    ++times;
  }
  EXPECT_GT(now, 600'000);
  EXPECT_LT(times, 300);
}

}  // namespace
}  // namespace rueda::core
