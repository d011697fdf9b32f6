// Tests elastic jobs in the engine: who dies, who stays, who waits, and who is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
    spec.elastic = ElasticSpec{min_ranks, timeout_ms, 0};
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

TEST_F(ElasticJobTest, ASlotHasOneProcess) {
  register_job(2);
  ASSERT_NE(attach(0), nullptr);
  EXPECT_EQ(attach(0), nullptr);
  EXPECT_THAT(cluster_.refusal.message(), HasSubstr("slot 0 of job job has a process already"));
  session::Attach wrong = cluster_.attach_of("job", Rank{0});
  wrong.local_rank = LocalRank{3};
  FakeSession fourth(wrong);
  EXPECT_THAT(cluster_.engine(0).on_attach(fourth).message(), HasSubstr("slots 0 to 2"));
}

TEST_F(ElasticJobTest, ASlotIsFreeOnceItsProcessHasHungUp) {
  register_job(2);
  FakeSession* a = attach(0);
  cluster_.hang_up(*a, "was killed");
  EXPECT_NE(attach(0), nullptr);
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
  Cluster two({{1, 1}});
  JobSpec spread = two.spec("job", 0);
  spread.elastic = ElasticSpec{1, 1000, 0};
  EXPECT_THAT(two.register_on(0, spread).message(),
              HasSubstr("so far elastic jobs are on one node"));
}

}  // namespace
}  // namespace rueda::engine
