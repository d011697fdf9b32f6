// Tests elastic jobs in the engine: who dies, who stays, who waits, and who is told.
#include <boost/asio/post.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/base/rank_token.h"
#include "daemon/engine/ports/proof.h"
#include "tests/engine/cluster.h"

namespace rueda::engine {
namespace {

using testing::Cluster;
using testing::ClusterOptions;
using testing::FakeSession;
using ::testing::HasSubstr;

class ElasticJobTest : public ::testing::Test {
 protected:
  explicit ElasticJobTest(ClusterOptions options = {{3}}) : cluster_(std::move(options)) {}

  JobSpec spec(int min_ranks, TicksMs timeout_ms = 600'000) {
    JobSpec spec = cluster_.spec("job", 0);
    spec.elastic = ElasticSpec{.min_ranks = min_ranks, .timeout_ms = timeout_ms};
    return spec;
  }
  void register_job(int min_ranks, TicksMs timeout_ms = 600'000) {
    JobListener listener;
    listener.on_started = [this](Epoch epoch) { started_.push_back(epoch.value); };
    listener.on_failed = [this](const Status& status) { failures_.push_back(status); };
    ASSERT_TRUE(cluster_.register_on(0, spec(min_ranks, timeout_ms), listener).is_ok());
  }
  FakeSession* attach(int slot) { return cluster_.attach("job", Rank{slot}); }
  // The process hears that its generation is over, says goodbye, and attaches again.
  FakeSession* attach_again(FakeSession*& session, int slot) {
    EXPECT_TRUE(cluster_.run_until([&] { return !session->failures.empty(); }));
    cluster_.detach(*session);
    return session = attach(slot);
  }
  bool wait_for(std::initializer_list<FakeSession*> sessions) {
    return cluster_.run_until([&] {
      return std::all_of(sessions.begin(), sessions.end(),
                         [](const FakeSession* session) { return !session->places.empty(); });
    });
  }
  static void expect_place(const FakeSession* session, int rank, int size, uint32_t epoch) {
    ASSERT_EQ(session->places.size(), 1u);
    EXPECT_EQ(session->places[0].rank, Rank{rank});
    EXPECT_EQ(session->places[0].local_rank, LocalRank{rank});
    EXPECT_EQ(session->places[0].world_size, size);
    EXPECT_EQ(session->places[0].local_size, size);
    EXPECT_EQ(session->places[0].epoch, Epoch{epoch});
  }
  void expect_sum(std::initializer_list<FakeSession*> sessions, float wanted) {
    std::vector<Cluster::Tensor*> tensors;
    core::TensorDescriptor sum;
    sum.op = ReduceOp::kSum;
    for (FakeSession* const session : sessions) {
      tensors.push_back(&cluster_.submit(*session, "t", 10, 1, sum));
    }
    for (FakeSession* const session : sessions) {
      ASSERT_TRUE(cluster_.run_until([&] { return !session->completions.empty(); }));
      EXPECT_TRUE(session->completions.back().status.is_ok());
    }
    for (const Cluster::Tensor* const tensor : tensors) EXPECT_EQ(tensor->output[9], wanted);
  }

  Cluster cluster_;
  std::vector<uint32_t> started_;
  std::vector<Status> failures_;
};

TEST_F(ElasticJobTest, SurvivorsGoOnAndTheDeadOnesSuccessorIsTakenIn) {
  register_job(2);
  FakeSession* a = attach(0);
  FakeSession* b = attach(1);
  FakeSession* c = attach(2);
  ASSERT_TRUE(wait_for({a, b, c}));
  expect_place(c, 2, 3, 1);
  cluster_.lose(*b, "was killed");
  attach_again(a, 0);
  attach_again(c, 2);
  ASSERT_TRUE(wait_for({a, c}));
  expect_place(a, 0, 2, 2);
  expect_place(c, 1, 2, 2);
  expect_sum({a, c}, 2);
  b = attach(1);
  ASSERT_NE(b, nullptr);
  EXPECT_TRUE(b->places.empty()) << "it waits";
  EXPECT_EQ(a->host_changes, 1);
  EXPECT_EQ(c->host_changes, 1);
  EXPECT_EQ(b->host_changes, 0);
  // All leave in good order; the last to come are the first who were there.
  cluster_.detach(*a);
  a = attach(0);
  cluster_.detach(*c);
  c = attach(2);
  ASSERT_TRUE(wait_for({a, b, c}));
  expect_place(a, 0, 3, 3);
  expect_place(c, 1, 3, 3);
  expect_place(b, 2, 3, 3);
  expect_sum({a, b, c}, 3);
  EXPECT_EQ(started_, (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_TRUE(failures_.empty()) << "the job goes on";
}

TEST_F(ElasticJobTest, WhatBecameOfItIsTold) {
  register_job(1);
  FakeSession* a = attach(0);
  FakeSession* b = attach(1);
  FakeSession* c = attach(2);
  ASSERT_TRUE(wait_for({a, b, c}));
  const auto metrics = cluster_.node(0).metrics->job("job");
  EXPECT_EQ(metrics->epoch.Value(), 1);
  cluster_.lose(*b, "was killed");
  EXPECT_TRUE(cluster_.run_until([&] { return metrics->awaited_ranks.Value() == 2; }));
  attach_again(a, 0);
  attach_again(c, 2);
  ASSERT_TRUE(wait_for({a, c}));
  cluster_.detach(*a);
  cluster_.detach(*c);
  a = attach(0);
  cluster_.engine(0).report_rank_ended(cluster_.handle(0, "job"), Rank{2});
  ASSERT_TRUE(wait_for({a}));
  EXPECT_EQ(metrics->epoch.Value(), 3);
  EXPECT_EQ(metrics->awaited_ranks.Value(), 0);
  EXPECT_EQ(metrics->generations.rank_lost->Value(), 1);
  EXPECT_EQ(metrics->generations.left->Value(), 1);
  EXPECT_EQ(metrics->generations.node_lost->Value() + metrics->generations.other->Value(), 0);
  EXPECT_EQ(metrics->recovery_seconds.Collect().histogram.sample_count, 2u);
  const JobSnapshot snapshot = cluster_.snapshot(0, "job");
  ASSERT_EQ(snapshot.generations.size(), 3u);
  EXPECT_EQ(snapshot.generations[0].ranks, 3);
  EXPECT_EQ(snapshot.generations[0].reason, "");
  EXPECT_EQ(snapshot.generations[1].ranks, 2);
  EXPECT_THAT(snapshot.generations[1].reason, HasSubstr("rank 1 was killed"));
  EXPECT_THAT(snapshot.generations[2].reason, HasSubstr("all ranks have left"));
  EXPECT_GT(snapshot.generations[2].began_ms, 1'700'000'000'000);
}

TEST_F(ElasticJobTest, ADeathWhileTheNextGenerationFormsIsNotWaitedFor) {
  register_job(1);
  FakeSession* a = attach(0);
  FakeSession* b = attach(1);
  FakeSession* c = attach(2);
  ASSERT_TRUE(wait_for({a, b, c}));
  cluster_.lose(*b, "was killed");
  attach_again(a, 0);
  attach_again(c, 2);
  ASSERT_TRUE(wait_for({a, c}));
  cluster_.lose(*c, "was killed");
  attach_again(a, 0);
  ASSERT_TRUE(wait_for({a}));
  expect_place(a, 0, 1, 3);
  // One that waits and goes has no rank.
  b = attach(1);
  cluster_.lose(*b, "was killed");
  cluster_.detach(*a);
  a = attach(0);
  ASSERT_TRUE(wait_for({a}));
  expect_place(a, 0, 1, 4);
}

TEST_F(ElasticJobTest, WhoseProcessHasEndedIsNotWaitedFor) {
  register_job(1);
  FakeSession* a = attach(0);
  FakeSession* b = attach(1);
  FakeSession* c = attach(2);
  ASSERT_TRUE(wait_for({a, b, c}));
  for (FakeSession* const session : {a, b, c}) cluster_.detach(*session);
  a = attach(0);
  cluster_.settle();
  EXPECT_TRUE(a->places.empty()) << "the others may come back";
  cluster_.engine(0).report_rank_ended(cluster_.handle(0, "job"), Rank{1});
  cluster_.engine(0).report_rank_failed(cluster_.handle(0, "job"), Rank{2}, "it was killed");
  ASSERT_TRUE(wait_for({a}));
  expect_place(a, 0, 1, 2);
}

TEST_F(ElasticJobTest, AProcessThatNeverAttachedMayDie) {
  register_job(1);
  FakeSession* a = attach(0);
  FakeSession* c = attach(2);
  cluster_.engine(0).report_rank_failed(cluster_.handle(0, "job"), Rank{1}, "it was killed");
  attach_again(a, 0);
  attach_again(c, 2);
  ASSERT_TRUE(wait_for({a, c}));
  expect_place(c, 1, 2, 2);
}

TEST_F(ElasticJobTest, WhoDoesNotComeBackIsToldToTheLauncher) {
  std::vector<std::pair<int, std::string>> silent;
  JobListener listener;
  listener.on_silent = [&](Rank rank, const std::string& text) {
    silent.emplace_back(rank.value, text);
  };
  JobSpec watched = spec(1);
  watched.elastic->rank_timeout_ms = 20;
  ASSERT_TRUE(cluster_.register_on(0, watched, listener).is_ok());
  FakeSession* a = attach(0);
  FakeSession* b = attach(1);
  FakeSession* c = attach(2);
  ASSERT_TRUE(wait_for({a, b, c}));
  cluster_.lose(*b, "was killed");
  attach_again(a, 0);
  ASSERT_TRUE(cluster_.run_until([&] { return !silent.empty(); }));
  ASSERT_EQ(silent.size(), 1u);
  EXPECT_EQ(silent[0].first, 2);
  EXPECT_THAT(silent[0].second, HasSubstr("slot 2 has not come back for 20 ms"));
}

// A process that had said goodbye was killed for taking longer than that to save its model and end.
TEST_F(ElasticJobTest, WhoHasLeftInGoodOrderIsNotSilent) {
  std::vector<int> silent;
  JobListener listener;
  listener.on_silent = [&](Rank rank, const std::string&) { silent.push_back(rank.value); };
  JobSpec watched = spec(1);
  watched.elastic->rank_timeout_ms = 20;
  ASSERT_TRUE(cluster_.register_on(0, watched, listener).is_ok());
  FakeSession* a = attach(0);
  FakeSession* b = attach(1);
  FakeSession* c = attach(2);
  ASSERT_TRUE(wait_for({a, b, c}));
  for (FakeSession* const session : {a, b, c}) cluster_.detach(*session);
  const auto metrics = cluster_.node(0).metrics->job("job");
  ASSERT_TRUE(cluster_.run_until([&] { return metrics->generations.left->Value() == 1; }));
  EXPECT_FALSE(cluster_.run_until([&] { return !silent.empty(); }, 100));
}

// It was killed in the generation after, in which it took part.
TEST_F(ElasticJobTest, WhoStoodStillAndHasComeBackIsNotToldOf) {
  std::vector<int> silent;
  JobListener listener;
  listener.on_silent = [&](Rank rank, const std::string&) { silent.push_back(rank.value); };
  JobSpec watched = spec(1);
  watched.elastic->rank_timeout_ms = 500;
  watched.stall_check_ms = 20;
  watched.stall_shutdown_ms = 40;
  ASSERT_TRUE(cluster_.register_on(0, watched, listener).is_ok());
  for (const bool comes_back : {true, false}) {
    FakeSession* a = attach(0);
    FakeSession* b = attach(1);
    FakeSession* c = attach(2);
    ASSERT_TRUE(wait_for({a, b, c}));
    for (FakeSession* const session : {a, c}) cluster_.submit(*session, "t", 10, 1);
    ASSERT_TRUE(cluster_.run_until([&] { return !b->failures.empty(); }));
    if (comes_back) {
      attach_again(b, 1);
    }
    attach_again(a, 0);
    attach_again(c, 2);
    if (comes_back) {
      ASSERT_TRUE(wait_for({a, b, c}));
      EXPECT_FALSE(cluster_.run_until([&] { return !silent.empty(); }, 100));
      for (FakeSession* const session : {a, b, c}) cluster_.detach(*session);
    } else {
      ASSERT_TRUE(cluster_.run_until([&] { return !silent.empty(); }));
      EXPECT_EQ(silent, std::vector<int>{1});
    }
  }
}

TEST_F(ElasticJobTest, ASlotHasOneProcess) {
  register_job(2);
  ASSERT_NE(attach(0), nullptr);
  EXPECT_EQ(attach(0), nullptr);
  EXPECT_EQ(cluster_.refusal.code(), Code::kUnavailable) << "it may be the goodbye that is late";
  session::Attach second = cluster_.attach_of("job", Rank{0});
  ++second.peer.pid;
  FakeSession other(second);
  EXPECT_EQ(
      cluster_.engine(0).on_attach(other),
      Status(Code::kInvalidArgument, "slot 0 of job job has a process already; start each once"));
  session::Attach wrong = cluster_.attach_of("job", Rank{0});
  wrong.local_rank = LocalRank{3};
  cluster_.give_token(wrong);
  FakeSession fourth(wrong);
  EXPECT_THAT(cluster_.engine(0).on_attach(fourth).message(), HasSubstr("slots 0 to 2"));
}

TEST_F(ElasticJobTest, ASlotsTokenIsOfThatSlotOnThatNode) {
  register_job(2);
  session::Attach attach = cluster_.attach_of("job", Rank{0});
  const std::string own = attach.token;
  for (const std::string& wrong :
       {slot_token(Cluster::token(), "job", "n0", LocalRank{1}),
        slot_token(Cluster::token(), "job", "n1", LocalRank{0}),
        rank_token(Cluster::token(), "job", Rank{0}), Cluster::token()}) {
    attach.token = wrong;
    FakeSession session(attach);
    const Status status = cluster_.engine(0).on_attach(session);
    EXPECT_EQ(status.code(), Code::kPermission);
    EXPECT_THAT(status.message(), HasSubstr("wrong token for slot 0 of job job"));
  }
  attach.token = own;
  attach.rank = Rank{2};  // It says nothing in an elastic job.
  FakeSession session(attach);
  EXPECT_TRUE(cluster_.engine(0).on_attach(session).is_ok());
  cluster_.engine(0).on_detached(session);
}

TEST_F(ElasticJobTest, ASlotIsFreeOnceItsProcessHasHungUp) {
  register_job(2);
  FakeSession* a = attach(0);
  cluster_.hang_up(*a, "was killed");
  EXPECT_NE(attach(0), nullptr);
}

// Three of four nodes of a network that had been cut went on for ever, and the fourth waited: it
// had asked while they were between two generations, and nobody was told.
TEST_F(ElasticJobTest, WhoComesBeforeADecidedGenerationHasBegunIsTakenIn) {
  std::vector<std::function<void()>> held;
  bool holds = false;
  JobListener listener;
  listener.keep_votes = [&](const std::string&, std::function<void()> kept) {
    if (!holds) return kept();
    held.push_back(std::move(kept));
  };
  ASSERT_TRUE(cluster_.register_on(0, spec(1), listener).is_ok());
  FakeSession* a = attach(0);
  FakeSession* b = attach(1);
  FakeSession* c = attach(2);
  ASSERT_TRUE(wait_for({a, b, c}));
  cluster_.lose(*c, "was killed");
  cluster_.settle();
  holds = true;
  attach_again(a, 0);
  attach_again(b, 1);
  c = attach(2);
  cluster_.settle();
  EXPECT_TRUE(a->places.empty()) << "the launcher has not kept the decision yet";
  holds = false;
  for (std::function<void()>& kept : std::exchange(held, {})) kept();
  bool is_early = false;  // The library hears nothing before it is told that the generation begins.
  ASSERT_TRUE(cluster_.run_until([&] {
    is_early |= a->places.empty() && a->host_changes > 0;
    return a->host_changes > 0 && b->host_changes > 0;
  }));
  EXPECT_FALSE(is_early);
  expect_place(a, 0, 2, 2);
  EXPECT_TRUE(c->places.empty());
}

TEST_F(ElasticJobTest, ASlotThatIsNotWantedLeavesWithTheGenerationAndMayComeBack) {
  std::vector<int> unneeded;
  JobListener listener;
  listener.on_unneeded = [&](Rank slot) { unneeded.push_back(slot.value); };
  JobSpec larger = spec(1);
  larger.elastic->max_ranks = 4;
  ASSERT_TRUE(cluster_.register_on(0, larger, listener).is_ok());
  FakeSession* a = attach(0);
  FakeSession* b = attach(1);
  FakeSession* c = attach(2);
  ASSERT_TRUE(wait_for({a, b, c}));
  cluster_.engine(0).want_slots(cluster_.handle(0, "job"), 2);
  for (const FakeSession* const session : {a, b, c}) EXPECT_EQ(session->host_changes, 1);
  EXPECT_TRUE(unneeded.empty()) << "it is in the generation that runs";
  expect_sum({a, b, c}, 3);
  for (FakeSession* const session : {a, b, c}) cluster_.detach(*session);
  c = attach(2);
  EXPECT_EQ(unneeded, std::vector<int>{2});
  a = attach(0);
  b = attach(1);
  ASSERT_TRUE(wait_for({a, b}));
  expect_place(a, 0, 2, 2);
  EXPECT_TRUE(c->places.empty());
  // It is wanted again before its process has ended, and so is one more.
  cluster_.engine(0).want_slots(cluster_.handle(0, "job"), 4);
  session::Attach fourth = cluster_.attach_of("job", Rank{0});
  fourth.local_rank = LocalRank{3};
  cluster_.give_token(fourth);
  FakeSession d(fourth);
  ASSERT_TRUE(cluster_.engine(0).on_attach(d).is_ok());
  EXPECT_GT(a->host_changes, 0);
  cluster_.detach(*a);
  cluster_.detach(*b);
  a = attach(0);
  b = attach(1);
  ASSERT_TRUE(wait_for({a, b, c, &d}));
  expect_place(&d, 3, 4, 3);
  cluster_.engine(0).on_detached(d);
}

TEST_F(ElasticJobTest, WithTooFewTheJobEndsWhenItsTimeIsOver) {
  register_job(3, 50);
  FakeSession* a = attach(0);
  FakeSession* b = attach(1);
  FakeSession* c = attach(2);
  ASSERT_TRUE(wait_for({a, b, c}));
  cluster_.lose(*b, "was killed");
  attach_again(a, 0);
  attach_again(c, 2);
  ASSERT_TRUE(cluster_.run_until([&] { return !failures_.empty(); }));
  EXPECT_THAT(failures_[0].message(), HasSubstr("at least 3 must be there"));
  EXPECT_EQ(a->failures.size(), 1u);
  EXPECT_EQ(c->failures.size(), 1u);
}

TEST_F(ElasticJobTest, WhenItsLauncherGoesTheJobIsOverAndItsNameIsFree) {
  register_job(3);
  FakeSession* a = attach(0);
  FakeSession* b = attach(1);
  FakeSession* c = attach(2);
  ASSERT_TRUE(wait_for({a, b, c}));
  cluster_.lose(*b, "was killed");
  attach_again(a, 0);
  EXPECT_TRUE(cluster_.run_until([&] { return !c->failures.empty(); }));
  EXPECT_TRUE(cluster_.run_until([&] { return cluster_.snapshot(0, "job").state == "forming"; }));
  EXPECT_EQ(cluster_.register_on(0, spec(1)).code(), Code::kInvalidArgument);
  cluster_.engine(0).close_job(cluster_.handle(0, "job"));
  EXPECT_TRUE(cluster_.run_until([&] { return cluster_.engine(0).jobs().empty(); }));
  EXPECT_EQ(a->failures.size(), 1u) << "it waited";
  cluster_.detach(*a);
  cluster_.lose(*c, "was killed");
  register_job(1);
  EXPECT_EQ(cluster_.start("job").size(), 3u);
}

TEST_F(ElasticJobTest, WhatCannotBeElasticIsRefused) {
  EXPECT_THAT(cluster_.register_on(0, spec(4)).message(), HasSubstr("of which at least 4"));
  EXPECT_THAT(cluster_.register_on(0, spec(0)).message(), HasSubstr("of which at least 0"));
  JobSpec wide = spec(1);
  wide.elastic->max_ranks = 2;
  EXPECT_THAT(cluster_.register_on(0, wide).message(),
              HasSubstr("begins with 3 ranks, and may have at most 2"));
  Cluster two({{1, 1}});
  JobSpec spread = two.spec("job", 0);
  spread.elastic = ElasticSpec{.min_ranks = 1};
  EXPECT_THAT(two.register_on(0, spread).message(), HasSubstr("incarnations of 0"));
}

// --- Several nodes -------------------------------------------------------------------------------

class ElasticNodesTest : public ElasticJobTest {
 protected:
  explicit ElasticNodesTest(std::vector<int> ranks = {1, 1, 1}, TicksMs timeout_ms = 1'000)
      : ElasticJobTest({.ranks_per_node = std::move(ranks), .timeout_ms = timeout_ms}) {}

  // Registers the job on the node, by a launcher that keeps what it is asked to keep.
  Status register_node(int node, int min_ranks, std::function<void(ElasticSpec&)> change = {}) {
    JobSpec made = cluster_.spec("job", node);
    made.elastic = ElasticSpec{.min_ranks = min_ranks};
    made.elastic->incarnations.assign(static_cast<size_t>(cluster_.size()), 1);
    if (change) change(*made.elastic);
    JobListener listener;
    listener.on_failed = [this](const Status& status) { failures_.push_back(status); };
    listener.on_unneeded = [this, node](Rank slot) { unneeded_.emplace_back(node, slot.value); };
    listener.keep_votes = [this, node](std::string votes, const std::function<void()>& kept) {
      kept_[node] = std::move(votes);
      kept();
    };
    return cluster_.register_on(node, std::move(made), std::move(listener));
  }
  std::vector<FakeSession*> start_all(int min_ranks) {
    for (int node = 0; node < cluster_.size(); ++node) {
      EXPECT_TRUE(register_node(node, min_ranks).is_ok());
    }
    return cluster_.start("job");
  }
  void expect_place(const FakeSession* session, int rank, int size, uint32_t epoch) {
    ASSERT_EQ(session->places.size(), 1u);
    EXPECT_EQ(session->places[0].rank, Rank{rank});
    EXPECT_EQ(session->places[0].world_size, size);
    EXPECT_EQ(session->places[0].epoch, Epoch{epoch});
  }
  // Has node 1 tell the coordinator that the generation is over before the coordinator's own runner
  // has come to tell of it.
  void say_it_is_over_first() {
    core::GenerationMessage forms;
    forms.from = {"n1", 1};
    forms.from_address = "control:2001";
    forms.epoch = Epoch{2};
    forms.body = core::Present{1, {{"n1", 1}, "control:2001", {}}, true, 1, "it is over", false};
    const std::string body = cluster_.router().plane(1).encode(forms);
    cluster_.router().filter = [this, packet = testing::packet_of(Cluster::token(), 1, 0, body)](
                                   int from, int, const Envelope& envelope) {
      if (from == 0 && std::holds_alternative<core::Fail>(envelope.message.body)) {
        boost::asio::post(cluster_.loop(),
                          [this, packet] { cluster_.engine(0).on_generation(LinkId{2}, packet); });
      }
      return true;
    };
  }
  std::map<int, std::string> kept_;
  std::vector<std::pair<int, int>> unneeded_;
};

TEST_F(ElasticNodesTest, TheOthersGoOnWithoutARankThatDiesAndTakeItsSuccessorIn) {
  std::vector<FakeSession*> all = start_all(2);
  ASSERT_EQ(all.size(), 3u);
  cluster_.lose(*all[0], "was killed");
  attach_again(all[1], 1);
  attach_again(all[2], 2);
  ASSERT_TRUE(wait_for({all[1], all[2]}));
  expect_place(all[1], 0, 2, 2);
  expect_place(all[2], 1, 2, 2);
  expect_sum({all[1], all[2]}, 2);
  all[0] = attach(0);
  ASSERT_TRUE(cluster_.run_until([&] { return all[1]->host_changes > 0; }));
  cluster_.detach(*all[1]);
  cluster_.detach(*all[2]);
  all[1] = attach(1);
  all[2] = attach(2);
  ASSERT_TRUE(wait_for({all[0], all[1], all[2]}));
  expect_place(all[1], 0, 3, 3);
  expect_place(all[0], 2, 3, 3);
  expect_sum({all[0], all[1], all[2]}, 3);
  EXPECT_TRUE(failures_.empty());
}

TEST_F(ElasticNodesTest, TheCoordinatorsDaemonIsAsMortalAsTheOthers) {
  std::vector<FakeSession*> all = start_all(2);
  ASSERT_EQ(all.size(), 3u);
  cluster_.kill_daemon(0);
  attach_again(all[1], 1);
  attach_again(all[2], 2);
  ASSERT_TRUE(wait_for({all[1], all[2]}));
  expect_place(all[1], 0, 2, 2);
  expect_sum({all[1], all[2]}, 2);
}

TEST_F(ElasticNodesTest, ADaemonThatFollowsAnotherIsTheSameMemberByWhatItsLauncherKept) {
  std::vector<FakeSession*> all = start_all(3);
  ASSERT_EQ(all.size(), 3u);
  cluster_.kill_daemon(1);
  cluster_.start_daemon(1);
  ASSERT_TRUE(register_node(1, 3, [&](ElasticSpec& elastic) { elastic.votes = kept_[1]; }).is_ok());
  attach_again(all[0], 0);
  attach_again(all[2], 2);
  all[1] = attach(1);
  ASSERT_TRUE(wait_for({all[0], all[1], all[2]}));
  expect_place(all[0], 0, 3, 2);
  expect_place(all[1], 1, 3, 2);  // It has state, and so its old place.
  expect_sum({all[0], all[1], all[2]}, 3);
}

TEST_F(ElasticNodesTest, WhatItsLauncherKeptMustBeReadable) {
  const Status refused =
      register_node(1, 1, [](ElasticSpec& elastic) { elastic.votes = "not a number"; });
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_TRUE(register_node(1, 1).is_ok()) << "nothing is left of the first";
}

TEST_F(ElasticNodesTest, NothingIsSentBeforeTheLauncherHasKeptWhatItFollowsFrom) {
  for (int node = 0; node < 2; ++node) ASSERT_TRUE(register_node(node, 2).is_ok());
  std::vector<std::function<void()>> asked;
  JobSpec made = cluster_.spec("job", 2);
  made.elastic = ElasticSpec{.min_ranks = 2, .incarnations = {1, 1, 1}};
  JobListener listener;
  listener.keep_votes = [&](const std::string&, std::function<void()> kept) {
    asked.push_back(std::move(kept));
  };
  ASSERT_TRUE(cluster_.register_on(2, std::move(made), std::move(listener)).is_ok());
  std::vector<FakeSession*> all = cluster_.start("job");
  ASSERT_EQ(all.size(), 3u);
  // Both others are needed for a majority once node 0 is gone.
  cluster_.kill_daemon(0);
  attach_again(all[1], 1);
  attach_again(all[2], 2);
  EXPECT_FALSE(cluster_.run_until([&] { return !all[1]->places.empty(); }, 500));
  while (all[1]->places.empty() || all[2]->places.empty()) {
    const auto given = std::exchange(asked, {});
    for (const auto& kept : given) kept();
    ASSERT_TRUE(cluster_.run_until(
        [&] { return !asked.empty() || (!all[1]->places.empty() && !all[2]->places.empty()); }));
  }
  expect_sum({all[1], all[2]}, 2);
}

// It was formed anew again and again.
TEST_F(ElasticNodesTest, NodesThatWereToldDifferentThingsEndTheJobWithASentence) {
  std::vector<Status> failures;
  JobListener listener;
  listener.on_failed = [&](const Status& why) { failures.push_back(why); };
  for (int node = 0; node < 3; ++node) {
    JobSpec told = cluster_.spec("job", node);
    told.elastic = ElasticSpec{.min_ranks = node == 2 ? 1 : 2, .incarnations = {1, 1, 1}};
    ASSERT_TRUE(cluster_.register_on(node, std::move(told), listener).is_ok());
  }
  const std::vector<FakeSession*> all{attach(0), attach(1), attach(2)};
  ASSERT_TRUE(cluster_.run_until([&] { return failures.size() == 3; }));
  EXPECT_THAT(failures[0].message(), HasSubstr("--min-np 2 on node n0 and 1 on node n2"));
  for (const FakeSession* const session : all) EXPECT_EQ(session->failures.size(), 1u);
}

TEST_F(ElasticNodesTest, ANodeThatComesLateIsTakenIn) {
  for (int node = 0; node < 2; ++node) {
    JobSpec first = cluster_.spec("job", node);
    first.layout =
        core::Layout::make({{"n0", "control:2000", {Rank{0}}}, {"n1", "control:2001", {Rank{1}}}})
            .value();
    first.elastic = ElasticSpec{.min_ranks = 1, .max_ranks = 3, .incarnations = {1, 1}};
    ASSERT_TRUE(cluster_.register_on(node, std::move(first)).is_ok());
  }
  std::vector<FakeSession*> all{attach(0), attach(1)};
  ASSERT_TRUE(wait_for({all[0], all[1]}));
  JobSpec late = cluster_.spec("job", 2);
  late.layout = core::Layout::make({{"n2", "control:2002", {Rank{0}}}}).value();
  late.self = NodeIndex{0};
  late.elastic = ElasticSpec{
      .min_ranks = 1, .max_ranks = 3, .incarnations = {7}, .contacts = {"control:2001"}};
  ASSERT_TRUE(cluster_.register_on(2, late).is_ok());
  FakeSession* c = attach(2);
  ASSERT_NE(c, nullptr) << cluster_.refusal.message();
  ASSERT_TRUE(cluster_.run_until([&] { return all[0]->host_changes > 0; }));
  for (const int slot : {0, 1}) {
    cluster_.detach(*all[static_cast<size_t>(slot)]);
    all[static_cast<size_t>(slot)] = attach(slot);
  }
  ASSERT_TRUE(wait_for({all[0], all[1], c}));
  expect_place(c, 2, 3, 2);
  expect_sum({all[0], all[1], c}, 3);
}

TEST_F(ElasticNodesTest, WhoComesWhenOthersHaveEndedWellIsNotNeeded) {
  std::vector<FakeSession*> all = start_all(1);
  ASSERT_EQ(all.size(), 3u);
  cluster_.lose(*all[2], "was killed");
  attach_again(all[0], 0);
  attach_again(all[1], 1);
  ASSERT_TRUE(wait_for({all[0], all[1]}));
  cluster_.detach(*all[0]);
  cluster_.engine(0).report_rank_ended(cluster_.handle(0, "job"), Rank{0});
  cluster_.engine(0).close_job(cluster_.handle(0, "job"));
  cluster_.detach(*all[1]);
  cluster_.engine(1).report_rank_ended(cluster_.handle(1, "job"), Rank{0});
  all[2] = attach(2);
  ASSERT_TRUE(cluster_.run_until([&] { return !unneeded_.empty(); }));
  EXPECT_EQ(unneeded_[0], (std::pair{2, 0}));
  EXPECT_TRUE(all[2]->places.empty());
}

// The coordinator's own processes were told of a lost node, and one that stood still was killed a
// whole --rank-timeout later.
TEST_F(ElasticNodesTest, WhatEndedItIsToldAlsoWhereOthersSayFirstThatItIsOver) {
  std::vector<FakeSession*> all = start_all(1);
  ASSERT_EQ(all.size(), 3u);
  say_it_is_over_first();
  cluster_.lose(*all[2], "was killed");
  ASSERT_TRUE(cluster_.run_until([&] { return !all[0]->failures.empty(); }));
  EXPECT_EQ(all[0]->failures[0].code(), Code::kRankLost) << all[0]->failures[0].message();
}

class ElasticSilenceTest : public ElasticNodesTest {
 protected:
  static constexpr TicksMs kTimeoutMs = 20'000;
  ElasticSilenceTest() : ElasticNodesTest({1, 1, 1, 1}, kTimeoutMs) {}

  // Cuts the two off, and tells the coordinator that the first of them is silent.
  void cut_two_off(std::vector<FakeSession*>& all) {
    for (const int here : {0, 1}) {
      for (const int there : {2, 3}) cluster_.router().drop(here, there);
    }
    cluster_.router().fall_silent(0, 2, kTimeoutMs);
    for (const int i : {0, 1}) attach_again(all[static_cast<size_t>(i)], i);
    cluster_.settle();  // From here on the generation is over on both.
  }
};

// Where half of a network was cut off, the next generation began a failure timeout later now and
// then: the second node that was silent was waited for as if it had been heard just before.
TEST_F(ElasticSilenceTest, OfTwoThatAreCutOffTheSecondIsNotWaitedForAnew) {
  std::vector<FakeSession*> all = start_all(2);
  ASSERT_EQ(all.size(), 4u);
  cut_two_off(all);
  EXPECT_TRUE(all[0]->places.empty()) << "the second may live, for all that is known";
  cluster_.router().fall_silent(0, 3, kTimeoutMs);
  ASSERT_TRUE(cluster_.run_until([&] { return !all[0]->places.empty() && !all[1]->places.empty(); },
                                 kTimeoutMs / 2));
  expect_place(all[1], 1, 2, 2);
}

TEST_F(ElasticSilenceTest, NorIsItWhereOthersSayFirstThatItIsOver) {
  std::vector<FakeSession*> all = start_all(2);
  ASSERT_EQ(all.size(), 4u);
  say_it_is_over_first();
  for (const int here : {0, 1}) {
    for (const int there : {2, 3}) cluster_.router().drop(here, there);
  }
  for (const int lost : {3, 2}) cluster_.router().fall_silent(0, lost, kTimeoutMs);
  for (const int i : {0, 1}) attach_again(all[static_cast<size_t>(i)], i);
  ASSERT_TRUE(cluster_.run_until([&] { return !all[0]->places.empty() && !all[1]->places.empty(); },
                                 kTimeoutMs / 2));
  expect_place(all[1], 1, 2, 2);
}

TEST_F(ElasticSilenceTest, WhoHangsUpIsNotTakenForLost) {
  std::vector<FakeSession*> all = start_all(2);
  ASSERT_EQ(all.size(), 4u);
  cut_two_off(all);
  cluster_.router().fall_silent(0, 3, 100);
  EXPECT_FALSE(cluster_.run_until([&] { return !all[0]->places.empty(); }, 300));
}

// A launcher was slow to keep a vote. Meanwhile the next generation had been decided, and the end
// of the one that ran here was taken for the end of that.
TEST_F(ElasticNodesTest, TheEndOfAGenerationIsNotThatOfTheNextOne) {
  for (int node = 0; node < 2; ++node) ASSERT_TRUE(register_node(node, 1).is_ok());
  std::vector<std::function<void()>> held;
  bool holds = false;
  JobSpec made = cluster_.spec("job", 2);
  made.elastic = ElasticSpec{.min_ranks = 1, .incarnations = {1, 1, 1}};
  JobListener listener;
  listener.keep_votes = [&](const std::string&, std::function<void()> kept) {
    if (!holds) return kept();
    held.push_back(std::move(kept));
  };
  ASSERT_TRUE(cluster_.register_on(2, std::move(made), std::move(listener)).is_ok());
  std::vector<FakeSession*> all = cluster_.start("job");
  ASSERT_EQ(all.size(), 3u);
  cluster_.detach(*all[2]);
  all[2] = attach(2);
  cluster_.settle();

  // Nothing goes between the nodes but what the test says; node 2 must not want a third one.
  bool wants_third = false;
  cluster_.router().generation_filter = [&](int from, int, const core::GenerationMessage& said) {
    wants_third |= from == 2 && said.epoch == Epoch{3};
    return false;
  };
  const auto say = [&](auto body) {
    core::GenerationMessage message{{"n0", 1}, "control:2000", Epoch{2}, std::move(body)};
    const std::string bytes = cluster_.router().plane(0).encode(message);
    cluster_.engine(2).on_generation(LinkId{1}, testing::packet_of(Cluster::token(), 0, 2, bytes));
  };
  holds = true;
  say(core::PrepareGeneration{{1, NodeIndex{0}}});
  ASSERT_FALSE(held.empty());
  core::Generation next{Epoch{2}, {}, "all ranks have left"};
  for (int i = 0; i < 3; ++i) {
    next.nodes.push_back({{"n" + std::to_string(i), 1},
                          "control:200" + std::to_string(i),
                          {{core::Slot{0}, Rank{i}}}});
  }
  say(core::LearnGeneration{std::make_shared<const core::Generation>(next)});
  for (const int i : {0, 1}) cluster_.detach(*all[static_cast<size_t>(i)]);
  cluster_.settle();
  holds = false;
  for (const std::function<void()>& kept : std::exchange(held, {})) kept();
  EXPECT_FALSE(cluster_.run_until([&] { return wants_third; }, 300));
}

TEST_F(ElasticNodesTest, WhoDoesNotKnowTheTokenIsNotHeard) {
  std::vector<FakeSession*> all = start_all(1);
  ASSERT_EQ(all.size(), 3u);
  core::GenerationMessage forged;
  forged.from = {"n1", 1};
  forged.from_address = "control:2001";
  forged.epoch = Epoch{2};
  forged.body = core::Present{1, {{"n1", 1}, "control:2001", {}}, true, 0, "made up", false};
  testing::RoutedPlane& plane = cluster_.router().plane(1);
  const std::string body = plane.encode(forged);
  cluster_.engine(0).on_generation(LinkId{2}, testing::packet_of(std::string(32, 'x'), 1, 0, body));
  cluster_.settle();
  for (const FakeSession* session : all) EXPECT_TRUE(session->failures.empty());
  cluster_.engine(0).on_generation(LinkId{2}, testing::packet_of(Cluster::token(), 1, 0, body));
  EXPECT_TRUE(cluster_.run_until([&] { return !all[0]->failures.empty(); }))
      << "the same from who knows it";
}

TEST_F(ElasticNodesTest, AMemberDoesNotSpeakForAnotherNodeAboutTheNextGeneration) {
  std::vector<FakeSession*> all = start_all(1);
  ASSERT_EQ(all.size(), 3u);
  cluster_.router().plane(0).certificates = [](LinkId link) {
    return "n" + std::to_string(link - 1);
  };
  core::GenerationMessage forged;
  forged.from = {"n1", 1};
  forged.from_address = "control:2001";
  forged.epoch = Epoch{2};
  forged.body = core::Present{1, {{"n1", 1}, "control:2001", {}}, true, 0, "made up", false};
  const std::string body = cluster_.router().plane(2).encode(forged);
  cluster_.engine(0).on_generation(LinkId{3}, testing::packet_of(Cluster::token(), 2, 0, body));
  cluster_.settle();
  for (const FakeSession* session : all) EXPECT_TRUE(session->failures.empty());
  cluster_.engine(0).on_generation(LinkId{2}, testing::packet_of(Cluster::token(), 1, 0, body));
  EXPECT_TRUE(cluster_.run_until([&] { return !all[0]->failures.empty(); }))
      << "the same over its own link";
}

// --- An end that somebody asks for ---------------------------------------------------------------

constexpr const char* kEnd = "the job was ended by user 7 on node n1: maintenance";

TEST_F(ElasticNodesTest, AnEndIsFinalOnAllNodesAndAllAreTold) {
  std::vector<FakeSession*> all = start_all(1);
  ASSERT_EQ(all.size(), 3u);
  const Result<int> ended = cluster_.engine(1).end_job("job", kEnd);
  ASSERT_TRUE(ended.is_ok()) << ended.status().message();
  EXPECT_EQ(ended.value(), 3);
  ASSERT_TRUE(cluster_.run_until([&] { return failures_.size() == 3; }));
  cluster_.settle();
  const Status wanted(Code::kShutDown, kEnd, Origin{"n1", {}, true});
  for (const Status& told : failures_) EXPECT_EQ(told, wanted);
  for (int node = 0; node < 3; ++node) {
    FakeSession*& session = all[static_cast<size_t>(node)];
    ASSERT_TRUE(cluster_.run_until([&] { return !session->failures.empty(); }));
    EXPECT_EQ(session->failures, std::vector<Status>{wanted});
    cluster_.detach(*session);
    EXPECT_EQ(attach(node), nullptr) << "no generation follows";
    EXPECT_THAT(cluster_.refusal.message(), HasSubstr(kEnd));
    EXPECT_EQ(cluster_.snapshot(node, "job").state, "failed");
    EXPECT_EQ(cluster_.snapshot(node, "job").error, kEnd);
  }
  EXPECT_EQ(failures_.size(), 3u) << "each launcher is told once";
  const Status again = cluster_.engine(0).end_job("job", "once more").status();
  EXPECT_EQ(again.code(), Code::kShutDown);
  EXPECT_EQ(again.message(), std::string("job job is over already: ") + kEnd);
  // The launchers go. One that comes late on any of the nodes hears it.
  for (int node = 0; node < 3; ++node) {
    cluster_.engine(node).close_job(cluster_.handle(node, "job"));
    ASSERT_TRUE(cluster_.run_until([&] { return cluster_.engine(node).jobs().empty(); }));
    EXPECT_EQ(register_node(node, 1).message(), kEnd);
  }
  EXPECT_EQ(cluster_.engine(1).end_job("job", kEnd).status().code(), Code::kNotFound);
}

TEST_F(ElasticNodesTest, AnEndWhileTheNextGenerationIsVotedLeavesNobodyWaiting) {
  std::vector<FakeSession*> all = start_all(3);
  ASSERT_EQ(all.size(), 3u);
  cluster_.lose(*all[2], "was killed");
  attach_again(all[0], 0);
  attach_again(all[1], 1);
  cluster_.settle();
  EXPECT_TRUE(all[0]->places.empty()) << "too few are left";
  ASSERT_TRUE(cluster_.engine(2).end_job("job", kEnd).is_ok());
  ASSERT_TRUE(cluster_.run_until([&] { return failures_.size() == 3; }));
  for (const int i : {0, 1}) {
    FakeSession* const session = all[static_cast<size_t>(i)];
    ASSERT_EQ(session->failures.size(), 1u);
    EXPECT_EQ(session->failures[0].message(), kEnd);
  }
  EXPECT_EQ(attach(2), nullptr);
}

// The majority goes on while it cannot hear it; a minority's end is an end all the same.
TEST_F(ElasticNodesTest, WhoIsCutOffHearsOfAnEndWhenTheCutIsMended) {
  std::vector<FakeSession*> all = start_all(1);
  ASSERT_EQ(all.size(), 3u);
  for (const int there : {0, 1}) cluster_.router().drop(there, 2);
  ASSERT_TRUE(cluster_.engine(2).end_job("job", kEnd).is_ok());
  ASSERT_TRUE(cluster_.run_until([&] { return !all[2]->failures.empty(); }));
  cluster_.engine(2).close_job(cluster_.handle(2, "job"));
  ASSERT_TRUE(cluster_.run_until([&] { return cluster_.engine(2).jobs().empty(); }));
  for (const int there : {0, 1}) cluster_.router().fall_silent(there, 2, 1'000);
  attach_again(all[0], 0);
  attach_again(all[1], 1);
  ASSERT_TRUE(wait_for({all[0], all[1]}));
  expect_place(all[1], 1, 2, 2);
  EXPECT_EQ(failures_.size(), 1u);
  for (const int there : {0, 1}) cluster_.router().mend(there, 2);
  ASSERT_TRUE(cluster_.run_until([&] { return failures_.size() == 3; }));
  for (const int i : {0, 1}) {
    FakeSession* const session = all[static_cast<size_t>(i)];
    ASSERT_TRUE(cluster_.run_until([&] { return !session->failures.empty(); }));
    EXPECT_EQ(session->failures[0].message(), kEnd);
  }
}

TEST_F(ElasticNodesTest, ANodeThatComesWhenTheJobWasEndedAndIsGoneHearsIt) {
  std::vector<FakeSession*> all = start_all(1);
  ASSERT_EQ(all.size(), 3u);
  ASSERT_TRUE(cluster_.engine(0).end_job("job", kEnd).is_ok());
  ASSERT_TRUE(cluster_.run_until([&] { return failures_.size() == 3; }));
  for (const int node : {0, 1}) {
    cluster_.engine(node).close_job(cluster_.handle(node, "job"));
    ASSERT_TRUE(cluster_.run_until([&] { return cluster_.engine(node).jobs().empty(); }));
  }
  cluster_.kill_daemon(2);
  cluster_.start_daemon(2);
  ASSERT_TRUE(register_node(2, 1, [&](ElasticSpec& elastic) {
                elastic.incarnations[2] = 7;
                elastic.contacts = {"control:2001"};
              }).is_ok());
  ASSERT_NE(attach(2), nullptr) << cluster_.refusal.message();
  ASSERT_TRUE(cluster_.run_until([&] { return failures_.size() == 4; }));
  EXPECT_EQ(failures_[3].message(), kEnd);
}

// A launcher that stands still cannot hold an end up: it follows from no vote.
TEST_F(ElasticNodesTest, AnEndDoesNotWaitForALauncherThatKeepsVotes) {
  for (int node = 0; node < 2; ++node) ASSERT_TRUE(register_node(node, 1).is_ok());
  JobSpec made = cluster_.spec("job", 2);
  made.elastic = ElasticSpec{.min_ranks = 1, .incarnations = {1, 1, 1}};
  JobListener listener;
  listener.keep_votes = [](const std::string&, const std::function<void()>&) {};
  ASSERT_TRUE(cluster_.register_on(2, std::move(made), std::move(listener)).is_ok());
  ASSERT_EQ(cluster_.start("job").size(), 3u);
  ASSERT_TRUE(cluster_.engine(2).end_job("job", kEnd).is_ok());
  EXPECT_TRUE(cluster_.run_until([&] { return failures_.size() == 2; }));
}

}  // namespace
}  // namespace rueda::engine
