#include "daemon/core/stall/stall.h"

#include <deque>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/core/stall/stall_text.h"
#include "tests/core/builders.h"

namespace rueda::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

// Runs the inspectors of a job's nodes, with messages that arrive at once, and a clock of whole
// seconds.
class Inspectors {
 public:
  struct Node {
    std::unique_ptr<SubmissionTable> table;
    std::unique_ptr<NodeActivity> activity = std::make_unique<NodeActivity>();
    std::unique_ptr<StallInspector> inspector;
    std::vector<std::string> warnings;
    std::vector<std::string> good_news;
    Status failure;
    int ticks = 0;
  };

  explicit Inspectors(const std::vector<int>& ranks_by_node, StallOptions options = {10'000, 0})
      : layout_(layout_of(ranks_by_node)) {
    for (int i = 0; i < layout_.node_count(); ++i) {
      Node& node = nodes_.emplace_back();
      node.table = std::make_unique<SubmissionTable>(layout_.node(NodeIndex{i}).ranks);
      node.inspector = std::make_unique<StallInspector>(0, layout_, NodeIndex{i}, options,
                                                        *node.table, *node.activity);
    }
  }

  Node& node(int index) { return nodes_[static_cast<size_t>(index)]; }
  const Layout& layout() const { return layout_; }

  void submit(std::vector<int> ranks, const std::string& name) {
    for (int rank : ranks) {
      Node& home = node(home_of(rank));
      const LocalSubmission submission{local(rank), Ticket{1}, tensor(name), now_};
      ASSERT_TRUE(home.table->add(submission).is_ok());
      home.inspector->on_submitted(submission);
    }
  }
  void submit_everywhere(const std::string& name) {
    for (int rank = 0; rank < layout_.world_size(); ++rank) submit({rank}, name);
  }
  // Returns the tensor to every rank that has submitted it.
  void complete(const std::string& name) {
    for (Node& at : nodes_) {
      for (const LocalSubmission& submission : at.table->remove(name)) {
        at.inspector->on_completed(submission, now_);
      }
    }
  }
  void leave(int rank) { node(home_of(rank)).inspector->on_left(local(rank)); }

  // Ticks as the engine does: every second, where ticks are waited for.
  void pass(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      now_ += 1000;
      for (int index = 0; index < layout_.node_count(); ++index) {
        if (!node(index).inspector->wakes_at()) continue;
        ++node(index).ticks;
        StallOutput output;
        node(index).inspector->on_time(now_, output);
        carry_out(index, output);
        deliver();
      }
    }
  }
  Status tell(int to, int from, const StallMessage& message) {
    StallOutput output;
    Status status = node(to).inspector->on_message(NodeIndex{from}, message, now_, output);
    carry_out(to, output);
    return status;
  }
  // Makes messages wait from now on.
  void hold() { is_held_ = true; }
  void release() {
    is_held_ = false;
    deliver();
  }

  std::vector<std::string> stalled(int index) {
    std::vector<std::string> names;
    for (const Stall& stall : node(index).inspector->stalls(now_).stalls) {
      names.push_back(stall.tensor);
    }
    return names;
  }
  Stall stall(int index, const std::string& name = "") {
    for (const Stall& stall : node(index).inspector->stalls(now_).stalls) {
      if (name.empty() || stall.tensor == name) return stall;
    }
    ADD_FAILURE() << "no stall on node " << index;
    return {};
  }
  std::string sentence(int index) {
    const StallNotice notice = node(index).inspector->stalls(now_);
    return notice.stalls.empty() ? "none"
                                 : describe_stall(0, layout_, notice.stalls[0], notice.ranks);
  }

  int sent = 0;        // messages so far
  size_t largest = 0;  // the largest number of tensors in a message

 private:
  int home_of(int rank) const { return layout_.node_of(Rank{rank}).value; }
  LocalRank local(int rank) const {
    return LocalRank{rank - layout_.node(NodeIndex{home_of(rank)}).ranks.front().value};
  }
  void carry_out(int from, StallOutput& output) {
    for (auto& [to, message] : output.sends) {
      ++sent;
      if (const auto* report = std::get_if<StallReport>(&message)) {
        largest = std::max(largest, report->tensors.size());
      }
      mail_.push_back({from, to.value, std::move(message)});
    }
    for (StallLine& line : output.lines) {
      (line.is_warning ? node(from).warnings : node(from).good_news).push_back(line.text);
    }
    if (!output.failure.is_ok()) node(from).failure = output.failure;
  }
  void deliver() {
    while (!is_held_ && !mail_.empty()) {
      const Mail mail = std::move(mail_.front());
      mail_.pop_front();
      EXPECT_TRUE(tell(mail.to, mail.from, mail.message).is_ok());
    }
  }

  struct Mail {
    int from;
    int to;
    StallMessage message;
  };
  const Layout layout_;
  std::vector<Node> nodes_;
  std::deque<Mail> mail_;
  bool is_held_ = false;
  TicksMs now_ = 5'000'000;
};

TEST(Stall, EveryNodeNamesTheTensorAndWhoHasAndHasNotSubmittedIt) {
  Inspectors job({2, 2});
  job.submit({0, 1, 3}, "grad");
  job.pass(9);
  EXPECT_THAT(job.node(0).warnings, IsEmpty());
  EXPECT_EQ(job.sent, 0);
  job.pass(1);
  for (int node = 0; node < 2; ++node) {
    EXPECT_THAT(job.node(node).warnings,
                ElementsAre("tensor \"grad\" was submitted 10 s ago by ranks 0-1, 3, and not by "
                            "rank 2 on node n1 (it has not submitted any tensor)"));
    EXPECT_EQ(job.node(node).inspector->count(), 1u);
    EXPECT_THAT(job.stall(node).submitted, ElementsAre(Rank{0}, Rank{1}, Rank{3}));
    EXPECT_THAT(job.stall(node).missing, ElementsAre(Rank{2}));
  }
}

TEST(Stall, SaysWhatTheMissingRankDidLastAndWhen) {
  Inspectors job({1, 1});
  job.submit_everywhere("a");
  job.submit_everywhere("b");
  job.pass(3);
  job.complete("a");
  job.pass(4);
  job.complete("b");
  job.submit({0}, "c");
  job.submit({1}, "elsewhere");
  job.pass(10);
  EXPECT_THAT(job.node(0).warnings.at(0),
              HasSubstr("rank 1 on node n1 (last submitted \"elsewhere\" 10 s ago, last completed "
                        "\"b\" 10 s ago)"));
  job.pass(5);
  EXPECT_THAT(job.sentence(1), HasSubstr("was submitted 15 s ago by rank 0, "));
  EXPECT_THAT(job.sentence(1), HasSubstr("last submitted \"elsewhere\" 15 s ago"))
      << "ages go on where the notice was received";
}

TEST(Stall, ARankThatHasLeftIsSaidToHave) {
  Inspectors job({1, 1});
  job.submit_everywhere("a");
  job.complete("a");
  job.leave(1);
  job.submit({0}, "b");
  job.pass(10);
  EXPECT_THAT(job.node(0).warnings.at(0), HasSubstr("rank 1 on node n1 (it has left the job)"));
}

// The coordinator has nothing pending itself, so it must hear of the stall.
TEST(Stall, TheCoordinatorsOwnRanksMayBeTheMissingOnes) {
  Inspectors job({2, 1, 1});
  job.submit({2, 3}, "grad");
  job.pass(10);
  for (int node = 0; node < 3; ++node) {
    EXPECT_THAT(job.stalled(node), ElementsAre("grad"));
    EXPECT_THAT(job.stall(node).missing, ElementsAre(Rank{0}, Rank{1}));
  }
}

TEST(Stall, ARankOfTheSameNodeMayBeMissing) {
  Inspectors job({3});
  job.submit({0, 2}, "grad");
  job.pass(10);
  EXPECT_THAT(job.stall(0).missing, ElementsAre(Rank{1}));
  EXPECT_EQ(job.sent, 0) << "one node talks to itself";
}

// --- Near misses ---------------------------------------------------------------------------------

TEST(Stall, ASimilarNameOfTheMissingRankIsNamed) {
  Inspectors job({2, 2});
  job.submit({0, 1, 2}, "layer1.weight");
  job.submit({3}, "layer1.weights");
  job.submit({3}, "loss");
  job.pass(10);
  EXPECT_THAT(job.stall(0).near_misses, ElementsAre(NearMiss{Rank{3}, "layer1.weights"}));
  EXPECT_THAT(job.node(1).warnings.at(0),
              HasSubstr("rank 3 on node n1 (last submitted \"loss\" 10 s ago, has completed none; "
                        "has the similar name \"layer1.weights\" in flight)"));
}

TEST(Stall, ANameThatTheWaitingRanksHaveTooIsAnotherTensor) {
  Inspectors job({2, 2});
  // The second tensor waits for its turn behind the first, as under a lock.
  job.submit({0, 1, 2}, "layer1.weight");
  job.submit_everywhere("layer2.weight");
  job.pass(10);
  EXPECT_THAT(job.stalled(0), ElementsAre("layer1.weight"));
  EXPECT_THAT(job.stall(0).near_misses, IsEmpty());
}

TEST(Stall, ANameThatHasCompletedIsNoMiss) {
  Inspectors job({1, 1});
  job.submit_everywhere("step.41");
  job.complete("step.41");
  job.submit({0}, "step.42");
  job.pass(10);
  EXPECT_THAT(job.stall(0).near_misses, IsEmpty());
  EXPECT_THAT(job.sentence(0), HasSubstr("last completed \"step.41\" 10 s ago"));
}

TEST(Stall, TheNearestNamesOfARankComeFirstAndAreThree) {
  Inspectors job({1, 1});
  job.submit({0}, "layer1.weight");
  for (const char* name :
       {"layer12.weights", "layer2.weights", "Layer1.weight", "layer1.weights"}) {
    job.submit({1}, name);
  }
  job.pass(10);
  EXPECT_THAT(job.stall(0, "layer1.weight").near_misses,
              ElementsAre(NearMiss{Rank{1}, "Layer1.weight"}, NearMiss{Rank{1}, "layer1.weights"},
                          NearMiss{Rank{1}, "layer12.weights"}));
}

// --- Time ----------------------------------------------------------------------------------------

TEST(Stall, IsLoggedAgainWhenItsAgeHasDoubled) {
  Inspectors job({1, 1});
  job.submit({0}, "grad");
  job.pass(85);
  std::vector<std::string> starts;
  for (const std::string& line : job.node(1).warnings) starts.push_back(line.substr(0, 36));
  EXPECT_THAT(starts, ElementsAre("tensor \"grad\" was submitted 10 s ago",
                                  "tensor \"grad\" was submitted 20 s ago",
                                  "tensor \"grad\" was submitted 40 s ago",
                                  "tensor \"grad\" was submitted 80 s ago"));
}

TEST(Stall, WhoIsMissingIsKeptUpToDateWithoutFurtherLines) {
  Inspectors job({1, 1, 1});
  job.submit({0}, "grad");
  job.pass(21);
  ASSERT_THAT(job.node(2).warnings, SizeIs(2));
  job.submit({1}, "grad");
  job.pass(10);
  EXPECT_THAT(job.stall(2).missing, ElementsAre(Rank{2}));
  EXPECT_THAT(job.node(2).warnings, SizeIs(2));
}

TEST(Stall, CostsAFewMessagesACheckTimeNotATick) {
  Inspectors job({1, 1, 1});
  job.submit({0, 1}, "grad");
  job.pass(10);
  job.sent = 0;
  job.pass(10);
  EXPECT_EQ(job.sent, 2 * 3) << "question, answer and notice, with two others";
}

TEST(Stall, ThatEndsIsOver) {
  Inspectors job({1, 1});
  job.submit({0}, "grad");
  job.pass(11);
  job.submit({1}, "grad");
  job.complete("grad");
  job.pass(2);
  for (int node = 0; node < 2; ++node) {
    EXPECT_THAT(job.stalled(node), IsEmpty());
    EXPECT_THAT(job.node(node).good_news,
                ElementsAre("tensor \"grad\" waits no longer, after 12 s"));
    EXPECT_FALSE(job.node(node).inspector->wakes_at());
  }
}

TEST(Stall, TheSameNameMayStallAgain) {
  Inspectors job({1, 1});
  job.submit({0}, "grad");
  job.pass(11);
  job.complete("grad");
  job.submit({0}, "grad");
  job.pass(9);
  EXPECT_THAT(job.stalled(0), IsEmpty());
  job.pass(1);
  EXPECT_THAT(job.stalled(0), ElementsAre("grad"));
  EXPECT_THAT(job.node(0).warnings, SizeIs(2));
}

TEST(Stall, AnIdleJobWaitsForNoTime) {
  Inspectors job({1, 1});
  job.submit_everywhere("grad");
  job.complete("grad");
  job.pass(100);
  EXPECT_EQ(job.node(0).ticks + job.node(1).ticks, 0);
}

TEST(Stall, WhatWaitsForTheNetworkIsNoStall) {
  Inspectors job({1, 1});
  job.submit_everywhere("large");
  job.pass(30);
  EXPECT_THAT(job.stalled(0), IsEmpty());
  EXPECT_THAT(job.node(0).warnings, IsEmpty());
}

TEST(Stall, WithoutACheckTimeNothingIsLookedAt) {
  Inspectors job({1, 1}, {0, 5'000});
  job.submit({0}, "grad");
  job.pass(100);
  EXPECT_EQ(job.node(0).ticks, 0);
  EXPECT_THAT(job.stalled(0), IsEmpty());
}

TEST(Stall, AnEpochsEndForgetsIt) {
  Inspectors job({1, 1});
  job.submit({0}, "grad");
  job.pass(10);
  for (int node = 0; node < 2; ++node) {
    job.node(node).table->remove_all();
    job.node(node).inspector->reset();
    EXPECT_EQ(job.node(node).inspector->count(), 0u);
    EXPECT_FALSE(job.node(node).inspector->wakes_at());
  }
}

// --- Shutdown ------------------------------------------------------------------------------------

TEST(StallShutdown, NamesTheTensorAndTheMissingRank) {
  Inspectors job({1, 1}, {10'000, 30'000});
  job.submit({0}, "grad");
  job.pass(29);
  EXPECT_TRUE(job.node(0).failure.is_ok());
  job.pass(1);
  const Status& failure = job.node(0).failure;
  EXPECT_EQ(failure.code(), Code::kShutDown);
  EXPECT_EQ(
      failure.message(),
      "tensor \"grad\" was submitted 30 s ago by rank 0, and not by rank 1 on node n1 (it has "
      "not submitted any tensor); no stall may be longer than 30 s "
      "(RUEDA_STALL_SHUTDOWN_TIME_SECONDS)");
  EXPECT_EQ(failure.origin(), (Origin{"n1", Rank{1}}));
}

TEST(StallShutdown, MayComeBeforeTheFirstCheck) {
  Inspectors job({1, 1}, {60'000, 5'000});
  job.submit({0}, "grad");
  job.pass(4);
  EXPECT_TRUE(job.node(0).failure.is_ok());
  job.pass(2);
  EXPECT_FALSE(job.node(0).failure.is_ok());
}

// The last answers are up to a check time old, so the nodes are asked again first.
TEST(StallShutdown, ARankThatCameMeanwhileIsNotBlamed) {
  Inspectors job({1, 1}, {10'000, 35'000});
  job.submit({0}, "grad");
  job.pass(34);
  job.submit({1}, "grad");
  job.pass(10);
  EXPECT_TRUE(job.node(0).failure.is_ok());
  EXPECT_THAT(job.stalled(0), IsEmpty());
}

// --- Bounds and broken peers ---------------------------------------------------------------------

TEST(Stall, ReportsAndLinesAreBounded) {
  Inspectors job({1, 1});
  for (int i = 0; i < 100; ++i) job.submit({1}, "t" + std::to_string(i));
  job.pass(10);
  EXPECT_EQ(job.largest, kMaxStalls);
  EXPECT_EQ(job.node(0).inspector->count(), kMaxStalls);
  ASSERT_THAT(job.node(0).warnings, SizeIs(1));
  EXPECT_THAT(job.node(0).warnings[0],
              HasSubstr("; and so with 60 more tensors, which ruedactl stalls lists"));
  // Others take the places of the oldest stalls, which end.
  for (int i = 0; i < 90; ++i) job.complete("t" + std::to_string(i));
  job.pass(1);
  EXPECT_THAT(job.stalled(0), SizeIs(10));
  EXPECT_THAT(job.node(0).good_news.at(0), HasSubstr("more wait no longer"));
}

TEST(Stall, RanksBeyondTheBoundAreCounted) {
  Inspectors job({1, 60, 60});
  job.submit({0}, "grad");
  job.pass(10);
  const Stall stall = job.stall(2);
  EXPECT_THAT(stall.missing, SizeIs(kMaxStallRanks));
  EXPECT_EQ(stall.more_missing, 120 - static_cast<int>(kMaxStallRanks));
  EXPECT_EQ(job.node(1).inspector->stalls(0).ranks.size(), kMaxStallRanks);
  EXPECT_THAT(job.sentence(0), HasSubstr(" and 116 more"));
}

// A stall that is reported while the nodes are being asked is asked about next.
TEST(Stall, AReportDuringARoundIsNotForgotten) {
  Inspectors job({1, 1, 1});
  job.submit({1}, "first");
  job.hold();
  job.pass(10);
  job.submit({2}, "second");
  job.release();
  job.hold();
  job.pass(10);
  job.release();
  EXPECT_THAT(job.stalled(2), ElementsAre("first", "second"));
}

TEST(Stall, WhoSpeaksOutOfTurnBreaksTheProtocol) {
  Inspectors job({1, 1, 1});
  EXPECT_EQ(job.tell(1, 0, StallReport{}).message(),
            "node n0 sent a report of stalls to node n1, which has no use for it");
  EXPECT_FALSE(job.tell(1, 2, StallAnswer{}).is_ok());
  EXPECT_FALSE(job.tell(0, 1, StallQuery{}).is_ok());
  EXPECT_FALSE(job.tell(0, 1, StallNotice{}).is_ok());
  Stall stall;
  stall.missing = {Rank{3}};
  EXPECT_EQ(job.tell(1, 0, StallNotice{{stall}, {}}).message(),
            "the coordinator on node n0 sent word on stalls of ranks that the job does not have");
}

TEST(Stall, AnswersAreCheckedAndLateOnesDropped) {
  Inspectors job({1, 1});
  job.submit({0}, "grad");
  job.hold();
  job.pass(10);
  EXPECT_TRUE(job.tell(0, 1, StallAnswer{77, {}, {}}).is_ok()) << "of another round";
  EXPECT_THAT(job.tell(0, 1, StallAnswer{1, {}, {}}).message(),
              StartsWith("node n1 was asked about 1 stalled tensors and answered on 0"));
  EXPECT_THAT(job.tell(0, 1, StallAnswer{1, {{{Rank{0}}, {}}}, {}}).message(),
              HasSubstr("spoke for ranks of another node"));
  EXPECT_FALSE(job.tell(0, 1, StallAnswer{1, {{{Rank{-1}}, {}}}, {}}).is_ok());
  EXPECT_FALSE(job.tell(0, 1, StallAnswer{1, {{{}, {{Rank{9}, "x"}}}}, {}}).is_ok());
  EXPECT_FALSE(job.tell(0, 1, StallAnswer{1, {{}}, {RankActivity{}}}).is_ok());
  job.release();
  EXPECT_THAT(job.stalled(1), ElementsAre("grad"));
}

// --- Words ---------------------------------------------------------------------------------------

TEST(StallText, RanksAreRanges) {
  const auto text = [](std::vector<int> numbers) {
    std::vector<Rank> ranks;
    for (int number : numbers) ranks.push_back(Rank{number});
    return describe_ranks(ranks);
  };
  EXPECT_EQ(text({}), "");
  EXPECT_EQ(text({7}), "7");
  EXPECT_EQ(text({0, 1, 2, 5, 7, 8}), "0-2, 5, 7-8");
}

TEST(StallText, WhatIsNoNewsIsNotSaid) {
  const Layout layout = layout_of({1, 1});
  Stall stall;
  stall.tensor = "grad";
  stall.submitted = {Rank{0}};
  stall.missing = {Rank{1}};
  EXPECT_EQ(describe_news(0, layout, {{stall}, {}}), "");
  stall.is_news = true;
  EXPECT_THAT(describe_news(0, layout, {{stall}, {}}), Not(HasSubstr("(")))
      << "nothing is known of the rank";
}

}  // namespace
}  // namespace rueda::core
