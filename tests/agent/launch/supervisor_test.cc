#include "agent/launch/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

namespace rueda::agent {
namespace {

using testing::HasSubstr;

constexpr int64_t kGraceMs = 700;
const ExitStatus kGood{0, 0};

ExitStatus exited(int status) { return {status, 0}; }
ExitStatus killed(int signal) { return {0, signal}; }

template <class T>
std::vector<T> all_of_kind(const Actions& actions) {
  std::vector<T> out;
  for (const Action& action : actions) {
    if (const T* const found = std::get_if<T>(&action)) out.push_back(*found);
  }
  return out;
}

template <class T>
bool has(const Actions& actions, const T& wanted) {
  for (const T& found : all_of_kind<T>(actions)) {
    if (found == wanted) return true;
  }
  return false;
}

std::string said(const Actions& actions) {
  std::string out;
  for (const Say& say : all_of_kind<Say>(actions)) out += say.text + "\n";
  return out;
}

SignalRanks to_ranks(int signal, std::initializer_list<int> numbers) {
  SignalRanks out{signal, {}};
  for (int number : numbers) out.ranks.push_back(Rank(number));
  return out;
}

class SupervisorTest : public testing::Test {
 protected:
  void start(int ranks) {
    for (int i = 0; i < ranks; ++i) {
      supervisor_.on_rank_started(Rank(i), 100 + i, i < 2 ? "n0" : "n1");
    }
    EXPECT_TRUE(supervisor_.on_all_started().empty());
  }
  Actions exit(int rank, const ExitStatus& status) {
    return supervisor_.on_rank_exit(Rank(rank), status);
  }
  // Takes the steps from "all ranks are gone" to the end, and returns the exit code.
  int finish() {
    EXPECT_TRUE(has(supervisor_.on_drained(), CloseLinks{}));
    EXPECT_TRUE(has(supervisor_.on_links_closed(), SignalDaemons{SIGTERM}));
    const auto end = all_of_kind<Finish>(supervisor_.on_daemons_gone());
    EXPECT_EQ(end.size(), 1u);
    return end.empty() ? -1 : end[0].exit_code;
  }

  Supervisor supervisor_{kGraceMs};
};

TEST_F(SupervisorTest, EndsWithZeroInSilenceWhenAllRanksDo) {
  start(2);
  EXPECT_TRUE(exit(1, kGood).empty());
  const Actions last = exit(0, kGood);
  EXPECT_TRUE(has(last, DrainRanks{}));
  EXPECT_EQ(said(last), "");
  EXPECT_EQ(finish(), 0);
}

TEST_F(SupervisorTest, AFailingRankGivesTheOthersGraceThenTermThenKill) {
  start(4);
  const Actions failed = exit(2, exited(3));
  EXPECT_EQ(said(failed), "rank 2 (pid 102) on node n1 exited with status 3; ending the job\n");
  EXPECT_TRUE(has(failed, StartTimer{kGraceMs}));
  EXPECT_TRUE(
      has(failed, ReportRankFailed{Rank(2), "rank 2 (pid 102) on node n1 exited with status 3"}));
  EXPECT_TRUE(all_of_kind<SignalRanks>(failed).empty());

  EXPECT_EQ(said(exit(0, exited(1))), "");
  const Actions first_timeout = supervisor_.on_timer();
  EXPECT_TRUE(has(first_timeout, to_ranks(SIGTERM, {1, 3})));
  EXPECT_TRUE(has(first_timeout, StartTimer{kGraceMs}));
  exit(1, killed(SIGTERM));
  EXPECT_TRUE(has(supervisor_.on_timer(), to_ranks(SIGKILL, {3})));
  const Actions last = exit(3, killed(SIGKILL));
  EXPECT_EQ(said(last), "3 other ranks ended: 1 by itself, 1 after SIGKILL, 1 after SIGTERM\n");
  EXPECT_TRUE(has(last, DrainRanks{}));
  EXPECT_EQ(finish(), 3);
}

TEST_F(SupervisorTest, ASignalBecomes128More) {
  start(1);
  EXPECT_THAT(said(exit(0, killed(SIGKILL))), HasSubstr("was killed by signal 9 (Killed)"));
  EXPECT_EQ(finish(), 137);
}

TEST_F(SupervisorTest, ADaemonsReportEndsTheJobWithOne) {
  start(2);
  const Actions failed = supervisor_.on_job_failed("n0", {"rank 5 has gone", "n2", Rank(5)});
  EXPECT_EQ(said(failed), "the daemon of node n0 reports: rank 5 has gone; ending the job\n");
  EXPECT_TRUE(has(failed, StartTimer{kGraceMs}));
  EXPECT_TRUE(supervisor_.on_job_failed("n1", {"rank 5 has gone", "n2", Rank(5)}).empty());
  supervisor_.on_timer();
  exit(0, killed(SIGTERM));
  exit(1, killed(SIGTERM));
  EXPECT_EQ(finish(), 1);
}

const JobFailure kEnd{"the job was ended by user 0 on node n1", "n1", std::nullopt, true};

TEST_F(SupervisorTest, AJobThatSomebodyEndsHasACodeOfItsOwnWhateverItsRanksMakeOfIt) {
  start(2);
  const Actions ended = supervisor_.on_job_failed("n0", kEnd);
  EXPECT_EQ(
      said(ended),
      "the daemon of node n0 reports: the job was ended by user 0 on node n1; ending the job\n");
  EXPECT_TRUE(has(ended, StartTimer{kGraceMs}));
  EXPECT_TRUE(supervisor_.on_job_failed("n1", kEnd).empty()) << "it is said once";
  exit(0, kGood);
  EXPECT_EQ(said(exit(1, exited(4))), "2 ranks ended: 2 by itself\n");
  EXPECT_EQ(finish(), kEndedByRequest);
}

TEST_F(SupervisorTest, ThatIsSoAlsoWhereARankIsSeenToEndBeforeItsDaemonSaysWhy) {
  start(2);
  exit(0, exited(1));
  EXPECT_THAT(said(supervisor_.on_job_failed("n0", kEnd)), HasSubstr("ended by user 0"));
  exit(1, exited(1));
  EXPECT_EQ(finish(), kEndedByRequest);
}

TEST_F(SupervisorTest, AUserWhoHasInterruptedTheJobIsTheOneWhoEndedIt) {
  start(1);
  supervisor_.on_signal(SIGINT);
  EXPECT_TRUE(supervisor_.on_job_failed("n0", kEnd).empty());
  exit(0, killed(SIGINT));
  EXPECT_EQ(finish(), 128 + SIGINT);
}

TEST_F(SupervisorTest, AJobThatIsEndedWhileItStartsIsToo) {
  supervisor_.on_rank_started(Rank(0), 100, "n0");
  EXPECT_TRUE(has(supervisor_.on_job_failed("n0", kEnd), to_ranks(SIGKILL, {0})));
  exit(0, killed(SIGKILL));
  EXPECT_EQ(finish(), kEndedByRequest);
}

TEST_F(SupervisorTest, AfterADaemonsReportARankThatFailsItselfGivesTheCode) {
  start(2);
  supervisor_.on_job_failed("n0", {"rank 5 has gone", "n2", std::nullopt});
  EXPECT_THAT(said(exit(1, exited(4))), HasSubstr("rank 1 (pid 101)"));
  exit(0, exited(5));
  EXPECT_EQ(finish(), 4);
}

TEST_F(SupervisorTest, ABlamedRankGivesTheCodeEvenIfOthersAreSeenToEndFirst) {
  start(3);
  supervisor_.on_job_failed("n0", {"rank 2 has gone", "n1", Rank(2)});
  exit(0, exited(1));
  EXPECT_EQ(said(exit(2, killed(SIGKILL))),
            "rank 2 (pid 102) on node n1 was killed by signal 9 (Killed)\n");
  exit(1, exited(1));
  EXPECT_EQ(finish(), 137);
}

// The others once gave the code where they were quick to fail with the error that they were told.
TEST_F(SupervisorTest, ABlamedRankGivesTheCodeEvenIfItsReportComesAfterAnotherHasEnded) {
  start(3);
  EXPECT_THAT(said(exit(0, exited(3))), HasSubstr("rank 0 (pid 100)"));
  EXPECT_EQ(said(supervisor_.on_job_failed("n0", {"rank 2 has gone", "n1", Rank(2)})), "");
  EXPECT_EQ(said(exit(2, exited(7))), "rank 2 (pid 102) on node n1 exited with status 7\n");
  exit(1, exited(3));
  EXPECT_EQ(finish(), 7);
}

TEST_F(SupervisorTest, ABlamedRankGivesTheCodeEvenIfItsReportComesAfterItHasEnded) {
  start(3);
  exit(0, exited(3));
  EXPECT_EQ(said(exit(2, exited(7))), "");
  EXPECT_EQ(said(supervisor_.on_job_failed("n0", {"rank 2 has gone", "n1", Rank(2)})),
            "rank 2 (pid 102) on node n1 exited with status 7\n");
  EXPECT_EQ(said(exit(1, exited(3))), "2 other ranks ended: 2 by itself\n");
  EXPECT_EQ(finish(), 7);
}

TEST_F(SupervisorTest, WhoHasEndedTheJobIsBlamedThoughADaemonReportsIt) {
  start(2);
  exit(0, exited(3));
  EXPECT_EQ(said(supervisor_.on_job_failed("n0", {"rank 0 has gone", "n0", Rank(0)})), "");
  EXPECT_EQ(said(supervisor_.on_job_failed("n0", {"rank 9 has gone", "n2", Rank(9)})), "");
  exit(1, exited(4));
  EXPECT_EQ(finish(), 3);
}

TEST_F(SupervisorTest, PassesTheUsersSignalOnAndThenKills) {
  start(2);
  const Actions passed = supervisor_.on_signal(SIGINT);
  EXPECT_TRUE(has(passed, to_ranks(SIGINT, {0, 1})));
  EXPECT_TRUE(has(passed, StartTimer{kGraceMs}));
  EXPECT_EQ(said(exit(0, exited(1))), "");
  EXPECT_TRUE(has(supervisor_.on_timer(), to_ranks(SIGKILL, {1})));
  EXPECT_EQ(said(exit(1, killed(SIGKILL))), "2 ranks ended: 1 after SIGINT, 1 after SIGKILL\n");
  EXPECT_EQ(finish(), 130);
}

// Slurm's warning once killed the launcher, and with it the job.
TEST_F(SupervisorTest, WarningsArePassedOnAsOftenAsTheyComeAndEndNothing) {
  EXPECT_THAT(said(supervisor_.on_signal(SIGUSR1)), HasSubstr("no rank runs"));
  start(2);
  for (int i = 0; i < 3; ++i) {
    const Actions passed = supervisor_.on_signal(i == 1 ? SIGUSR2 : SIGUSR1);
    EXPECT_TRUE(has(passed, to_ranks(i == 1 ? SIGUSR2 : SIGUSR1, {0, 1})));
    EXPECT_FALSE(has(passed, StartTimer{kGraceMs}));
  }
  exit(0, exited(0));
  EXPECT_TRUE(has(supervisor_.on_signal(SIGUSR1), to_ranks(SIGUSR1, {1})));
  exit(1, exited(0));
  EXPECT_EQ(finish(), 0);
}

TEST_F(SupervisorTest, TheSecondSignalKillsAtOnceDaemonsToo) {
  start(1);
  supervisor_.on_signal(SIGTERM);
  EXPECT_TRUE(has(supervisor_.on_signal(SIGINT), to_ranks(SIGKILL, {0})));
  exit(0, killed(SIGKILL));
  EXPECT_TRUE(has(supervisor_.on_drained(), CancelLinks{}));
  EXPECT_TRUE(has(supervisor_.on_links_closed(), SignalDaemons{SIGKILL}));
  EXPECT_TRUE(has(supervisor_.on_daemons_gone(), Finish{128 + SIGTERM}));
}

TEST_F(SupervisorTest, ASignalDuringTheGraceKeepsTheFailuresCode) {
  start(2);
  exit(0, exited(3));
  EXPECT_TRUE(has(supervisor_.on_signal(SIGINT), to_ranks(SIGINT, {1})));
  exit(1, killed(SIGINT));
  EXPECT_EQ(finish(), 3);
}

TEST_F(SupervisorTest, ASignalWhileStartingEndsWithoutRanks) {
  EXPECT_TRUE(has(supervisor_.on_signal(SIGINT), CloseLinks{}));
  EXPECT_TRUE(supervisor_.on_start_failed(1, "too late to matter").empty());
  EXPECT_TRUE(has(supervisor_.on_links_closed(), SignalDaemons{SIGTERM}));
  EXPECT_TRUE(has(supervisor_.on_daemons_gone(), Finish{130}));
}

TEST_F(SupervisorTest, AFailedStartEndsTheRanksThatHadStarted) {
  supervisor_.on_rank_started(Rank(0), 100, "n0");
  const Actions failed = supervisor_.on_start_failed(127, "no program");
  EXPECT_EQ(said(failed), "no program\n");
  EXPECT_TRUE(has(failed, to_ranks(SIGKILL, {0})));
  EXPECT_TRUE(has(exit(0, killed(SIGKILL)), DrainRanks{}));
  EXPECT_EQ(finish(), 127);
}

TEST_F(SupervisorTest, ALostDaemonWhileStartingIsAFailedStart) {
  const Actions lost = supervisor_.on_link_lost("n0", "it said no");
  EXPECT_EQ(said(lost), "the daemon of node n0 did not take the job: it said no\n");
  EXPECT_TRUE(has(lost, CloseLinks{}));
}

TEST_F(SupervisorTest, ARefusedJobIsAFailedStart) {
  const Actions refused = supervisor_.on_job_failed("n0", {"too many jobs", "n0", std::nullopt});
  EXPECT_THAT(said(refused), HasSubstr("too many jobs"));
  EXPECT_TRUE(has(refused, CloseLinks{}));
}

TEST_F(SupervisorTest, ADeadDaemonEndsTheJobWithOneWhateverTheRanksSay) {
  start(2);
  const Actions dead = supervisor_.on_daemon_exit("n1", 77, killed(SIGKILL));
  EXPECT_EQ(said(dead),
            "the daemon of node n1 (pid 77) was killed by signal 9 (Killed); ending the job\n");
  EXPECT_TRUE(has(dead, StartTimer{kGraceMs}));
  EXPECT_TRUE(supervisor_.on_link_lost("n1", "reset").empty());
  exit(0, exited(9));
  exit(1, exited(9));
  EXPECT_EQ(finish(), 1);
}

TEST_F(SupervisorTest, ADeadDaemonIsNamedEvenIfItsStreamWasSeenToEndFirst) {
  start(1);
  EXPECT_THAT(said(supervisor_.on_link_lost("n0", "reset")), HasSubstr("reset; ending the job"));
  EXPECT_EQ(said(supervisor_.on_daemon_exit("n0", 77, killed(SIGSEGV))),
            "the daemon of node n0 (pid 77) was killed by signal 11 (Segmentation fault)\n");
  exit(0, exited(9));
  EXPECT_EQ(finish(), 1);
}

// A daemon that is killed while it delivers would take another node's results with it.
TEST_F(SupervisorTest, ADaemonThatStillDeliversIsNotKilled) {
  start(1);
  exit(0, kGood);
  supervisor_.on_drained();
  EXPECT_TRUE(has(supervisor_.on_links_closed(), SignalDaemons{SIGTERM}));
  const Actions first = supervisor_.on_daemon_delivering("n0");
  EXPECT_TRUE(has(first, StartTimer{kGraceMs}));
  EXPECT_TRUE(has(first, Say{"the daemon of node n0 still hands on data that other nodes wait for; "
                             "waiting for it (two signals kill it)"}));
  EXPECT_EQ(supervisor_.on_daemon_delivering("n0"), (Actions{StartTimer{kGraceMs}})) << "said once";
  const Actions silent = supervisor_.on_timer();
  EXPECT_TRUE(has(silent, SignalDaemons{SIGKILL}));
  EXPECT_EQ(all_of_kind<Say>(silent).size(), 1u) << "not in silence";
}

TEST_F(SupervisorTest, TheUserMayKillADaemonThatStillDelivers) {
  start(1);
  exit(0, kGood);
  supervisor_.on_drained();
  supervisor_.on_links_closed();
  supervisor_.on_daemon_delivering("n0");
  supervisor_.on_signal(SIGINT);
  EXPECT_TRUE(has(supervisor_.on_signal(SIGINT), SignalDaemons{SIGKILL}));
  EXPECT_TRUE(supervisor_.on_daemon_delivering("n0").empty());
}

TEST_F(SupervisorTest, NothingThatHangsKeepsItFromEnding) {
  start(1);
  exit(0, kGood);
  const Actions closing = supervisor_.on_drained();
  EXPECT_TRUE(has(closing, StartTimer{Supervisor::kCloseLinksMs}));
  EXPECT_TRUE(has(supervisor_.on_timer(), CancelLinks{}));
  EXPECT_TRUE(has(supervisor_.on_links_closed(), StartTimer{kGraceMs}));
  EXPECT_TRUE(has(supervisor_.on_timer(), SignalDaemons{SIGKILL}));
  // The launcher's own daemons end because they were told to, which is not reported.
  EXPECT_TRUE(supervisor_.on_daemon_exit("n0", 77, killed(SIGKILL)).empty());
  EXPECT_TRUE(has(supervisor_.on_daemons_gone(), Finish{0}));
}

// --- Elastic jobs --------------------------------------------------------------------------------

class ElasticSupervisorTest : public SupervisorTest {
 protected:
  void make(int min_ranks, int max_restarts = 3) {
    supervisor_ =
        Supervisor(kGraceMs, ElasticSettings{.min_ranks = min_ranks, .max_restarts = max_restarts});
    start(3);
  }
  Actions exit(int rank, const ExitStatus& status, int64_t now_ms = 0) {
    return supervisor_.on_rank_exit(Rank(rank), status, now_ms);
  }
  // Starts the rank again, and returns after what time it was to be.
  int64_t start_again(int rank, const Actions& died) {
    const auto awaited = all_of_kind<AwaitRestart>(died);
    EXPECT_EQ(awaited.size(), 1u);
    EXPECT_TRUE(has(supervisor_.on_restart_due(Rank(rank)), RestartRank{Rank(rank)}));
    supervisor_.on_rank_started(Rank(rank), 200 + rank, "n0");
    return awaited.empty() ? -1 : awaited[0].after_ms;
  }
};

TEST_F(ElasticSupervisorTest, TheOthersGoOnAndWhoDiedIsStartedAgain) {
  make(2);
  const Actions died = exit(1, killed(SIGKILL));
  EXPECT_EQ(
      said(died),
      "slot 1 (pid 101) on node n0 was killed by signal 9 (Killed); 2 others go on, and it is "
      "started again in 1 s\n");
  EXPECT_TRUE(all_of_kind<SignalRanks>(died).empty());
  EXPECT_EQ(all_of_kind<ReportRankFailed>(died).size(), 1u);
  EXPECT_EQ(start_again(1, died), 1'000);
  EXPECT_TRUE(has(exit(0, kGood), ReportRankEnded{Rank(0)}));
  exit(1, kGood);
  EXPECT_TRUE(has(exit(2, kGood), DrainRanks{}));
  EXPECT_EQ(finish(), 0);
}

TEST_F(ElasticSupervisorTest, ItIsStartedLaterEachTimeAndAtLastNoMore) {
  make(2, 3);
  EXPECT_EQ(start_again(1, exit(1, exited(1), 0)), 1'000);
  EXPECT_EQ(start_again(1, exit(1, exited(1), 2'000)), 2'000);
  EXPECT_EQ(start_again(1, exit(1, exited(1), 5'000)), 4'000);
  const Actions last = exit(1, exited(1), 10'000);
  EXPECT_THAT(said(last), HasSubstr("given up: it was started again 3 times (--max-restarts)"));
  EXPECT_TRUE(all_of_kind<AwaitRestart>(last).empty());
  EXPECT_TRUE(all_of_kind<SignalRanks>(last).empty());
}

TEST_F(ElasticSupervisorTest, DeathsOfLongAgoDoNotCount) {
  make(2, 1);
  EXPECT_EQ(start_again(1, exit(1, exited(1), 0)), 1'000);
  EXPECT_EQ(start_again(1, exit(1, exited(1), 600'001)), 1'000);
}

TEST_F(ElasticSupervisorTest, WithTooFewForEverTheJobEnds) {
  make(3, 0);
  const Actions died = exit(1, exited(7));
  EXPECT_THAT(said(died), HasSubstr("fewer ranks than --min-np 3 are left here"));
  EXPECT_THAT(said(died), HasSubstr("ending the job"));
  EXPECT_EQ(all_of_kind<StartTimer>(died).size(), 1u);
  EXPECT_TRUE(has(supervisor_.on_timer(), to_ranks(SIGTERM, {0, 2})));
  exit(0, exited(1));
  EXPECT_TRUE(has(exit(2, exited(1)), DrainRanks{}));
  EXPECT_EQ(finish(), 7);
}

TEST_F(ElasticSupervisorTest, ADaemonIsFollowedByAnotherAndItsRanksStay) {
  make(1, 3);
  const Actions died = supervisor_.on_daemon_exit("n1", 300, killed(SIGKILL), 0);
  EXPECT_THAT(said(died), HasSubstr("its ranks go on with the daemon that follows it"));
  EXPECT_TRUE(has(died, ReviveNode{"n1", 0}));
  EXPECT_TRUE(all_of_kind<SignalRanks>(died).empty());
  // Its stream ends, too.
  EXPECT_TRUE(supervisor_.on_link_lost("n1", "Socket closed", 1).empty());
  EXPECT_TRUE(has(supervisor_.on_revival_failed("n1", "nobody listens", 5), ReviveNode{"n1", 100}));
  EXPECT_TRUE(has(supervisor_.on_revival_failed("n1", "nobody listens", 9), ReviveNode{"n1", 200}));
  EXPECT_THAT(said(supervisor_.on_node_revived("n1")), HasSubstr("node n1 has a daemon again"));
  EXPECT_TRUE(has(supervisor_.on_link_lost("n1", "Socket closed", 20), ReviveNode{"n1", 0}));
}

TEST_F(ElasticSupervisorTest, ADaemonThatDiesAgainAndAgainEndsTheJob) {
  make(1, 1);
  EXPECT_TRUE(has(supervisor_.on_link_lost("n1", "Socket closed", 0), ReviveNode{"n1", 0}));
  supervisor_.on_node_revived("n1");
  const Actions again = supervisor_.on_link_lost("n1", "Socket closed", 1'000);
  EXPECT_THAT(said(again), HasSubstr("as often as 2 times in 10 minutes (--max-restarts)"));
  EXPECT_THAT(said(again), HasSubstr("ending the job"));
  EXPECT_EQ(all_of_kind<StartTimer>(again).size(), 1u);
}

TEST_F(ElasticSupervisorTest, ADaemonThatDoesNotComeBackEndsTheJob) {
  make(1, 3);
  supervisor_.on_link_lost("n1", "Socket closed", 0);
  const Actions late = supervisor_.on_revival_failed("n1", "nobody listens", 600'000);
  EXPECT_THAT(said(late), HasSubstr("no daemon again within --elastic-timeout: nobody listens"));
  EXPECT_TRUE(all_of_kind<ReviveNode>(late).empty());
  EXPECT_EQ(all_of_kind<StartTimer>(late).size(), 1u);
}

TEST_F(ElasticSupervisorTest, WhoComesWhenOthersHaveFinishedIsEndedAndThatIsNoFailure) {
  make(1, 3);
  start_again(2, exit(2, exited(1), 0));
  exit(0, kGood);
  exit(1, kGood);
  const Actions unneeded = supervisor_.on_rank_unneeded(Rank(2));
  EXPECT_THAT(said(unneeded), HasSubstr("comes too late"));
  EXPECT_TRUE(has(unneeded, to_ranks(SIGKILL, {2})));
  EXPECT_TRUE(supervisor_.on_rank_unneeded(Rank(2)).empty());
  EXPECT_TRUE(has(exit(2, killed(SIGKILL)), DrainRanks{}));
  EXPECT_EQ(finish(), 0);
}

TEST_F(ElasticSupervisorTest, NobodyIsStartedAgainOnceOthersHaveFinished) {
  make(1);
  EXPECT_EQ(all_of_kind<AwaitRestart>(exit(0, exited(1))).size(), 1u);
  exit(1, kGood);
  EXPECT_TRUE(supervisor_.on_restart_due(Rank(0)).empty());
  const Actions died = exit(2, exited(1));
  EXPECT_TRUE(all_of_kind<AwaitRestart>(died).empty());
  EXPECT_TRUE(has(died, DrainRanks{}));
  EXPECT_EQ(finish(), 0) << "one has finished";
}

TEST_F(ElasticSupervisorTest, WithoutOneThatFinishesTheCodeIsThatOfTheLastDeath) {
  make(1, 0);
  exit(0, exited(4));
  exit(1, exited(5));
  EXPECT_THAT(said(exit(2, exited(6))), HasSubstr("no rank is left here"));
  EXPECT_EQ(finish(), 6);
}

TEST_F(ElasticSupervisorTest, WhoAllDieTogetherAreStartedAgain) {
  make(2);
  EXPECT_EQ(all_of_kind<AwaitRestart>(exit(0, killed(SIGKILL))).size(), 1u);
  EXPECT_EQ(all_of_kind<AwaitRestart>(exit(1, killed(SIGKILL))).size(), 1u);
  const Actions last = exit(2, killed(SIGKILL));
  EXPECT_EQ(all_of_kind<AwaitRestart>(last).size(), 1u);
  EXPECT_TRUE(all_of_kind<DrainRanks>(last).empty());
}

TEST_F(ElasticSupervisorTest, WhoStandsStillIsKilledAndStartedAgain) {
  make(1);
  const Actions silent = supervisor_.on_rank_silent(Rank(1), "slot 1 has not come back");
  EXPECT_EQ(said(silent), "slot 1 has not come back: killing it (--rank-timeout)\n");
  EXPECT_TRUE(has(silent, to_ranks(SIGKILL, {1})));
  EXPECT_EQ(all_of_kind<AwaitRestart>(exit(1, killed(SIGKILL))).size(), 1u);
  EXPECT_TRUE(supervisor_.on_rank_silent(Rank(1), "").empty()) << "it has ended";
}

TEST_F(ElasticSupervisorTest, WhatCannotBeStartedAgainIsSaid) {
  make(3);
  exit(0, killed(SIGKILL));
  supervisor_.on_restart_due(Rank(0));
  const Actions failed = supervisor_.on_restart_failed(Rank(0), "no such program");
  EXPECT_THAT(said(failed), HasSubstr("slot 0 cannot be started again: no such program"));
  EXPECT_EQ(all_of_kind<StartTimer>(failed).size(), 1u) << "the job ends";
}

TEST_F(ElasticSupervisorTest, ADaemonThatDiesWhileNobodyRunsEndsIt) {
  make(1, 1);
  supervisor_.on_daemon_exit("n0", 76, killed(SIGKILL));
  supervisor_.on_node_revived("n0");
  for (int rank : {0, 1, 2}) exit(rank, killed(SIGKILL));
  EXPECT_TRUE(has(supervisor_.on_daemon_exit("n0", 77, killed(SIGKILL)), DrainRanks{}));
  EXPECT_TRUE(supervisor_.on_restart_due(Rank(0)).empty());
  EXPECT_EQ(finish(), 1);
}

TEST_F(ElasticSupervisorTest, AUsersSignalEndsIt) {
  make(1);
  exit(0, killed(SIGKILL));
  EXPECT_TRUE(has(supervisor_.on_signal(SIGTERM), to_ranks(SIGTERM, {1, 2})));
  EXPECT_TRUE(supervisor_.on_restart_due(Rank(0)).empty());
  exit(1, killed(SIGTERM));
  EXPECT_TRUE(has(exit(2, killed(SIGTERM)), DrainRanks{}));
  EXPECT_EQ(finish(), 128 + SIGTERM);
}

TEST_F(ElasticSupervisorTest, NewSlotsAreStartedAndThoseThatGoAreNotStartedAgain) {
  make(1);
  const std::vector<Rank> four{Rank(0), Rank(1), Rank(2), Rank(3)};
  const Actions more = supervisor_.on_slots_wanted(four);
  EXPECT_TRUE(has(more, TellSlots{4}));
  EXPECT_EQ(all_of_kind<RestartRank>(more), std::vector<RestartRank>{{Rank(3)}});
  supervisor_.on_rank_started(Rank(3), 103, "n0");
  const Actions fewer = supervisor_.on_slots_wanted({Rank(0), Rank(1)});
  EXPECT_TRUE(has(fewer, TellSlots{2}));
  EXPECT_TRUE(all_of_kind<SignalRanks>(fewer).empty()) << "they leave between two steps";
  // The daemon says that they have left.
  for (const int slot : {2, 3}) {
    const Actions left = supervisor_.on_rank_unneeded(Rank(slot));
    EXPECT_TRUE(has(left, to_ranks(SIGKILL, {slot})));
    const Actions ended = exit(slot, killed(SIGKILL));
    EXPECT_TRUE(all_of_kind<AwaitRestart>(ended).empty());
    EXPECT_TRUE(all_of_kind<ReportRankEnded>(ended).empty()) << "that is no good end of the job";
  }
  // Others are started again all the same.
  EXPECT_EQ(start_again(0, exit(0, killed(SIGKILL))), 1'000);
  const Actions again = supervisor_.on_slots_wanted({Rank(0), Rank(1), Rank(2)});
  EXPECT_EQ(all_of_kind<RestartRank>(again), std::vector<RestartRank>{{Rank(2)}});
}

TEST_F(ElasticSupervisorTest, ASlotThatGoesWhileItsProcessWaitsToBeStartedIsNotStarted) {
  make(1);
  ASSERT_EQ(all_of_kind<AwaitRestart>(exit(2, killed(SIGKILL))).size(), 1u);
  supervisor_.on_slots_wanted({Rank(0), Rank(1)});
  EXPECT_TRUE(supervisor_.on_restart_due(Rank(2)).empty());
  EXPECT_EQ(all_of_kind<RestartRank>(supervisor_.on_slots_wanted({Rank(0), Rank(1), Rank(2)})),
            std::vector<RestartRank>{{Rank(2)}});
}

TEST_F(ElasticSupervisorTest, WhoeverEndsWellHasEndedWellThoughItsSlotIsGone) {
  make(1);
  supervisor_.on_slots_wanted({});
  for (const int slot : {0, 1}) {
    EXPECT_TRUE(has(exit(slot, kGood), ReportRankEnded{Rank(slot)}));
  }
  EXPECT_TRUE(has(exit(2, kGood), DrainRanks{})) << "nobody waits for the host's next slots";
  EXPECT_EQ(finish(), 0);
}

TEST_F(ElasticSupervisorTest, BelowMinNpByTheListADeathIsNoEnd) {
  make(2);
  supervisor_.on_slots_wanted({Rank(0)});
  for (const int slot : {1, 2}) exit(slot, killed(SIGKILL));
  EXPECT_EQ(start_again(0, exit(0, killed(SIGKILL))), 1'000);
}

TEST_F(ElasticSupervisorTest, AHostWithoutSlotsWaitsForSomeAndThenLeaves) {
  make(1);
  supervisor_.on_slots_wanted({});
  for (const int slot : {0, 1}) exit(slot, killed(SIGKILL));
  const Actions last = exit(2, killed(SIGKILL));
  EXPECT_THAT(said(last), HasSubstr("waiting for its next ones for 600 s (--elastic-timeout)"));
  ASSERT_EQ(all_of_kind<AwaitSlots>(last), std::vector<AwaitSlots>{{600'000}});
  supervisor_.on_slots_wanted({Rank(0)});
  EXPECT_TRUE(supervisor_.on_slots_overdue().empty()) << "one has come";
  supervisor_.on_rank_started(Rank(0), 300, "n0");
  supervisor_.on_slots_wanted({});
  EXPECT_EQ(all_of_kind<AwaitSlots>(exit(0, killed(SIGKILL))).size(), 1u);
  const Actions overdue = supervisor_.on_slots_overdue();
  EXPECT_TRUE(has(overdue, DrainRanks{}));
  EXPECT_EQ(finish(), 0);
}

TEST_F(ElasticSupervisorTest, OfAJobThatSomebodyHasEndedNothingIsStartedAgain) {
  make(1);
  exit(2, killed(SIGKILL));
  const Actions ended = supervisor_.on_job_failed("n0", kEnd);
  EXPECT_THAT(said(ended), HasSubstr("the job was ended by user 0 on node n1; ending the job"));
  EXPECT_TRUE(supervisor_.on_restart_due(Rank(2)).empty());
  EXPECT_TRUE(all_of_kind<ReviveNode>(supervisor_.on_link_lost("n0", "it has gone")).empty());
  exit(0, exited(1));
  EXPECT_TRUE(has(exit(1, exited(1)), DrainRanks{}));
  EXPECT_EQ(finish(), kEndedByRequest);
}

TEST_F(ElasticSupervisorTest, NorWhereNobodyRunsAtThatMoment) {
  make(1);
  for (const int slot : {0, 1, 2}) exit(slot, killed(SIGKILL));
  EXPECT_TRUE(has(supervisor_.on_job_failed("n0", kEnd), DrainRanks{}));
  EXPECT_EQ(finish(), kEndedByRequest);
}

}  // namespace
}  // namespace rueda::agent
