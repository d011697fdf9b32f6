// Tests ruedarun from the outside on one node, with a fake daemon and shells as ranks.
#include <algorithm>
#include <chrono>
#include <set>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "agent/base/text.h"
#include "daemon/base/rank_token.h"
#include "tests/agent/fake_daemon.h"
#include "tests/agent/program.h"

namespace rueda::test {
namespace {

using testing::HasSubstr;
using testing::Not;

std::multiset<std::string> lines_of(const std::string& text) {
  std::multiset<std::string> out;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) out.insert(line);
  return out;
}

class RuedarunTest : public testing::Test {
 protected:
  // Starts ruedarun with the fake daemon and `flags`; each rank is a shell with `script`.
  Program run(const std::vector<std::string>& flags, const std::string& script) {
    std::vector<std::string> argv{kRuedarun, "--socket", fake_.socket()};
    argv.insert(argv.end(), flags.begin(), flags.end());
    argv.insert(argv.end(), {"/bin/sh", "-c", script});
    return Program(std::move(argv));
  }

  FakeDaemon fake_{unique_socket(), "n1"};
};

TEST_F(RuedarunTest, StartsRanksAndPrefixesTheirOutput) {
  Program program = run({"-np", "2"},
                        "echo out $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK; "
                        "echo err $RUEDA_HTTP_ADDRESSES >&2; printf 'no end'");
  EXPECT_EQ(program.wait(), 0);
  EXPECT_EQ(lines_of(program.out()),
            (std::multiset<std::string>{"[0] out 0/2 0/2 0", "[0] no end", "[1] out 1/2 1/2 0",
                                        "[1] no end"}));
  EXPECT_EQ(lines_of(program.err()),
            (std::multiset<std::string>{"[0] err 127.0.0.1:2", "[1] err 127.0.0.1:2"}));
}

TEST_F(RuedarunTest, RegistersTheJobThatItsRanksAreToldOf) {
  Program program = run({"-np", "3", "--no-prefix"},
                        "[ $RANK = 0 ] && echo $RUEDA_JOB_ID $(cat /dev/fd/$RUEDA_JOB_TOKEN_FD) "
                        "$RUEDA_SOCKET; :");
  EXPECT_EQ(program.wait(), 0);
  const auto jobs = fake_.wait_for_jobs(1);
  ASSERT_EQ(jobs.size(), 1u);
  const v1::JobSpec& job = jobs[0];
  const std::string token = agent::to_hex(rank_token(job.token(), job.job_id(), Rank{0}));
  EXPECT_EQ(job.token().size(), 32u);
  EXPECT_THAT(job.job_id(), testing::MatchesRegex("job-[0-9a-f]+"));
  EXPECT_EQ(job.job_id().size(), 16u);
  EXPECT_EQ(program.out(), job.job_id() + " " + token + " " + fake_.socket() + "\n");
  EXPECT_FALSE(job.user().empty());
  ASSERT_EQ(job.nodes_size(), 1);
  EXPECT_EQ(job.nodes(0).node_id(), "n1");
  EXPECT_EQ(job.nodes(0).ranks_size(), 3);
  EXPECT_EQ(job.start_timeout_ms(), 60000);
  EXPECT_FALSE(job.has_stall_check_ms());
  EXPECT_FALSE(job.has_stall_shutdown_ms());
  EXPECT_TRUE(fake_.wait_for_job_end());
}

// The ranks look through all of their descriptors: one too many would be there, too.
TEST_F(RuedarunTest, ARankHasItsOwnTokenAndNoOther) {
  Program program =
      run({"-np", "2", "--no-prefix"},
          "for fd in /proc/$$/fd/*; do case $(readlink $fd) in *rueda-rank-token*) echo "
          "rank$RANK=$(basename $fd)/$RUEDA_JOB_TOKEN_FD/$(cat $fd);; esac; done; "
          "env | grep RUEDA_JOB_TOKEN= || echo none in the environment");
  EXPECT_EQ(program.wait(), 0) << program.err();
  const v1::JobSpec job = fake_.wait_for_jobs(1).at(0);
  std::multiset<std::string> expected{"none in the environment", "none in the environment"};
  for (const int rank : {0, 1}) {
    const std::string key = "rank" + std::to_string(rank) + "=";
    const std::string fd = std::to_string(number_after(program.out(), key));
    expected.insert(key + fd + "/" + fd + "/" +
                    agent::to_hex(rank_token(job.token(), job.job_id(), Rank{rank})));
  }
  EXPECT_EQ(lines_of(program.out()), expected);
}

TEST_F(RuedarunTest, ATokenMayStandInTheEnvironment) {
  Program program({kRuedarun, "--socket", fake_.socket(), "--no-prefix", "--token-in-environment",
                   "/bin/sh", "-c", "echo $RUEDA_JOB_TOKEN/$RUEDA_JOB_TOKEN_FD"},
                  {{"RUEDA_JOB_TOKEN", "another"}, {"RUEDA_JOB_TOKEN_FD", "77"}});
  EXPECT_EQ(program.wait(), 0) << program.err();
  const v1::JobSpec job = fake_.wait_for_jobs(1).at(0);
  EXPECT_EQ(program.out(), agent::to_hex(rank_token(job.token(), job.job_id(), Rank{0})) + "/\n");
}

TEST_F(RuedarunTest, RegistersTheJobsStallTimes) {
  Program program({kRuedarun, "--socket", fake_.socket(), "--stall-check-seconds", "0", "true"},
                  {{"RUEDA_STALL_SHUTDOWN_TIME_SECONDS", "90"}});
  EXPECT_EQ(program.wait(), 0) << program.err();
  const auto jobs = fake_.wait_for_jobs(1);
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_TRUE(jobs[0].has_stall_check_ms());
  EXPECT_EQ(jobs[0].stall_check_ms(), 0);
  EXPECT_EQ(jobs[0].stall_shutdown_ms(), 90'000);
}

TEST_F(RuedarunTest, ProgramsKeepTheirFlags) {
  Program program({kRuedarun, "--socket", fake_.socket(), "--", "printf", "%s.", "-np", "--grace"});
  EXPECT_EQ(program.wait(), 0);
  EXPECT_EQ(program.out(), "[0] -np.--grace.\n");
}

TEST_F(RuedarunTest, AFailingRankEndsTheJobWithItsStatus) {
  Program program =
      run({"-np", "3", "--grace", "0.1"}, "if [ $RANK = 1 ]; then exit 3; fi; exec sleep 1000");
  EXPECT_EQ(program.wait(), 3);
  EXPECT_THAT(program.err(), HasSubstr("ruedarun: rank 1 (pid "));
  EXPECT_THAT(program.err(), HasSubstr(") on node n1 exited with status 3; ending the job\n"));
  EXPECT_THAT(program.err(), HasSubstr("ruedarun: 2 other ranks ended: 2 after SIGTERM\n"));
  const v1::RankFailed failed = fake_.wait_for_rank_failed();
  EXPECT_EQ(failed.rank(), 1);
  EXPECT_THAT(failed.text(), HasSubstr("exited with status 3"));
}

TEST_F(RuedarunTest, TheLastWordsOfAFailingRankComeBeforeTheNewsOfItsEnd) {
  Program program = run({}, "echo 'what went wrong' >&2; exit 1");
  EXPECT_EQ(program.wait(), 1);
  const size_t words = program.err().find("[0] what went wrong");
  const size_t news = program.err().find("exited with status 1");
  ASSERT_NE(words, std::string::npos);
  ASSERT_NE(news, std::string::npos);
  EXPECT_LT(words, news);
}

TEST_F(RuedarunTest, AKilledRankEndsTheJobWith128More) {
  Program program =
      run({"-np", "2", "--grace", "0.1"}, "if [ $RANK = 0 ]; then kill -9 $$; fi; exec sleep 1000");
  EXPECT_EQ(program.wait(), 137);
  EXPECT_THAT(program.err(), HasSubstr("was killed by signal 9 (Killed); ending the job"));
}

TEST_F(RuedarunTest, AKilledRankIsBlamedThoughARankThatHeardOfItIsSeenFirst) {
  Program program = run({"-np", "2", "--grace", "0.1"},
                        "[ $RANK = 0 ] && trap 'exit 3' USR1; echo self=$$; "
                        "while :; do sleep 0.05; done");
  ASSERT_TRUE(program.wait_for_output("[0] self="));
  ASSERT_TRUE(program.wait_for_output("[1] self="));
  const pid_t heard = number_after(program.out(), "[0] self=");
  const pid_t killed = number_after(program.out(), "[1] self=");
  program.send_signal(SIGSTOP);  // the launcher is to see both deaths at once
  ::kill(heard, SIGUSR1);
  ASSERT_TRUE(is_gone(heard));
  ::kill(killed, SIGKILL);
  ASSERT_TRUE(is_gone(killed));
  program.send_signal(SIGCONT);
  EXPECT_EQ(program.wait(), 137);
  EXPECT_THAT(program.err(), HasSubstr("was killed by signal 9 (Killed); ending the job"));
}

TEST_F(RuedarunTest, ARankThatIgnoresSigtermIsKilled) {
  Program program =
      run({"-np", "2", "--grace", "0.2"},
          "if [ $RANK = 0 ]; then trap '' TERM; echo ignoring; while :; do sleep 0.05; done; fi; "
          "exit 4");
  EXPECT_EQ(program.wait(), 4);
  EXPECT_THAT(program.err(), HasSubstr("1 other rank ended: 1 after SIG"));
}

TEST_F(RuedarunTest, NamesAMissingProgram) {
  Program program({kRuedarun, "-np", "2", "--socket", fake_.socket(), "no-such-program-here"});
  EXPECT_EQ(program.wait(), 127);
  EXPECT_THAT(program.err(), HasSubstr("\"no-such-program-here\""));
  Program other({kRuedarun, "--socket", fake_.socket(), "/etc/passwd"});
  EXPECT_EQ(other.wait(), 126);
}

TEST_F(RuedarunTest, NamesAMissingDaemon) {
  Program program({kRuedarun, "--socket", "/nowhere/x.sock", "true"});
  EXPECT_EQ(program.wait(), 1);
  EXPECT_THAT(program.err(), HasSubstr("no daemon answers at /nowhere/x.sock"));
  EXPECT_THAT(program.err(), HasSubstr("ruedad --socket /nowhere/x.sock"));
  Program from_environment({kRuedarun, "true"}, {{"RUEDA_SOCKET", "@nobody-here"}});
  EXPECT_EQ(from_environment.wait(), 1);
  EXPECT_THAT(from_environment.err(), HasSubstr("@nobody-here"));
}

TEST_F(RuedarunTest, SaysWhyADaemonRefusesTheJob) {
  fake_.refuse_jobs("this node is full");
  Program program = run({}, "echo must not run");
  EXPECT_EQ(program.wait(), 1);
  EXPECT_EQ(program.out(), "");
  EXPECT_THAT(program.err(), HasSubstr("the daemon of node n1 reports: this node is full"));
}

TEST_F(RuedarunTest, EndsWhenADaemonReportsAFailureElsewhere) {
  Program program = run({"-np", "2", "--grace", "0.1"}, "echo up; exec sleep 1000");
  ASSERT_TRUE(program.wait_for_output("[0] up"));
  ASSERT_TRUE(program.wait_for_output("[1] up"));
  fake_.fail_job("rank 7 on node b has gone", 7);
  EXPECT_EQ(program.wait(), 1);
  EXPECT_THAT(program.err(), HasSubstr("rank 7 on node b has gone; ending the job"));
  EXPECT_THAT(program.err(), HasSubstr("2 ranks ended: 2 after SIGTERM"));
}

TEST_F(RuedarunTest, PassesInterruptsOnAndLeavesNothing) {
  // The child in the background stands for a data loader: it must not survive its rank.
  Program program = run({"-np", "2"},
                        "trap 'echo interrupted; exit 5' INT; sleep 1000 & echo loader=$!; "
                        "echo self=$$; echo up; wait");
  ASSERT_TRUE(program.wait_for_output("[0] up"));
  ASSERT_TRUE(program.wait_for_output("[1] up"));
  program.send_signal(SIGINT);
  EXPECT_EQ(program.wait(), 130);
  EXPECT_THAT(program.out(), HasSubstr("[0] interrupted"));
  EXPECT_THAT(program.out(), HasSubstr("[1] interrupted"));
  EXPECT_THAT(program.err(), HasSubstr("got SIGINT; passing it on to 2 ranks"));
  for (const char* key : {"[0] loader=", "[0] self=", "[1] loader=", "[1] self="}) {
    EXPECT_TRUE(is_gone(number_after(program.out(), key))) << key;
  }
}

TEST_F(RuedarunTest, PassesWarningsOnAndGoesOn) {
  Program program = run({"-np", "2"},
                        "trap 'echo warned' USR1; trap 'echo saved; exit 0' USR2; echo up; "
                        "while :; do sleep 0.05; done");
  ASSERT_TRUE(program.wait_for_output("[0] up"));
  ASSERT_TRUE(program.wait_for_output("[1] up"));
  program.send_signal(SIGUSR1);
  ASSERT_TRUE(program.wait_for_output("[0] warned"));
  ASSERT_TRUE(program.wait_for_output("[1] warned"));
  program.send_signal(SIGUSR2);
  EXPECT_EQ(program.wait(), 0);
  EXPECT_THAT(program.out(), HasSubstr("[0] saved"));
  EXPECT_THAT(program.out(), HasSubstr("[1] saved"));
  EXPECT_THAT(program.err(), HasSubstr("got SIGUSR1; passing it on to 2 ranks"));
}

TEST_F(RuedarunTest, ASecondInterruptKillsAtOnce) {
  Program program = run({"--grace", "1000"}, "trap '' INT; echo up; while :; do sleep 0.05; done");
  ASSERT_TRUE(program.wait_for_output("[0] up"));
  program.send_signal(SIGTERM);
  ASSERT_TRUE(program.wait_for_output("got SIGTERM"));
  program.send_signal(SIGINT);
  EXPECT_EQ(program.wait(), 143);
}

TEST_F(RuedarunTest, ASecondInterruptDoesNotWaitForWhatARankLeft) {
  Program program = run({"--grace", "1000"},
                        "(trap '' TERM; echo left; while :; do sleep 0.05; done) & sleep 0.1");
  ASSERT_TRUE(program.wait_for_output("the ranks have ended and left "));
  program.send_signal(SIGINT);
  program.send_signal(SIGTERM);
  EXPECT_EQ(program.wait(), 0) << "the job had ended well";
}

TEST_F(RuedarunTest, DoesNotWaitForWhatARankLeavesBehind) {
  Program program = run({}, "sleep 1000 & echo left=$!");
  EXPECT_EQ(program.wait(), 0);
  const int left = number_after(program.out(), "left=");
  ASSERT_GT(left, 0);
  EXPECT_TRUE(is_gone(left));
}

TEST_F(RuedarunTest, TakesTheLastWordsOfAProcessThatOutlivesItsRank) {
  Program program = run({}, "(sleep 0.2; echo late) & exit 0");
  EXPECT_EQ(program.wait(), 0);
  EXPECT_EQ(program.out(), "[0] late\n");
}

TEST_F(RuedarunTest, KilledItselfItTakesItsRanksAlong) {
  Program program = run({"-np", "2"}, "echo self=$$; echo up; exec sleep 1000");
  ASSERT_TRUE(program.wait_for_output("[0] up"));
  ASSERT_TRUE(program.wait_for_output("[1] up"));
  program.send_signal(SIGKILL);
  EXPECT_EQ(program.wait(), 137);
  EXPECT_TRUE(is_gone(number_after(program.out(), "[0] self=")));
  EXPECT_TRUE(is_gone(number_after(program.out(), "[1] self=")));
}

TEST_F(RuedarunTest, LinesOfManyRanksNeverMix) {
  constexpr int kLines = 3000;
  const std::string line(150, 'x');
  Program program =
      run({"-np", "4"}, "i=0; while [ $i -lt " + std::to_string(kLines) + " ]; do printf '" +
                            line.substr(75) + "'; echo " + line.substr(75) + "; i=$((i+1)); done");
  EXPECT_EQ(program.wait(), 0);
  const auto lines = lines_of(program.out());
  EXPECT_EQ(lines.size(), 4u * kLines);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(lines.count("[" + std::to_string(rank) + "] " + line), size_t{kLines});
  }
}

TEST_F(RuedarunTest, AReaderThatDoesNotReadCannotHoldUpItsEnd) {
  Program program = run({}, "echo self=$$; exec yes full");
  ASSERT_TRUE(program.wait_for_output("[0] full"));
  ASSERT_TRUE(program.wait_until_half_full());
  const int rank_pid = number_after(program.out(), "self=");
  program.send_signal(SIGTERM);
  EXPECT_EQ(program.wait_without_reading(), 143);
  EXPECT_TRUE(is_gone(rank_pid));
}

// Such a reader once got only as much as fits into a pipe.
TEST_F(RuedarunTest, AReaderThatPausesAtTheEndGetsEverything) {
  Program program = run({}, "i=0; while [ $i -lt 20000 ]; do echo line-$i; i=$((i+1)); done");
  ASSERT_TRUE(program.wait_until_half_full());
  std::this_thread::sleep_for(std::chrono::seconds(4));  // is longer than the launcher once waited
  EXPECT_EQ(program.wait(), 0);
  EXPECT_EQ(lines_of(program.out()).size(), 20000u);
}

TEST_F(RuedarunTest, WhatAFullDiskDoesNotTakeIsTold) {
  Program program({"/bin/sh", "-c",
                   kRuedarun + " --socket " + fake_.socket() +
                       " /bin/sh -c 'echo lost; echo told >&2' > /dev/full"});
  EXPECT_EQ(program.wait(), 0);
  EXPECT_THAT(program.err(), HasSubstr("[0] told"));
  EXPECT_THAT(program.err(),
              HasSubstr("standard output: 9 bytes of output are lost: No space left on device"));
}

TEST_F(RuedarunTest, WrongUsageEndsWithTwo) {
  Program program({kRuedarun, "--no-such-flag", "true"});
  EXPECT_EQ(program.wait(), 2);
  EXPECT_THAT(program.err(), HasSubstr("--no-such-flag"));
}

}  // namespace
}  // namespace rueda::test
