#include "bench/machine/cpu.h"

#include <cstdlib>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rueda::bench {
namespace {

void burn_cpu_s(double amount) {
  const double end = process_cpu_s() + amount;
  while (process_cpu_s() < end) {
  }
}

TEST(CpuTest, OwnTimeGrowsWithWork) {
  const double before = process_cpu_s();
  burn_cpu_s(0.02);
  EXPECT_GE(process_cpu_s() - before, 0.02);
}

TEST(CpuTest, AnotherProcessIsSeenFromOutside) {
  const auto own = process_cpu_s(getpid());
  ASSERT_TRUE(own);
  EXPECT_GT(*own, 0);
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(process_cpu_s(child)) << "it is gone";
}

TEST(CpuTest, MemoryOfItsOwn) {
  constexpr size_t kBytes = 16u << 20;
  const auto before = private_memory_bytes(getpid());
  const std::vector<char> block(kBytes, 1);
  const auto after = private_memory_bytes(getpid());
  ASSERT_TRUE(before && after);
  EXPECT_GE(*after - *before + (1u << 20), block.size());
  EXPECT_FALSE(private_memory_bytes(-1));
}

TEST(CpuTest, TheMachineIsAtLeastAsBusyAsThisProcess) {
  const double before = machine_busy_s();
  burn_cpu_s(0.2);
  EXPECT_GE(machine_busy_s() - before, 0.1) << "idle time is counted in ticks of 10 ms a CPU";
}

TEST(CpuTest, HostIdStays) { EXPECT_EQ(host_id(), host_id()); }

TEST(CpuTest, ParsesPids) {
  EXPECT_THAT(parse_pids("12,345"), testing::ElementsAre(12, 345));
  EXPECT_THAT(parse_pids("7"), testing::ElementsAre(7));
  EXPECT_THAT(parse_pids(""), testing::IsEmpty());
  EXPECT_THAT(parse_pids("x,-3,0,12z,,9,"), testing::ElementsAre(9));
}

TEST(CpuTest, DaemonsFromTheEnvironment) {
  setenv("RUEDA_DAEMON_PIDS", "12,345", 1);
  EXPECT_THAT(known_daemons(), testing::ElementsAre(12, 345));
  unsetenv("RUEDA_DAEMON_PIDS");
}

TEST(CpuTest, OnlyADaemonCountsAsOne) {
  const std::string name = "@rueda-cpu-test-" + std::to_string(getpid());
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path, name.size());
  address.sun_path[0] = '\0';
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  EXPECT_FALSE(daemon_behind_socket(name)) << "this process is a test, not ruedad";
  close(fd);
  EXPECT_FALSE(daemon_behind_socket(name));
  EXPECT_FALSE(daemon_behind_socket("/no/such/socket"));
  EXPECT_FALSE(daemon_behind_socket(""));
}

}  // namespace
}  // namespace rueda::bench
