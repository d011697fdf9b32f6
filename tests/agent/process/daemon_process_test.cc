#include "agent/process/daemon_process.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

namespace rueda::agent {
namespace {

using testing::HasSubstr;

TEST(DaemonProcess, ReadsTheReadyLine) {
  const auto ready = parse_ready_line(
      R"({"node_id":"n","control":"h:1","data":"h:2","http":"h:3","socket":"@s","more":1})");
  ASSERT_TRUE(ready.is_ok());
  EXPECT_EQ(ready.value().node_id, "n");
  EXPECT_EQ(ready.value().control_address, "h:1");
  EXPECT_EQ(ready.value().data_address, "h:2");
  EXPECT_EQ(ready.value().http_address, "h:3");
  EXPECT_EQ(ready.value().socket, "@s");
}

TEST(DaemonProcess, RefusesOtherLines) {
  for (const char* line : {"", "hello", "[]", "{}", R"({"node_id":3})",
                           R"({"node_id":"n","control":"h:1","data":"h:2","http":"h:3"})"}) {
    const auto ready = parse_ready_line(line);
    ASSERT_FALSE(ready.is_ok()) << line;
    EXPECT_THAT(ready.status().message(), HasSubstr("ready line"));
  }
}

TEST(DaemonProcess, PutsTheUsersFlagsLast) {
  const DaemonRequest request{
      "/x/ruedad", "n0", "@s", "0.0.0.0", "warn", "0,2", {"--fusion-threshold=1"}};
  EXPECT_THAT(
      daemon_argv(request, 7),
      testing::ElementsAre("/x/ruedad", "--private", "--node-id", "n0", "--socket", "@s",
                           "--listen-host", "0.0.0.0", "--control-port", "0", "--data-port", "0",
                           "--http-port", "0", "--ready-fd", "7", "--leash-fd", "0", "--log-level",
                           "warn", "--insecure", "--cpus", "0,2", "--fusion-threshold=1"));
}

TEST(DaemonProcess, ADaemonThatAwaitsItsCertificateIsNotInsecure) {
  DaemonRequest request{"/x/ruedad", "n0", "@s", "0.0.0.0", "warn", "", {}};
  request.awaits_certificate = true;
  EXPECT_THAT(daemon_argv(request, 7), testing::IsSupersetOf({"--tls-fd", "--leash-fd"}));
  EXPECT_THAT(daemon_argv(request, 7), testing::Not(testing::Contains("--insecure")));
  // It has certificates of its own, or the user wants none; the flag is given once.
  request.awaits_certificate = false;
  request.extra_args = {"--insecure"};
  const std::vector<std::string> argv = daemon_argv(request, 7);
  EXPECT_EQ(std::count(argv.begin(), argv.end(), "--insecure"), 1);
  EXPECT_THAT(argv, testing::Not(testing::Contains("--tls-fd")));
  // The loopback is nobody else's.
  request.extra_args.clear();
  request.listen_host = "127.0.0.1";
  EXPECT_THAT(daemon_argv(request, 7), testing::Not(testing::Contains("--insecure")));
}

TEST(DaemonProcess, ReadsWhichControlPortIsOpen) {
  EXPECT_EQ(parse_control_line(R"({"control":"0.0.0.0:1"})").value(), "0.0.0.0:1");
  for (const char* line : {"", "{}", "[]", R"({"control":1})"}) {
    EXPECT_THAT(parse_control_line(line).status().message(), HasSubstr("ready line")) << line;
  }
}

TEST(DaemonProcess, NamesAMissingRuedad) {
  const auto found = find_ruedad("/nowhere/ruedad");
  ASSERT_FALSE(found.is_ok());
  EXPECT_THAT(found.status().message(), HasSubstr("/nowhere/ruedad"));
}

TEST(ExitStatus, SpeaksLikeAShell) {
  EXPECT_EQ((ExitStatus{3, 0}).to_string(), "exited with status 3");
  EXPECT_EQ((ExitStatus{0, SIGKILL}).to_string(), "was killed by signal 9 (Killed)");
  EXPECT_EQ((ExitStatus{3, 0}).shell_code(), 3);
  EXPECT_EQ((ExitStatus{0, SIGKILL}).shell_code(), 137);
  EXPECT_TRUE(ExitStatus{}.is_success());
}

// A daemon that awaits its certificate was once ended by a signal that came before it ignored it.
TEST(Child, MayBeginWithSignalsIgnored) {
  for (const bool ignores_signals : {true, false}) {
    SpawnRequest request;
    request.argv = {"sh", "-c", "kill -TERM $$; kill -INT $$; kill -HUP $$; exit 7"};
    request.parent_death_signal = SIGKILL;
    request.ignores_signals = ignores_signals;
    Result<Child> child = spawn(request);
    ASSERT_TRUE(child.is_ok());
    pollfd ended{.fd = child.value().pidfd.get(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&ended, 1, 20'000), 1);
    EXPECT_EQ(peek_exit(child.value()).value(),
              ignores_signals ? (ExitStatus{7, 0}) : (ExitStatus{0, SIGTERM}));
    reap(child.value());
  }
}

TEST(Child, IsSeenToEnd) {
  SpawnRequest request;
  request.argv = {"sleep", "1000"};
  request.parent_death_signal = SIGKILL;
  Result<Child> child = spawn(request);
  ASSERT_TRUE(child.is_ok());
  EXPECT_FALSE(is_ending(child.value()));
  EXPECT_FALSE(peek_exit(child.value()).is_ok());
  ::kill(child.value().pid, SIGKILL);
  pollfd ended{.fd = child.value().pidfd.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&ended, 1, 20'000), 1);
  EXPECT_TRUE(is_ending(child.value()));
  EXPECT_EQ(peek_exit(child.value()).value(), (ExitStatus{0, SIGKILL}));
  reap(child.value());
}

}  // namespace
}  // namespace rueda::agent
