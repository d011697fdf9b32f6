// Tests jobs that end badly, or are taken away: everybody is told once, with the reason, and none
// of their memory is touched afterwards.
#include <gtest/gtest.h>

#include "daemon/base/limits.h"
#include "tests/engine/cluster.h"

namespace rueda::engine {
namespace {

using testing::Cluster;
using testing::ClusterOptions;
using testing::FakeSession;

bool all_told(const std::vector<FakeSession*>& sessions, std::initializer_list<size_t> which) {
  return std::all_of(which.begin(), which.end(),
                     [&](size_t rank) { return !sessions[rank]->failures.empty(); });
}

TEST(EngineFailure, AJobThatCannotBeServedEndsAndOthersGoOn) {
  Cluster cluster({{1}});
  JobListener listener;
  listener.on_started = [](Epoch) { throw std::bad_alloc(); };
  Status told;
  listener.on_failed = [&](const Status& status) { told = status; };
  ASSERT_TRUE(cluster.register_on(0, cluster.spec("job", 0), listener).is_ok());
  ASSERT_NE(cluster.attach("job", Rank{0}), nullptr);
  ASSERT_TRUE(cluster.run_until([&] { return !told.is_ok(); }));
  EXPECT_EQ(told.message(), "the daemon on node n0 cannot serve job job: std::bad_alloc");
  cluster.register_everywhere("other");
  EXPECT_EQ(cluster.start("other").size(), 1u);
}

// A clock on which handlers work as the test says.
struct WorkClock final : HandlerClock {
  Time now() const override { return worked_for; }
  Time worked() const override { return worked_for; }
  Time worked_for{std::chrono::hours(1)};
};

TEST(EngineFailure, AJobThatKeepsTheLoopFromOthersEndsAndItsNeighbourGoesOn) {
  Cluster cluster({{1}});
  cluster.register_everywhere("other");
  FakeSession* const neighbour = cluster.start("other")[0];
  WorkClock clock;
  HandlerWatch watch(clock);
  const HandlerWatch::Use use(watch);
  std::vector<std::string> slow;
  watch.on_slow([&](const SlowHandler& found) { slow.push_back(found.cause.name); });
  bool has_started = false;
  JobListener listener;
  listener.on_started = [&](Epoch) {
    clock.worked_for += HandlerWatch::kEnded + std::chrono::milliseconds(50);
    has_started = true;
  };
  Status told;
  listener.on_failed = [&](const Status& status) { told = status; };
  JobSpec spec = cluster.spec("job", 0);
  spec.user = "somebody";
  ASSERT_TRUE(cluster.register_on(0, spec, listener).is_ok());
  ASSERT_NE(cluster.attach("job", Rank{0}), nullptr);
  ASSERT_TRUE(cluster.run_until([&] { return has_started; }));
  watch.end();
  EXPECT_EQ(slow, std::vector<std::string>{"job job of somebody"});
  ASSERT_TRUE(cluster.run_until([&] { return !told.is_ok(); }));
  EXPECT_EQ(told.code(), Code::kResourceExhausted);
  EXPECT_TRUE(told.message().starts_with(
      "the daemon on node n0 cannot serve job job: it has kept a loop of the daemon from all "
      "others for "))
      << told.message();
  cluster.submit(*neighbour, "w", 100, 1);
  ASSERT_TRUE(cluster.run_until([&] { return !neighbour->completions.empty(); }));
  EXPECT_TRUE(neighbour->completions[0].status.is_ok());
  EXPECT_TRUE(neighbour->failures.empty());
}

TEST(EngineFailure, JobsAndStagingOfAUserAreBounded) {
  session::Quota quota(uint64_t{1} << 40, 65536);
  quota[session::Resource::kJobs] = 2;
  quota[session::Resource::kStagingBytes] = 100u << 20;
  ClusterOptions options{{1, 1}};
  options.ledger = std::make_shared<session::Ledger>(quota);
  Cluster cluster(options);
  // The ledger belongs to each node's daemon, so that two nodes of one job count as two jobs.
  cluster.register_everywhere("job");
  const Status refused = cluster.register_on(0, cluster.spec("more", 0));
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_NE(refused.message().find("has 2 jobs here and wants 1 more, and may have 2"),
            std::string::npos)
      << refused.message();
  JobSpec of_another = cluster.spec("theirs", 0);
  of_another.owner = Principal::user(::getuid() + 1);
  EXPECT_TRUE(cluster.register_on(0, of_another).is_ok());
  // Each of the two daemons reserves 64 MiB.
  (void)cluster.start("job");
  ASSERT_TRUE(cluster.run_until([&] { return !cluster.node(0).failures.empty(); }));
  EXPECT_NE(cluster.node(0).failures[0].message().find("--quota-staging-bytes"), std::string::npos)
      << cluster.node(0).failures[0].message();
}

// A handle outlives its job, and the next job of the name has another handle.
TEST(EngineFailure, AStaleHandleEndsNobodysJob) {
  Cluster cluster({{1}});
  cluster.register_everywhere("job");
  const JobHandle stale = cluster.handle(0, "job");
  cluster.engine(0).close_job(stale);
  ASSERT_TRUE(cluster.run_until([&] { return cluster.engine(0).jobs().empty(); }));
  ASSERT_TRUE(cluster.register_on(0, cluster.spec("job", 0)).is_ok());
  cluster.engine(0).report_rank_failed(stale, Rank{0}, "of another");
  cluster.engine(0).end_timeline(stale);
  cluster.engine(0).close_job(stale);
  cluster.settle();
  EXPECT_EQ(cluster.snapshot(0, "job").error, "");
  EXPECT_EQ(cluster.start("job").size(), 1u);
}

TEST(EngineFailure, WhatALauncherSaysOfARankIsOneLine) {
  Cluster cluster({{1}});
  cluster.register_everywhere("job");
  cluster.engine(0).report_rank_failed(cluster.handle(0, "job"), Rank{0},
                                       "fell\n\x1b[2J" + std::string(1 << 20, 'x'));
  ASSERT_TRUE(cluster.run_until([&] { return !cluster.node(0).failures.empty(); }));
  const std::string& told = cluster.node(0).failures[0].message();
  EXPECT_TRUE(told.starts_with("fell\\n\\x1b[2Jxxx")) << told;
  EXPECT_LE(told.size(), 512u);
}

TEST(EngineFailure, ARankThatDiesEndsTheJobEverywhereAndIsNamed) {
  Cluster cluster({{2, 1, 1}});
  cluster.register_everywhere("job");
  const auto sessions = cluster.start("job");
  ASSERT_EQ(sessions.size(), 4u);
  for (const size_t rank : {0, 1, 3}) cluster.submit(*sessions[rank], "w", 100, 1);
  cluster.settle();
  cluster.lose(*sessions[2], "(pid 1002) was killed");
  // Node 1 has no other rank that would show that it is done.
  ASSERT_TRUE(cluster.run_until([&] {
    return all_told(sessions, {0, 1, 3}) && !cluster.node(1).failures.empty();
  }));
  for (const size_t rank : {0, 1, 3}) {
    const FakeSession& session = *sessions[rank];
    ASSERT_EQ(session.failures.size(), 1u);
    EXPECT_EQ(session.failures[0].code(), Code::kRankLost);
    EXPECT_EQ(session.failures[0].message(), "rank 2 (pid 1002) was killed");
    EXPECT_EQ(session.failures[0].origin(), (Origin{"n1", Rank{2}}));
    ASSERT_EQ(session.completions.size(), 1u);
    EXPECT_EQ(session.completions[0].status, session.failures[0]);
    EXPECT_EQ(session.flushed, 1u);
  }
  EXPECT_TRUE(sessions[2]->failures.empty()) << "it is dead";
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(cluster.node(i).failures.size(), 1u) << "the launcher of node " << i;
    EXPECT_EQ(cluster.snapshot(i, "job").state, "failed");
    EXPECT_EQ(cluster.snapshot(i, "job").error, "rank 2 (pid 1002) was killed");
  }
  cluster.settle();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(cluster.node(i).metrics->daemon().staging_bytes.Value(), 0) << "node " << i;
  }
}

TEST(EngineFailure, WhatIsSubmittedAfterwardsFailsWithTheSameReason) {
  Cluster cluster({{2}});
  cluster.register_everywhere("job");
  const auto sessions = cluster.start("job");
  ASSERT_EQ(sessions.size(), 2u);
  cluster.lose(*sessions[1], "fell");
  cluster.submit(*sessions[0], "w", 100, 1);
  ASSERT_TRUE(cluster.run_until([&] { return all_told(sessions, {0}); }));
  cluster.submit(*sessions[0], "w", 100, 1);
  ASSERT_TRUE(cluster.run_until([&] { return sessions[0]->flushed == 2; }));
  for (const auto& completion : sessions[0]->completions) {
    EXPECT_EQ(completion.status.message(), "rank 1 fell");
  }
}

// A client that was told that its tensor failed may free the memory at once.
TEST(EngineFailure, IsToldOnlyWhenTheDataLoopHasLetGo) {
  Cluster cluster({{2}});
  cluster.register_everywhere("job");
  const auto sessions = cluster.start("job");
  ASSERT_EQ(sessions.size(), 2u);
  cluster.block_data_loop(0);
  for (FakeSession* session : sessions) cluster.submit(*session, "w", 10'000, 1);
  cluster.settle();  // launches it on a loop that is busy
  cluster.lose(*sessions[1], "fell");
  cluster.settle();
  EXPECT_EQ(cluster.snapshot(0, "job").state, "failed");
  EXPECT_TRUE(sessions[0]->completions.empty());
  EXPECT_TRUE(sessions[0]->failures.empty());
  cluster.release_data_loop(0);
  ASSERT_TRUE(cluster.run_until([&] { return all_told(sessions, {0}); }));
  ASSERT_EQ(sessions[0]->completions.size(), 1u);
  EXPECT_EQ(sessions[0]->completions[0].status.message(), "rank 1 fell");
}

TEST(EngineFailure, AnotherJobIsUntouched) {
  Cluster cluster({{1, 1}});
  cluster.register_everywhere("good");
  cluster.register_everywhere("bad");
  const auto good = cluster.start("good");
  const auto bad = cluster.start("bad");
  ASSERT_EQ(good.size() + bad.size(), 4u);
  cluster.submit(*good[0], "before", 9, 1);
  cluster.submit(*bad[0], "w", 9, 1);
  cluster.lose(*bad[1], "fell");
  ASSERT_TRUE(cluster.run_until([&] { return all_told(bad, {0}); }));
  cluster.submit(*good[1], "before", 9, 3);
  for (FakeSession* session : good) cluster.submit(*session, "after", 9, 1);
  ASSERT_TRUE(cluster.run_until([&] { return good[0]->flushed + good[1]->flushed == 4; }));
  for (FakeSession* session : good) {
    EXPECT_TRUE(session->failures.empty());
    for (const auto& completion : session->completions) {
      EXPECT_TRUE(completion.status.is_ok()) << completion.status.message();
    }
  }
}

TEST(EngineFailure, ANodeThatIsLostIsNamedOnTheOthers) {
  Cluster cluster({{1, 1, 1}});
  cluster.register_everywhere("job");
  const auto sessions = cluster.start("job");
  ASSERT_EQ(sessions.size(), 3u);
  cluster.router().cut(0, 2);
  ASSERT_TRUE(cluster.run_until([&] { return all_told(sessions, {0, 1, 2}); }));
  for (const size_t rank : {0, 1}) {
    EXPECT_EQ(sessions[rank]->failures[0].code(), Code::kNodeLost);
    EXPECT_EQ(sessions[rank]->failures[0].message(),
              "node n2 is lost: its control connection closed");
    EXPECT_EQ(sessions[rank]->failures[0].origin(), (Origin{"n2", {}}));
  }
  EXPECT_EQ(sessions[2]->failures[0].origin(), (Origin{"n0", {}})) << "it lost the coordinator";
  const auto noticed = cluster.node(0).metrics->job("job")->node_loss_seconds.Collect().histogram;
  EXPECT_EQ(noticed.sample_count, 1u);
  EXPECT_DOUBLE_EQ(noticed.sample_sum, 0.03);
}

TEST(EngineFailure, ANodeWhoseDataPlaneStandsStillIsNamed) {
  ClusterOptions options;
  options.ranks_per_node = {1, 1};
  options.timeout_ms = 300;
  Cluster cluster(options);
  cluster.register_everywhere("job");
  const auto sessions = cluster.start("job");
  ASSERT_EQ(sessions.size(), 2u);
  for (FakeSession* session : sessions) cluster.submit(*session, "first", 10, 1);
  ASSERT_TRUE(cluster.run_until([&] { return sessions[0]->flushed + sessions[1]->flushed == 2; }));
  cluster.block_data_loop(1);
  for (FakeSession* session : sessions) cluster.submit(*session, "w", 100, 1);
  ASSERT_TRUE(cluster.run_until([&] { return all_told(sessions, {0}); }));
  EXPECT_EQ(sessions[0]->failures[0].code(), Code::kNodeLost);
  EXPECT_EQ(sessions[0]->failures[0].origin(), (Origin{"n1", {}}));
  EXPECT_TRUE(sessions[1]->completions.size() == 1) << "its memory is still in use";
  cluster.release_data_loop(1);
  EXPECT_TRUE(cluster.run_until([&] { return all_told(sessions, {1}); }));
}

TEST(EngineFailure, ARankThatNeverAttachedIsNamedByItsLauncher) {
  Cluster cluster({{2, 1}});
  cluster.register_everywhere("job");
  std::vector<FakeSession*> sessions{cluster.attach("job", Rank{0}), nullptr,
                                     cluster.attach("job", Rank{2})};
  cluster.settle();
  cluster.engine(0).report_rank_failed(cluster.handle(0, "job"), Rank{1},
                                       "rank 1 exited with status 3");
  cluster.engine(0).report_rank_failed(cluster.handle(0, "nope"), Rank{1}, "no such job");
  ASSERT_TRUE(cluster.run_until([&] { return all_told(sessions, {0, 2}); }));
  for (const size_t rank : {0, 2}) {
    EXPECT_EQ(sessions[rank]->failures[0].message(), "rank 1 exited with status 3");
    EXPECT_EQ(sessions[rank]->failures[0].origin(), (Origin{"n0", Rank{1}}));
  }
}

// The others once accepted no message of a node that had not joined, and waited for their start
// timeout.
TEST(EngineFailure, ARankThatNeverAttachedIsNamedWhereItsNodeHasNotJoined) {
  Cluster cluster({{1, 2}});
  cluster.register_everywhere("job");
  FakeSession* waiting = cluster.attach("job", Rank{0});
  cluster.settle();
  cluster.engine(1).report_rank_failed(cluster.handle(1, "job"), Rank{2},
                                       "rank 2 exited with status 3");
  ASSERT_TRUE(cluster.run_until([&] { return !waiting->failures.empty(); }));
  EXPECT_EQ(waiting->failures[0].message(), "rank 2 exited with status 3");
  EXPECT_EQ(waiting->failures[0].origin(), (Origin{"n1", Rank{2}}));
}

// The coordinator's launcher is late, and the message had once come and gone before it.
TEST(EngineFailure, ANodeThatFailedBeforeTheCoordinatorHadTheJobIsHeard) {
  Cluster cluster({{1, 1}});
  ASSERT_TRUE(cluster.register_on(1, cluster.spec("job", 1), {}).is_ok());
  cluster.engine(1).report_rank_failed(cluster.handle(1, "job"), Rank{1},
                                       "rank 1 exited with status 3");
  cluster.engine(1).close_job(cluster.handle(1, "job"));
  cluster.settle();
  std::vector<Status> failures;
  JobListener listener;
  listener.on_failed = [&](const Status& status) { failures.push_back(status); };
  ASSERT_TRUE(cluster.register_on(0, cluster.spec("job", 0), listener).is_ok());
  EXPECT_TRUE(failures.empty()) << "the launcher is to hear first that the job is registered";
  cluster.settle();
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].message(), "rank 1 exited with status 3");
  EXPECT_EQ(failures[0].origin(), (Origin{"n1", Rank{1}}));
}

// The session of an attached rank tells more exactly how the rank ended.
TEST(EngineFailure, WhatALauncherSaysOfARankThatHungUpIsNotNews) {
  Cluster cluster({{1, 1}});
  cluster.register_everywhere("job");
  const auto sessions = cluster.start("job");
  ASSERT_EQ(sessions.size(), 2u);
  cluster.engine(0).report_rank_failed(cluster.handle(0, "job"), Rank{5}, "rank 5 exited");
  cluster.settle();
  EXPECT_EQ(cluster.snapshot(0, "job").state, "running");
  cluster.hang_up(*sessions[0], "broke the rules");
  cluster.engine(0).report_rank_failed(cluster.handle(0, "job"), Rank{0},
                                       "rank 0 exited with status 3");
  ASSERT_TRUE(cluster.run_until([&] { return all_told(sessions, {1}); }));
  EXPECT_EQ(sessions[1]->failures[0].message(), "rank 0 broke the rules");
}

// A process that the rank forked holds the socket. The others once waited until that process ended,
// too.
TEST(EngineFailure, ALauncherIsBelievedThatARankHasEndedWhoseSocketIsOpen) {
  Cluster cluster({{2, 1}});
  cluster.register_everywhere("job");
  const auto sessions = cluster.start("job");
  ASSERT_EQ(sessions.size(), 3u);
  cluster.submit(*sessions[2], "w", 100, 1);
  cluster.engine(0).report_rank_failed(cluster.handle(0, "job"), Rank{1},
                                       "rank 1 exited with status 3");
  ASSERT_TRUE(cluster.run_until([&] { return all_told(sessions, {0, 2}); }));
  for (const size_t rank : {0, 2}) {
    EXPECT_EQ(sessions[rank]->failures[0].message(), "rank 1 exited with status 3");
    EXPECT_EQ(sessions[rank]->failures[0].origin(), (Origin{"n0", Rank{1}}));
  }
  cluster.lose(*sessions[1], "hung up at last");
  cluster.settle();
  EXPECT_EQ(cluster.engine(0).clients(), 1);
}

TEST(EngineFailure, ALeaverWithOperationsInFlightIsNamed) {
  Cluster cluster({{1, 1}});
  cluster.register_everywhere("job");
  const auto sessions = cluster.start("job");
  ASSERT_EQ(sessions.size(), 2u);
  cluster.submit(*sessions[1], "w", 100, 1);
  cluster.settle();
  cluster.detach(*sessions[1]);
  ASSERT_TRUE(cluster.run_until([&] { return all_told(sessions, {0}); }));
  EXPECT_EQ(sessions[0]->failures[0].message(),
            "rank 1 on node n1 left the job with operations in flight");
}

// Operations that the predecessor had in flight once ended in the newcomer's hands, which crashed
// the daemon.
TEST(EngineFailure, ANewcomerHearsNothingOfWhatItsPredecessorHadInFlight) {
  Cluster cluster({{1, 1}});
  cluster.register_everywhere("job");
  const auto sessions = cluster.start("job");
  ASSERT_EQ(sessions.size(), 2u);
  cluster.submit(*sessions[0], "w", 100, 1);
  cluster.settle();
  cluster.block_data_loop(0);  // makes the goodbye wait until the loop is quiet
  cluster.detach(*sessions[0]);
  FakeSession* newcomer = cluster.attach("job", Rank{0});
  ASSERT_TRUE(newcomer);
  cluster.submit(*newcomer, "too early", 1, 1);
  ASSERT_EQ(newcomer->completions.size(), 1u);
  EXPECT_EQ(newcomer->completions[0].status.code(), Code::kUnavailable);
  cluster.release_data_loop(0);
  ASSERT_TRUE(cluster.run_until([&] { return all_told(sessions, {1}); }));
  ASSERT_TRUE(cluster.run_until([&] { return !newcomer->failures.empty(); }));
  EXPECT_EQ(newcomer->completions.size(), 1u);
}

// The rank once waited for its start timeout, because no node was left that could tell it.
TEST(EngineFailure, WhoComesWhenTheJobIsOverAndGoneHearsWhoDied) {
  Cluster cluster({{1, 1}});
  cluster.register_everywhere("job");
  cluster.engine(0).report_rank_failed(cluster.handle(0, "job"), Rank{0},
                                       "rank 0 exited with status 3");
  cluster.engine(0).close_job(cluster.handle(0, "job"));
  cluster.settle();
  ASSERT_TRUE(cluster.engine(0).jobs().empty());
  FakeSession* late = cluster.attach("job", Rank{1});
  ASSERT_TRUE(late);
  ASSERT_TRUE(cluster.run_until([&] { return !late->failures.empty(); }));
  EXPECT_EQ(late->failures[0].message(), "rank 0 exited with status 3");
  EXPECT_EQ(late->failures[0].origin(), (Origin{"n0", Rank{0}}));
  EXPECT_EQ(cluster.node(0).metrics->daemon().late_joins.Value(), 1);
}

TEST(EngineFailure, WhoComesBackWhenTheCoordinatorsLauncherHasGoneHearsThat) {
  Cluster cluster({{1, 1}});
  cluster.register_everywhere("job");
  const auto sessions = cluster.start("job");
  ASSERT_EQ(sessions.size(), 2u);
  for (FakeSession* session : sessions) cluster.detach(*session);
  cluster.settle();
  cluster.engine(0).close_job(cluster.handle(0, "job"));
  cluster.settle();
  FakeSession* back = cluster.attach("job", Rank{1});
  ASSERT_TRUE(back);
  ASSERT_TRUE(cluster.run_until([&] { return !back->failures.empty(); }));
  EXPECT_EQ(back->failures[0].message(), "the launcher of job job on node n0 has gone");
}

// What is remembered of the run before, under the same name, must not make the new one fail.
TEST(EngineFailure, AJobThatIsStartedAgainBegins) {
  Cluster cluster({{1, 1}});
  cluster.register_everywhere("job");
  cluster.engine(0).report_rank_failed(cluster.handle(0, "job"), Rank{0},
                                       "rank 0 exited with status 3");
  for (const int node : {0, 1}) cluster.engine(node).close_job(cluster.handle(node, "job"));
  cluster.settle();
  // A launcher may be late: until the coordinator's launcher has come, the coordinator does not
  // know the job that messages are about.
  JobSpec spec = cluster.spec("job", 1);
  spec.token = std::string(limits::kTokenBytes, 'n');
  ASSERT_TRUE(cluster.register_on(1, spec, {}).is_ok());
  session::Attach attach = cluster.attach_of("job", Rank{1});
  cluster.give_token(attach, spec.token);
  FakeSession early(attach);
  ASSERT_TRUE(cluster.engine(1).on_attach(early).is_ok());
  cluster.settle();
  EXPECT_TRUE(early.failures.empty());
  spec.self = NodeIndex{0};
  ASSERT_TRUE(cluster.register_on(0, spec, {}).is_ok());
  attach = cluster.attach_of("job", Rank{0});
  cluster.give_token(attach, spec.token);
  FakeSession other(attach);
  ASSERT_TRUE(cluster.engine(0).on_attach(other).is_ok());
  EXPECT_TRUE(cluster.run_until([&] { return !early.places.empty() && !other.places.empty(); }));
  EXPECT_TRUE(early.failures.empty());
}

TEST(EngineFailure, ARankThatDoesNotComeIsNamed) {
  ClusterOptions options;
  options.ranks_per_node = {2, 1};
  options.start_timeout_ms = 200;
  Cluster cluster(options);
  cluster.register_everywhere("job");
  std::vector<FakeSession*> sessions{cluster.attach("job", Rank{0})};
  ASSERT_TRUE(cluster.run_until([&] { return all_told(sessions, {0}); }));
  EXPECT_EQ(sessions[0]->failures[0].code(), Code::kTimeout);
  const std::string& message = sessions[0]->failures[0].message();
  EXPECT_NE(message.find("rank 1 on node n0"), std::string::npos) << message;
  EXPECT_NE(message.find("rank 2 on node n1, of which nothing was heard"), std::string::npos)
      << message;
}

// --- Closing

TEST(EngineClose, TheLaunchersEndIsTheJobsEnd) {
  Cluster cluster({{1, 1}});
  cluster.register_everywhere("job");
  const auto sessions = cluster.start("job");
  ASSERT_EQ(sessions.size(), 2u);
  cluster.submit(*sessions[0], "w", 100, 1);
  cluster.engine(1).close_job(cluster.handle(1, "job"));
  cluster.engine(1).close_job(cluster.handle(1, "nope"));
  ASSERT_TRUE(cluster.run_until([&] {
    return all_told(sessions, {0, 1}) && cluster.engine(1).jobs().empty();
  }));
  for (FakeSession* session : sessions) {
    EXPECT_EQ(session->failures[0].code(), Code::kShutDown);
    EXPECT_EQ(session->failures[0].message(), "the launcher of job job on node n1 has gone");
  }
  EXPECT_EQ(sessions[0]->completions.at(0).status.code(), Code::kShutDown);
  EXPECT_EQ(cluster.engine(0).jobs().size(), 1u) << "its own launcher is still there";
}

// A rank alone on its node took its launcher with it, and a slow daemon heard of the launcher
// first. The others were once told that a launcher had gone, and heard of no rank.
TEST(EngineClose, ARankThatDiedIsNamedThoughItsLaunchersEndIsSeenFirst) {
  Cluster cluster({{1, 1}});
  cluster.register_everywhere("job");
  const auto sessions = cluster.start("job");
  ASSERT_EQ(sessions.size(), 2u);
  cluster.submit(*sessions[0], "w", 100, 1);
  cluster.hang_up(*sessions[1], "(pid 1001) was killed");
  cluster.engine(1).close_job(cluster.handle(1, "job"));
  ASSERT_TRUE(cluster.run_until(
      [&] { return all_told(sessions, {0}) && cluster.engine(1).jobs().empty(); }));
  EXPECT_EQ(sessions[0]->failures[0].message(), "rank 1 (pid 1001) was killed");
  EXPECT_EQ(sessions[0]->failures[0].origin(), (Origin{"n1", Rank{1}}));
  EXPECT_EQ(sessions[0]->completions.at(0).status.code(), Code::kRankLost);
  EXPECT_EQ(cluster.engine(1).clients(), 0);
}

// A rank that has said goodbye has not died.
TEST(EngineClose, AGoodbyeThatIsSeenAfterTheLaunchersEndIsAGoodbye) {
  Cluster cluster({{1, 1}});
  cluster.register_everywhere("job");
  const auto sessions = cluster.start("job");
  ASSERT_EQ(sessions.size(), 2u);
  cluster.detach(*sessions[0]);
  sessions[1]->on_look = [&] { cluster.detach(*sessions[1]); };
  for (const int node : {0, 1}) cluster.engine(node).close_job(cluster.handle(node, "job"));
  ASSERT_TRUE(cluster.run_until(
      [&] { return cluster.engine(0).jobs().empty() && cluster.engine(1).jobs().empty(); }));
  EXPECT_TRUE(cluster.node(0).failures.empty());
  EXPECT_TRUE(cluster.node(1).failures.empty());
}

// The data loop hears that neighbours have gone when the job may have gone, too. It once looked
// into the job to report that. Few rounds meet that moment, and the address sanitizer sees those.
TEST(EngineClose, AJobMayGoWhileItsDataLoopHearsThatNeighboursHaveGone) {
  Cluster cluster({{1, 1, 1, 1}});
  for (int round = 0; round < 400; ++round) {
    const std::string job = "job" + std::to_string(round);
    cluster.register_everywhere(job);
    const auto sessions = cluster.start(job);
    ASSERT_EQ(sessions.size(), 4u);
    for (FakeSession* session : sessions) cluster.detach(*session);
    for (int node = 0; node < cluster.size(); ++node)
      cluster.engine(node).close_job(cluster.handle(node, job));
    ASSERT_TRUE(cluster.run_until([&] {
      for (int node = 0; node < cluster.size(); ++node) {
        if (!cluster.engine(node).jobs().empty()) return false;
      }
      return true;
    }));
  }
}

TEST(EngineClose, AProcessThatOutlivesItsJobGetsErrorsUntilItGoes) {
  Cluster cluster({{1}});
  cluster.register_everywhere("job");
  const auto sessions = cluster.start("job");
  ASSERT_EQ(sessions.size(), 1u);
  cluster.engine(0).close_job(cluster.handle(0, "job"));
  ASSERT_TRUE(cluster.run_until([&] { return cluster.engine(0).jobs().empty(); }));
  EXPECT_EQ(cluster.engine(0).clients(), 1);
  cluster.submit(*sessions[0], "w", 100, 1);
  ASSERT_TRUE(cluster.run_until([&] { return sessions[0]->flushed == 1; }));
  EXPECT_EQ(sessions[0]->completions[0].status.code(), Code::kShutDown);

  // The name is free again meanwhile.
  cluster.register_everywhere("job");
  ASSERT_EQ(cluster.start("job").size(), 1u);
  cluster.detach(*sessions[0]);
  cluster.settle();
  EXPECT_EQ(cluster.engine(0).clients(), 1);
  EXPECT_EQ(cluster.snapshot(0, "job").state, "running");
}

TEST(EngineClose, AJobThatNobodyAttachedToGoesAtOnce) {
  Cluster cluster({{1, 1}});
  cluster.register_everywhere("job");
  for (int i = 0; i < 2; ++i) cluster.engine(i).close_job(cluster.handle(i, "job"));
  cluster.settle();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(cluster.engine(i).jobs().empty());
  EXPECT_TRUE(cluster.node(0).failures.empty());
}

TEST(EngineClose, AJobWhoseRanksAllLeftEndsWell) {
  Cluster cluster({{2, 1}});
  cluster.register_everywhere("job");
  const auto sessions = cluster.start("job");
  ASSERT_EQ(sessions.size(), 3u);
  for (FakeSession* session : sessions) cluster.detach(*session);
  for (int i = 0; i < 2; ++i) cluster.engine(i).close_job(cluster.handle(i, "job"));
  ASSERT_TRUE(cluster.run_until(
      [&] { return cluster.engine(0).jobs().empty() && cluster.engine(1).jobs().empty(); }));
  cluster.settle();
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(cluster.node(i).failures.empty());
    EXPECT_EQ(cluster.node(i).metrics->daemon().staging_bytes.Value(), 0);
    EXPECT_EQ(cluster.engine(i).clients(), 0);
  }
}

// A process that attaches in the turn in which its launcher goes must hear of it.
TEST(EngineClose, AnAttachInTheSameTurnIsToldThatTheJobIsOver) {
  Cluster cluster({{1}});
  cluster.register_everywhere("job");
  FakeSession* session = cluster.attach("job", Rank{0});
  ASSERT_TRUE(session);
  cluster.engine(0).close_job(cluster.handle(0, "job"));
  cluster.settle();
  EXPECT_TRUE(session->places.empty()) << "a job that was closed has started";
  ASSERT_EQ(session->failures.size(), 1u);
  EXPECT_EQ(session->failures[0].code(), Code::kShutDown);
  cluster.detach(*session);
  cluster.settle();
  EXPECT_EQ(cluster.engine(0).clients(), 0);
}

TEST(EngineClose, TheDaemonsEndWaitsForEveryJob) {
  Cluster cluster({{1}});
  cluster.register_everywhere("a");
  cluster.register_everywhere("b");
  cluster.register_everywhere("empty");
  const auto of_a = cluster.start("a");
  const auto of_b = cluster.start("b");
  ASSERT_EQ(of_a.size() + of_b.size(), 2u);
  cluster.block_data_loop(0);
  cluster.submit(*of_a[0], "w", 100, 1);
  bool done = false;
  cluster.engine(0).close_all(Status(Code::kShutDown, "the daemon was stopped"),
                              [&] { done = true; });
  EXPECT_TRUE(cluster.engine(0).is_stopping());
  cluster.settle();
  EXPECT_FALSE(done);
  cluster.release_data_loop(0);
  ASSERT_TRUE(cluster.run_until([&] { return done; }));
  EXPECT_EQ(of_a[0]->failures.at(0).message(), "the daemon was stopped");
  EXPECT_EQ(of_b[0]->failures.at(0).message(), "the daemon was stopped");
  EXPECT_EQ(of_a[0]->completions.at(0).status.message(), "the daemon was stopped");
}

TEST(EngineClose, TheDaemonsEndWithoutJobsIsAtOnce) {
  Cluster cluster({{1}});
  bool done = false;
  cluster.engine(0).close_all(Status(Code::kShutDown, "stopped"), [&] { done = true; });
  EXPECT_TRUE(done);
}

// Ctrl-C reaches launcher and daemon at the same time.
TEST(EngineClose, TheLauncherAndTheDaemonMayEndInOneTurn) {
  for (const bool with_ranks : {false, true}) {
    Cluster cluster({{1, 1}});
    cluster.register_everywhere("job");
    if (with_ranks) {
      const auto sessions = cluster.start("job");
      ASSERT_EQ(sessions.size(), 2u);
      for (FakeSession* session : sessions) cluster.detach(*session);
      cluster.settle();
    }
    bool done = false;
    cluster.engine(0).close_job(cluster.handle(0, "job"));
    cluster.engine(0).close_all(Status(Code::kShutDown, "stopped"), [&] { done = true; });
    cluster.settle();
    EXPECT_TRUE(cluster.run_until([&] { return done; }));
  }
}

TEST(EngineFailure, AnEndThatSomebodyAsksForReachesAllRanksAndIsFinal) {
  const std::string text = "the job was ended by operator ada on node n1";
  for (const bool has_begun : {true, false}) {
    Cluster cluster({{1, 1}});
    cluster.register_everywhere("job");
    std::vector<FakeSession*> sessions;
    if (has_begun) {
      sessions = cluster.start("job");
      ASSERT_EQ(sessions.size(), 2u);
      cluster.submit(*sessions[0], "w", 10, 1);
    } else {
      sessions = {nullptr, cluster.attach("job", Rank{1})};
    }
    const Result<int> ended = cluster.engine(1).end_job("job", text);
    ASSERT_TRUE(ended.is_ok()) << ended.status().message();
    EXPECT_EQ(ended.value(), 2);
    for (int node = 0; node < 2; ++node) {
      ASSERT_TRUE(cluster.run_until([&] { return !cluster.node(node).failures.empty(); }));
      EXPECT_EQ(cluster.node(node).failures,
                std::vector<Status>{Status(Code::kShutDown, text, Origin{"n1", {}, true})});
    }
    for (const FakeSession* const session : sessions) {
      if (session != nullptr) {
        EXPECT_EQ(session->failures, cluster.node(0).failures);
      }
    }
    if (has_begun) {
      EXPECT_EQ(sessions[0]->completions.at(0).status.message(), text);
    }
    const Status again = cluster.engine(0).end_job("job", "once more").status();
    EXPECT_EQ(again, Status(Code::kShutDown, "job job is over already: " + text));
    for (int node = 0; node < 2; ++node) {
      cluster.engine(node).close_job(cluster.handle(node, "job"));
      ASSERT_TRUE(cluster.run_until([&] { return cluster.engine(node).jobs().empty(); }));
      EXPECT_EQ(cluster.register_on(node, cluster.spec("job", node)).message(), text);
      EXPECT_EQ(cluster.engine(node).end_job("job", text).status().code(), Code::kNotFound);
    }
    JobSpec next = cluster.spec("job", 0);
    next.token = std::string(limits::kTokenBytes, 'n');
    EXPECT_TRUE(cluster.register_on(0, next).is_ok()) << "another run of the name is not meant";
  }
}

}  // namespace
}  // namespace rueda::engine
