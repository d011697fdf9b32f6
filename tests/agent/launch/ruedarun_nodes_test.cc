// Tests ruedarun with private daemons (a fake program) and with several nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "agent/base/network.h"
#include "agent/cli/binding.h"
#include "daemon/base/os/cpus.h"
#include "tests/agent/fake_daemon.h"
#include "tests/agent/program.h"

namespace rueda::test {
namespace {

using testing::HasSubstr;

constexpr char kShowPlace[] =
    "echo r=$RANK/$WORLD_SIZE l=$LOCAL_RANK/$LOCAL_WORLD_SIZE n=$NODE_RANK/$RUEDA_NNODES "
    "h=$RUEDA_HTTP_ADDRESSES";

Program with_daemons(const std::vector<std::string>& flags, const std::string& script) {
  std::vector<std::string> argv{kRuedarun, "--ruedad", kFakeRuedad};
  argv.insert(argv.end(), flags.begin(), flags.end());
  argv.insert(argv.end(), {"/bin/sh", "-c", script});
  return Program(std::move(argv));
}

std::string free_endpoint() {
  const auto port = agent::free_port();
  return "127.0.0.1:" + std::to_string(port.is_ok() ? port.value() : 0);
}

TEST(VirtualNodes, DealOutRanksInBlocks) {
  Program program = with_daemons({"-np", "5", "--virtual-nodes", "2"}, kShowPlace);
  EXPECT_EQ(program.wait(), 0);
  const std::string http = " h=127.0.0.1:9000,127.0.0.1:9001\n";
  for (const char* place :
       {"[0] r=0/5 l=0/3 n=0/2", "[1] r=1/5 l=1/3 n=0/2", "[2] r=2/5 l=2/3 n=0/2",
        "[3] r=3/5 l=0/2 n=1/2", "[4] r=4/5 l=1/2 n=1/2"}) {
    EXPECT_THAT(program.out(), HasSubstr(place + http));
  }
  EXPECT_THAT(program.err(), HasSubstr("[node1] fake daemon pid "));
  EXPECT_THAT(program.err(), HasSubstr("[node1] NCCL takes this host for node1\n"));
  EXPECT_THAT(program.err(), HasSubstr("listens on 127.0.0.1"));
  for (const char* key : {"[node0] fake daemon pid ", "[node1] fake daemon pid "}) {
    EXPECT_TRUE(is_gone(number_after(program.err(), key)));
  }
}

constexpr char kShowCpus[] = "grep Cpus_allowed_list /proc/self/status";

// Returns the CPUs that a rank has according to its line of /proc/self/status.
std::vector<int> cpus_of(const Program& program, int rank) {
  const std::string key = "[" + std::to_string(rank) + "] Cpus_allowed_list:\t";
  const std::string out = program.out();
  const size_t begin = out.find(key);
  if (begin == std::string::npos) return {};
  const size_t end = out.find('\n', begin);
  const auto cpus = parse_cpus(out.substr(begin + key.size(), end - begin - key.size()));
  return cpus.is_ok() ? cpus.value() : std::vector<int>{};
}

// NCCL counts a machine as one host, whatever number of daemons it has.
TEST(VirtualNodes, ASingleOneIsTheMachine) {
  Program program = with_daemons({"-np", "1", "--virtual-nodes", "1"}, "true");
  EXPECT_EQ(program.wait(), 0);
  EXPECT_THAT(program.err(), testing::Not(HasSubstr("NCCL takes this host")));
}

TEST(VirtualNodes, RanksKeepToTheirNodesShareOfTheCpus) {
  const std::vector<int> cpus = allowed_cpus();
  if (cpus.size() < 2) GTEST_SKIP() << "one CPU";
  Program program = with_daemons({"-np", "3", "--virtual-nodes", "2"}, kShowCpus);
  EXPECT_EQ(program.wait(), 0);
  EXPECT_EQ(cpus_of(program, 0), share_of(cpus, 0, 2));
  EXPECT_EQ(cpus_of(program, 1), share_of(cpus, 0, 2));
  EXPECT_EQ(cpus_of(program, 2), share_of(cpus, 1, 2));

  Program told =
      with_daemons({"-np", "2", "--virtual-nodes", "2", "--daemon-arg=--cpus="}, kShowCpus);
  EXPECT_EQ(told.wait(), 0);
  EXPECT_EQ(cpus_of(told, 0), cpus);
  EXPECT_EQ(cpus_of(told, 1), cpus);
}

TEST(Bind, RankAndDaemonHaveCpusOfTheirOwn) {
  const auto bound =
      agent::bind_cores(agent::Topology::of_machine().value(), allowed_cpus(), {}, 1);
  if (!bound.is_ok()) GTEST_SKIP() << bound.status().message();
  Program program = with_daemons({"-np", "1", "--bind"}, kShowCpus);
  EXPECT_EQ(program.wait(), 0);
  EXPECT_EQ(cpus_of(program, 0), bound.value().ranks[0]);
  EXPECT_THAT(program.err(), HasSubstr("keeps to " + to_string(bound.value().daemon) + "\n"));
}

TEST(Bind, WhereCoresAreTooFewItSaysSoAndBindsNothing) {
  const std::string ranks = std::to_string(allowed_cpus().size());
  Program program = with_daemons({"-np", ranks, "--bind"}, kShowCpus);
  EXPECT_EQ(program.wait(), 0);
  EXPECT_EQ(cpus_of(program, 0), allowed_cpus());
  EXPECT_THAT(program.err(), HasSubstr("too few for a daemon and " + ranks + " rank"));
  EXPECT_THAT(program.err(), HasSubstr("with one each, so nothing is bound"));
}

TEST(Bind, SomeoneElsesChoiceOfCpusIsRefused) {
  Program program = with_daemons({"-np", "1", "--bind", "--daemon-arg=--cpus=0"}, "exit 0");
  EXPECT_EQ(program.wait(), 1);
  EXPECT_THAT(program.err(), HasSubstr("--bind chooses the daemon's CPUs"));
}

TEST(Bind, RanksKeepOffTheCpusOfADaemonThatRuns) {
  const std::vector<int> cpus = allowed_cpus();
  const std::vector<int> last{cpus.back()};
  const auto bound = agent::bind_cores(agent::Topology::of_machine().value(), cpus, last, 1);
  if (!bound.is_ok()) GTEST_SKIP() << bound.status().message();
  FakeDaemon daemon("@ruedarun-bind-" + std::to_string(::getpid()), "n0");
  daemon.describe_reply.set_cpus(to_string(last));
  Program program(
      {kRuedarun, "-np", "1", "--bind", "--socket", daemon.socket(), "/bin/sh", "-c", kShowCpus});
  EXPECT_EQ(program.wait(), 0);
  EXPECT_EQ(cpus_of(program, 0), bound.value().ranks[0]);

  daemon.describe_reply.set_cpus("");
  Program left(
      {kRuedarun, "-np", "1", "--bind", "--socket", daemon.socket(), "/bin/sh", "-c", kShowCpus});
  EXPECT_EQ(left.wait(), 0);
  EXPECT_EQ(cpus_of(left, 0), cpus);
  EXPECT_THAT(left.err(), HasSubstr("is left to the system, so ranks are, too; start it with "
                                    "--cpus"));
}

TEST(VirtualNodes, ADeadDaemonIsNamedAndEndsTheJob) {
  Program program = with_daemons({"-np", "2", "--virtual-nodes", "2", "--grace", "0.1"},
                                 "echo up; exec sleep 1000");
  ASSERT_TRUE(program.wait_for_output("[0] up"));
  ASSERT_TRUE(program.wait_for_output("[1] up"));
  ASSERT_TRUE(program.wait_for_output("[node1] fake daemon pid "));
  const int daemon_pid = number_after(program.err(), "[node1] fake daemon pid ");
  ASSERT_GT(daemon_pid, 1);
  ::kill(daemon_pid, SIGKILL);
  EXPECT_EQ(program.wait(), 1);
  EXPECT_THAT(program.err(),
              HasSubstr("the daemon of node node1 (pid " + std::to_string(daemon_pid) +
                        ") was killed by signal 9 (Killed)"));
  EXPECT_THAT(program.err(), HasSubstr("2 ranks ended"));
}

TEST(PrivateDaemon, AFailedStartIsSaidWithItsOwnWords) {
  Program program = with_daemons({"--daemon-arg=--fake=fail"}, "echo must not run");
  EXPECT_EQ(program.wait(), 1);
  EXPECT_EQ(program.out(), "");
  EXPECT_THAT(program.err(), HasSubstr("[node0] port taken"));
  EXPECT_THAT(program.err(), HasSubstr("the daemon of node0 did not start: it exited with status "
                                       "3; its messages are above"));
}

TEST(PrivateDaemon, OneThatNeverServesIsGivenUp) {
  Program program = with_daemons({"--daemon-arg", "--fake=silent", "--start-timeout", "0.3"},
                                 "echo must not run");
  EXPECT_EQ(program.wait(), 1);
  EXPECT_EQ(program.out(), "");
  EXPECT_THAT(program.err(), HasSubstr("the daemon of node0 did not serve within 0.300 s"));
  EXPECT_TRUE(is_gone(number_after(program.err(), "fake daemon pid ")));
}

TEST(PrivateDaemon, InterruptedWhileStartingItLeavesNothing) {
  Program program = with_daemons({"--daemon-arg", "--fake=silent"}, "echo must not run");
  ASSERT_TRUE(program.wait_for_output("[node0] fake daemon pid "));
  program.send_signal(SIGINT);
  EXPECT_EQ(program.wait(), 130);
  EXPECT_TRUE(is_gone(number_after(program.err(), "fake daemon pid ")));
}

TEST(PrivateDaemon, GoesWithALauncherThatIsKilled) {
  Program program = with_daemons({}, "echo self=$$; echo up; exec sleep 1000");
  ASSERT_TRUE(program.wait_for_output("[0] up"));
  ASSERT_TRUE(program.wait_for_output("[node0] fake daemon pid "));
  program.send_signal(SIGKILL);
  EXPECT_EQ(program.wait(), 137);
  EXPECT_TRUE(is_gone(number_after(program.err(), "fake daemon pid ")));
  EXPECT_TRUE(is_gone(number_after(program.out(), "self=")));
}

TEST(PrivateDaemon, AMissingRuedadIsNamed) {
  Program program({kRuedarun, "--ruedad", "/nowhere/ruedad", "true"});
  EXPECT_EQ(program.wait(), 1);
  EXPECT_THAT(program.err(), HasSubstr("--ruedad /nowhere/ruedad is not a program"));
}

TEST(Rendezvous, TwoLaunchersMakeOneJob) {
  const std::string endpoint = free_endpoint();
  // The launcher that serves the rendezvous comes last, so the other one waits for it.
  Program second = with_daemons(
      {"--nproc-per-node", "1", "--nnodes", "2", "--node-rank", "1", "--rdzv-endpoint", endpoint},
      std::string(kShowPlace) + "; echo $RUEDA_JOB_ID $MASTER_PORT");
  ASSERT_TRUE(second.wait_for_output("listens on 0.0.0.0"));
  Program first =
      with_daemons({"-np", "2", "--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", endpoint},
                   std::string(kShowPlace) + "; echo $RUEDA_JOB_ID $MASTER_PORT");
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(second.wait(), 0) << second.err();
  EXPECT_THAT(first.out(), HasSubstr("[0] r=0/3 l=0/2 n=0/2 h=127.0.0.1:9000\n"));
  EXPECT_THAT(first.out(), HasSubstr("[1] r=1/3 l=1/2 n=0/2"));
  EXPECT_THAT(second.out(), HasSubstr("[2] r=2/3 l=0/1 n=1/2 h=127.0.0.1:9001\n"));
  const std::string job_line = second.out().substr(second.out().find('\n') + 5);
  EXPECT_THAT(first.out(), HasSubstr("[0] " + job_line));
}

std::vector<std::string> as_node(int number, const std::string& endpoint) {
  return {"--nproc-per-node", "1",     "--nnodes", "2", "--node-rank", std::to_string(number),
          "--rdzv-endpoint",  endpoint};
}

std::vector<std::string> with(std::vector<std::string> flags, const std::string& more) {
  flags.push_back(more);
  return flags;
}

TEST(Certificates, ArePrivateDaemonsOfAJobOfSeveralNodes) {
  const std::string endpoint = free_endpoint();
  Program first = with_daemons(as_node(0, endpoint), "true");
  Program second = with_daemons(with(as_node(1, endpoint), "--verbose"), "true");
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(second.wait(), 0) << second.err();
  EXPECT_THAT(first.err(), HasSubstr("[node0] told a certificate\n"));
  EXPECT_THAT(second.err(), HasSubstr("[node1] told a certificate\n"));
  EXPECT_THAT(second.err(), HasSubstr("made certificates of job-"));
  Program alone = with_daemons({"-np", "1"}, "true");
  EXPECT_EQ(alone.wait(), 0);
  EXPECT_THAT(alone.err(), testing::Not(HasSubstr("told")));
}

TEST(Certificates, NobodyHasOneWhereANodeHasADaemonOfItsOwn) {
  const std::string endpoint = free_endpoint();
  FakeDaemon daemon("@ruedarun-own-" + std::to_string(::getpid()), "n1");
  std::vector<std::string> argv{kRuedarun, "--socket", daemon.socket()};
  for (const std::string& flag : as_node(1, endpoint)) argv.push_back(flag);
  argv.emplace_back("true");
  Program first = with_daemons(as_node(0, endpoint), "true");
  Program second(std::move(argv));
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(second.wait(), 0) << second.err();
  EXPECT_THAT(first.err(), HasSubstr("[node0] told {}\n"));
  EXPECT_THAT(first.err(), HasSubstr("another node of this job has a daemon of its own"));
}

// A daemon that was given other arrangements waits for none, and so nobody gets any.
TEST(Certificates, AreLeftOutForWhoAsks) {
  const std::string endpoint = free_endpoint();
  Program first = with_daemons(with(as_node(0, endpoint), "--daemon-arg=--insecure"), "true");
  Program second = with_daemons(as_node(1, endpoint), "true");
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(second.wait(), 0) << second.err();
  EXPECT_THAT(first.err(), testing::Not(HasSubstr("told")));
  EXPECT_THAT(second.err(), HasSubstr("[node1] told {}\n"));
}

TEST(Certificates, ADaemonThatEndsWhileItWaitsEndsTheStart) {
  const std::string endpoint = free_endpoint();
  Program program = with_daemons(with(as_node(0, endpoint), "--daemon-arg=--fake=deaf"), "true");
  EXPECT_EQ(program.wait(), 1);
  EXPECT_THAT(program.err(), HasSubstr("the daemon of node0 did not start: it exited with status "
                                       "4; its messages are above"));
}

TEST(Certificates, ADaemonThatDoesNotServeOnceItHasOneIsNamed) {
  const std::string endpoint = free_endpoint();
  std::vector<std::string> flags = with(as_node(0, endpoint), "--daemon-arg=--fake=silent");
  flags.insert(flags.end(), {"--start-timeout", "3"});
  Program first = with_daemons(flags, "echo must not run");
  Program second = with_daemons(as_node(1, endpoint), "exec sleep 1000");
  EXPECT_EQ(first.wait(), 1);
  EXPECT_THAT(first.err(), HasSubstr("[node0] told a certificate\n"));
  EXPECT_THAT(first.err(), HasSubstr("the daemon of node0 did not serve within 3 s"));
  second.send_signal(SIGKILL);
  second.wait();
}

TEST(Rendezvous, NamesTheNodesThatDidNotCome) {
  const std::string endpoint = free_endpoint();
  Program program = with_daemons(
      {"--nnodes", "3", "--node-rank", "0", "--rdzv-endpoint", endpoint, "--start-timeout", "1"},
      "echo must not run");
  EXPECT_EQ(program.wait(), 1);
  EXPECT_EQ(program.out(), "");
  EXPECT_THAT(program.err(), HasSubstr("node rank 1, 2 of 3 did not come to " + endpoint));
}

TEST(Rendezvous, AllAreToldWhoIsMissingAndWhoWasRefused) {
  const std::string endpoint = free_endpoint();
  Program first = with_daemons(
      {"--nnodes", "3", "--node-rank", "0", "--rdzv-endpoint", endpoint, "--start-timeout", "2"},
      "echo must not run");
  Program second = with_daemons(
      {"--nnodes", "3", "--node-rank", "1", "--rdzv-endpoint", endpoint, "--start-timeout", "60"},
      "echo must not run");
  Program third = with_daemons({"--nnodes", "4", "--node-rank", "2", "--rdzv-endpoint", endpoint},
                               "echo must not run");
  EXPECT_EQ(third.wait(), 1);
  EXPECT_EQ(second.wait(), 1) << "long before its own time is up";
  EXPECT_EQ(first.wait(), 1);
  const std::string missing = "node rank 2 of 3 did not come to " + endpoint + " within 2 s";
  const std::string refused = "; refused was one because node 2 says --nnodes 4";
  EXPECT_THAT(first.err(), HasSubstr(missing));
  EXPECT_THAT(first.err(), HasSubstr(refused));
  EXPECT_THAT(second.err(), HasSubstr("node 0 has given the job up: " + missing));
  EXPECT_THAT(second.err(), HasSubstr(refused));
}

TEST(Rendezvous, WhoseTimeIsUpFirstKnowsWhoIsMissing) {
  const std::string endpoint = free_endpoint();
  Program first = with_daemons({"--nnodes", "3", "--node-rank", "0", "--rdzv-endpoint", endpoint},
                               "echo must not run");
  Program second = with_daemons(
      {"--nnodes", "3", "--node-rank", "1", "--rdzv-endpoint", endpoint, "--start-timeout", "2"},
      "echo must not run");
  EXPECT_EQ(second.wait(), 1);
  EXPECT_THAT(second.err(), HasSubstr("node rank 2 of 3 did not come to " + endpoint));
  first.send_signal(SIGTERM);
  EXPECT_EQ(first.wait(), 143);
}

TEST(Rendezvous, NamesAnEndpointWhereNobodyServes) {
  const std::string endpoint = free_endpoint();
  Program program = with_daemons(
      {"--nnodes", "2", "--node-rank", "1", "--rdzv-endpoint", endpoint, "--start-timeout", "1"},
      "echo must not run");
  EXPECT_EQ(program.wait(), 1);
  EXPECT_THAT(program.err(), HasSubstr("the nodes did not meet at " + endpoint));
}

TEST(Rendezvous, RefusesANodeThatCountsOtherwise) {
  const std::string endpoint = free_endpoint();
  Program first = with_daemons({"--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", endpoint},
                               "echo must not run");
  Program second = with_daemons({"--nnodes", "3", "--node-rank", "1", "--rdzv-endpoint", endpoint},
                                "echo must not run");
  EXPECT_EQ(second.wait(), 1);
  EXPECT_THAT(second.err(), HasSubstr("--nnodes 3"));
  first.send_signal(SIGTERM);
  EXPECT_EQ(first.wait(), 143);
}

TEST(Rendezvous, NamesATakenPort) {
  const std::string endpoint = free_endpoint();
  Program first =
      with_daemons({"--verbose", "--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", endpoint},
                   "echo must not run");
  ASSERT_TRUE(first.wait_for_output("meeting the other nodes at"));
  Program other = with_daemons({"--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", endpoint},
                               "echo must not run");
  EXPECT_EQ(other.wait(), 1);
  EXPECT_THAT(other.err(), HasSubstr("rendezvous port"));
  first.send_signal(SIGINT);
  EXPECT_EQ(first.wait(), 130);
}

}  // namespace
}  // namespace rueda::test
