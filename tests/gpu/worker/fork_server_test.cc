#include "daemon/gpu/worker/fork_server.h"

#include <array>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rueda::gpu {
namespace {

using ::testing::HasSubstr;

constexpr int kPatienceMs = 20'000;

std::unique_ptr<ForkServer> shell(const std::string& script) {
  return ForkServer::start({"/bin/sh", "-c", script}).value();
}

// The two ends of what a worker talks over.
std::pair<UniqueFd, UniqueFd> socket_pair() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

bool has_ended(const ForkServer::Process& process, int patience_ms = kPatienceMs) {
  pollfd ended{.fd = process.pidfd.get(), .events = POLLIN, .revents = 0};
  return ::poll(&ended, 1, patience_ms) == 1;
}

std::string received(const UniqueFd& socket) {
  std::array<char, 4096> text{};
  const ssize_t bytes = ::recv(socket.get(), text.data(), text.size(), 0);
  return {text.data(), bytes > 0 ? static_cast<size_t>(bytes) : 0};
}

TEST(ForkServer, StartsItsCommandAsOftenAsItIsAsked) {
  const auto server = shell("echo \"$0 $$\" >&3; exit 7");
  for (int i = 0; i < 3; ++i) {
    auto [own, its] = socket_pair();
    const Result<ForkServer::Process> process = server->spawn(its.get());
    ASSERT_TRUE(process.is_ok()) << process.status().to_string();
    its.reset();
    // The shell's $0 is the last argument: the number of the descriptor.
    EXPECT_EQ(received(own), "3 " + std::to_string(process.value().pid) + "\n");
    ASSERT_TRUE(has_ended(process.value()));
    const std::optional<int> status = server->reap(process.value().pid);
    ASSERT_TRUE(status.has_value());
    EXPECT_EQ(WEXITSTATUS(*status), 7);
    EXPECT_FALSE(server->reap(process.value().pid).has_value()) << "it was taken twice";
  }
}

TEST(ForkServer, KillsWhatItHasStartedAndNothingElse) {
  const auto server = shell("exec sleep 100");
  const auto [own, its] = socket_pair();
  const ForkServer::Process process = server->spawn(its.get()).value();
  EXPECT_FALSE(server->reap(process.pid).has_value()) << "it runs";
  for (const pid_t stranger : {::getpid(), server->pid(), -1, 0}) server->kill(stranger);
  EXPECT_FALSE(has_ended(process, 0));
  server->kill(process.pid);
  ASSERT_TRUE(has_ended(process));
  const std::optional<int> status = server->reap(process.pid);
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(WTERMSIG(*status), SIGKILL);
}

TEST(ForkServer, AProgramThatIsNotThereIsNamed) {
  const auto server = ForkServer::start({"/nowhere/ruedad"}).value();
  const auto [own, its] = socket_pair();
  const Status status = server->spawn(its.get()).status();
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("/nowhere/ruedad cannot be started as a GPU worker: No"));
}

TEST(ForkServer, HasANameOfItsOwn) {
  const auto server = shell("exit 0");
  EXPECT_FALSE(server->reap(1).has_value());  // It has its name once it answers.
  const std::string folder = "/proc/" + std::to_string(server->pid());
  std::string name;
  std::getline(std::ifstream(folder + "/comm"), name);
  EXPECT_EQ(name, "ruedad-fork");
  std::getline(std::ifstream(folder + "/cmdline"), name, '\0');
  EXPECT_EQ(name, "ruedad-fork");
}

TEST(ForkServer, OneThatHasGoneIsTold) {
  const auto server = shell("exec cat <&3");  // It ends when the socket is closed.
  const auto [own, its] = socket_pair();
  ASSERT_TRUE(server->spawn(its.get()).is_ok());
  ASSERT_EQ(::kill(server->pid(), SIGKILL), 0);
  siginfo_t ignored{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(server->pid()), &ignored, WEXITED | WNOWAIT), 0);
  const Status status = server->spawn(its.get()).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("has gone, or does not answer: start the daemon again"));
}

// A launcher waits for the end of a pipe that its daemon has open, and is not to wait for workers.
TEST(ForkServer, WhatWasOpenIsNotInherited) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  const auto server = shell("exec sleep 100");
  const auto [own, its] = socket_pair();
  const ForkServer::Process process = server->spawn(its.get()).value();
  ::close(ends[1]);
  char byte = 0;
  EXPECT_EQ(::read(ends[0], &byte, 1), 0) << "somebody has the other end";
  ::close(ends[0]);
  server->kill(process.pid);
  EXPECT_TRUE(has_ended(process));
}

TEST(ForkServer, SignalsThatEndADaemonDoNotEndIt) {
  const auto server = shell("exit 0");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    // It ignores them once it serves, which an answer shows.
    EXPECT_FALSE(server->reap(1).has_value());
    ASSERT_EQ(::kill(server->pid(), signal), 0);
  }
  const auto [own, its] = socket_pair();
  EXPECT_TRUE(server->spawn(its.get()).is_ok());
}

}  // namespace
}  // namespace rueda::gpu
