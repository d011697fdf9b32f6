// Tests which process gets which CPUs, on machines that hwloc makes up.
#include "agent/cli/binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/base/os/cpus.h"

namespace rueda::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Topology machine(const std::string& description) {
  // hwloc takes its description for the machine.
  ::setenv("HWLOC_SYNTHETIC", description.c_str(), 1);
  Result<Topology> topology = Topology::of_machine();
  ::unsetenv("HWLOC_SYNTHETIC");
  EXPECT_TRUE(topology.is_ok()) << topology.status().message();
  return std::move(topology).value();
}

std::vector<int> cpus(const std::string& text) { return parse_cpus(text).value(); }

TEST(Binding, DaemonHasTheLastCoreAndRanksTheOthers) {
  const Result<Binding> bound = bind_cores(machine("core:4 pu:1"), cpus("0-3"), {}, 3);
  ASSERT_TRUE(bound.is_ok());
  EXPECT_EQ(bound.value().daemon, cpus("3"));
  EXPECT_THAT(bound.value().ranks, ElementsAre(cpus("0"), cpus("1"), cpus("2")));
}

TEST(Binding, OfTwoCoresEachHasOne) {
  const Result<Binding> bound = bind_cores(machine("core:2 pu:1"), cpus("0-1"), {}, 1);
  ASSERT_TRUE(bound.is_ok());
  EXPECT_EQ(bound.value().daemon, cpus("1"));
  EXPECT_THAT(bound.value().ranks, ElementsAre(cpus("0")));
}

TEST(Binding, BothThreadsOfACoreAreOfOneOwner) {
  const Result<Binding> bound = bind_cores(machine("core:4 pu:2"), cpus("0-7"), {}, 2);
  ASSERT_TRUE(bound.is_ok());
  EXPECT_EQ(bound.value().daemon, cpus("6-7"));
  EXPECT_THAT(bound.value().ranks, ElementsAre(cpus("0-1"), cpus("2-5")));
}

TEST(Binding, RanksKeepToANumaNode) {
  const Topology topology = machine("numa:2 core:8 pu:1");
  const Result<Binding> bound = bind_cores(topology, cpus("0-15"), {}, 4);
  ASSERT_TRUE(bound.is_ok());
  EXPECT_EQ(bound.value().daemon, cpus("14-15"));
  EXPECT_THAT(bound.value().ranks,
              ElementsAre(cpus("0-3"), cpus("4-7"), cpus("8-10"), cpus("11-13")));
  const Result<Binding> three = bind_cores(topology, cpus("0-15"), {}, 3);
  ASSERT_TRUE(three.is_ok());
  EXPECT_THAT(three.value().ranks, ElementsAre(cpus("0-3"), cpus("4-7"), cpus("8-13")));
}

TEST(Binding, FewerRanksThanNumaNodesLeaveNoneIdle) {
  const Topology topology = machine("numa:4 core:2 pu:1");
  const Result<Binding> bound = bind_cores(topology, cpus("0-7"), {}, 1);
  ASSERT_TRUE(bound.is_ok());
  EXPECT_THAT(bound.value().ranks, ElementsAre(cpus("0-6")));
  const Result<Binding> two = bind_cores(topology, cpus("0-7"), {}, 2);
  ASSERT_TRUE(two.is_ok());
  EXPECT_THAT(two.value().ranks, ElementsAre(cpus("0-3"), cpus("4-6")));
}

TEST(Binding, ADaemonThatKeepsToCpusLeavesTheOthers) {
  // The daemon has one thread of core 0; the other thread is given to no rank.
  const Result<Binding> bound = bind_cores(machine("core:4 pu:2"), cpus("0-7"), cpus("0"), 3);
  ASSERT_TRUE(bound.is_ok());
  EXPECT_EQ(bound.value().daemon, cpus("0"));
  EXPECT_THAT(bound.value().ranks, ElementsAre(cpus("2-3"), cpus("4-5"), cpus("6-7")));
}

TEST(Binding, OnlyAllowedCpusAreDealtOut) {
  const Result<Binding> bound = bind_cores(machine("core:8 pu:1"), cpus("2-4"), {}, 2);
  ASSERT_TRUE(bound.is_ok());
  EXPECT_EQ(bound.value().daemon, cpus("4"));
  EXPECT_THAT(bound.value().ranks, ElementsAre(cpus("2"), cpus("3")));
}

TEST(Binding, TooFewCoresAreRefusedWithTheirNumber) {
  const Result<Binding> two = bind_cores(machine("core:2 pu:1"), cpus("0-1"), {}, 2);
  ASSERT_FALSE(two.is_ok());
  EXPECT_EQ(two.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(two.status().message(),
              HasSubstr("2 cores are too few for a daemon and 2 ranks with one each"));
  // Two threads of one core do not count as two cores.
  const Result<Binding> one = bind_cores(machine("core:1 pu:2"), cpus("0-1"), {}, 1);
  ASSERT_FALSE(one.is_ok());
  EXPECT_THAT(one.status().message(), HasSubstr("1 core is too few for a daemon and 1 rank"));
  EXPECT_FALSE(bind_cores(machine("core:2 pu:1"), cpus("0-1"), cpus("0-1"), 1).is_ok());
}

TEST(Binding, DaemonsOfLargeMachinesHaveMoreCores) {
  EXPECT_EQ(daemon_cores(2), 1);
  EXPECT_EQ(daemon_cores(16), 2);
  EXPECT_EQ(daemon_cores(256), 4);
}

TEST(Topology, OfThisMachineHasTheCpusThatTheProcessMayUse) {
  const Result<Topology> topology = Topology::of_machine();
  ASSERT_TRUE(topology.is_ok());
  const std::vector<int> allowed = allowed_cpus();
  const Result<Binding> bound = bind_cores(topology.value(), allowed, {}, 1);
  if (!bound.is_ok()) GTEST_SKIP() << bound.status().message();
  std::vector<int> all = bound.value().ranks.front();
  all.insert(all.end(), bound.value().daemon.begin(), bound.value().daemon.end());
  EXPECT_THAT(all, testing::UnorderedElementsAreArray(allowed));
}

}  // namespace
}  // namespace rueda::agent
