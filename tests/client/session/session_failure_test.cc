// Tests a session against a daemon that refuses, breaks the rules, or dies.
#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/src/session/session.h"
#include "tests/client/fake_daemon.h"
#include "tests/client/requests.h"
#include "tests/client/session/attached.h"

namespace rueda::client {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

bool wait_for_submissions(FakeDaemon& daemon, int wanted) {
  return daemon.wait_for([wanted](const auto& counts) { return counts.submissions == wanted; });
}

TEST(AttachFailureTest, PassesOnTheDaemonsRefusal) {
  FakeDaemon daemon(
      {.attach_code = RUEDA_ERR_PERMISSION, .attach_text = "wrong token for job \"job\""});
  Status status = Session::attach(daemon.config()).status();
  EXPECT_EQ(status.code(), Code::kPermission);
  EXPECT_EQ(status.message(), "wrong token for job \"job\"");
}

TEST(AttachFailureTest, NamesBothVersions) {
  FakeDaemon daemon({.version = RUEDA_ABI_VERSION + 1});
  Status status = Session::attach(daemon.config()).status();
  EXPECT_EQ(status.code(), Code::kVersion);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("version " + std::to_string(RUEDA_ABI_VERSION + 1)),
                                      HasSubstr("version " + std::to_string(RUEDA_ABI_VERSION))));
}

TEST(AttachFailureTest, RefusesRingsThatCouldShrink) {
  FakeDaemon daemon({.seals_rings = false});
  EXPECT_EQ(Session::attach(daemon.config()).status().code(), Code::kInternal);
}

TEST(AttachFailureTest, RanksThatDoNotComeEndTheWait) {
  FakeDaemon daemon({.starts = false});
  Config config = daemon.config();
  config.timeout_ms = 50;
  Status status = Session::attach(config).status();
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("\"job\""), HasSubstr("50 ms")));
}

TEST(AttachFailureTest, AJobThatFailsBeforeItStarts) {
  FakeDaemon daemon({.starts = false});
  std::thread failure([&] {
    ASSERT_TRUE(daemon.wait_for([](const auto& counts) { return counts.attaches == 1; }));
    daemon.fail_job(RUEDA_ERR_RANK_LOST, "rank 3 died before it attached");
  });
  Status status = Session::attach(daemon.config()).status();
  failure.join();
  EXPECT_EQ(status.code(), Code::kRankLost);
  EXPECT_EQ(status.message(), "rank 3 died before it attached");
  // It hung up like a process that dies, and was not waited for in the next generation.
  EXPECT_TRUE(daemon.wait_for([](const auto& counts) { return counts.detaches == 1; }));
}

TEST(AttachFailureTest, InAnElasticJobADeathBeforeItBeginsIsNoEndOfTheWait) {
  FakeDaemon daemon({.starts = false});
  Config config = daemon.config();
  config.is_elastic = true;
  std::thread life([&] {
    const auto wait_for_attach = [&](int number) {
      EXPECT_TRUE(daemon.wait_for([&](const auto& counts) { return counts.attaches == number; }));
    };
    wait_for_attach(1);
    daemon.drop();
    wait_for_attach(2);
    daemon.fail_job(RUEDA_ERR_RANK_LOST, "rank 3 was killed");
    wait_for_attach(3);
    daemon.fail_job(RUEDA_ERR_SHUT_DOWN, "the job is over");
  });
  const Status status = Session::attach(config).status();
  life.join();
  EXPECT_EQ(status.message(), "the job is over")
      << "what another daemon would say too ends the wait";
}

TEST(AttachFailureTest, ADaemonThatDiesMeanwhile) {
  FakeDaemon daemon({.starts = false});
  std::thread death([&] {
    ASSERT_TRUE(daemon.wait_for([](const auto& counts) { return counts.attaches == 1; }));
    daemon.drop();
  });
  Status status = Session::attach(daemon.config()).status();
  death.join();
  EXPECT_EQ(status.code(), Code::kDaemonLost);
}

TEST(SessionFailureTest, WhoAsksWhetherHostsHaveChangedHearsThatTheMembershipHasEnded) {
  FakeDaemon daemon;
  auto session = attach(daemon);
  EXPECT_FALSE(session->hosts_changed().value());
  daemon.fail_job(RUEDA_ERR_RANK_LOST, "rank 3 was killed");
  Status ended;
  for (int i = 0; i < 2'000 && ended.is_ok(); ++i) {
    ended = session->hosts_changed().status();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(ended.code(), Code::kRankLost);
  EXPECT_EQ(ended.message(), "rank 3 was killed");
}

TEST(SessionFailureTest, ARefusedTensorFailsTheSubmissionAlone) {
  FakeDaemon daemon;
  auto session = attach(daemon);
  Status status = session->submit({check_barrier("refused").value()}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("refused by the test"));
  rueda_handle handle = session->submit({check_barrier("fine").value()}).value();
  EXPECT_TRUE(session->wait(handle, 20'000, nullptr).is_ok());
}

TEST(SessionFailureTest, TheDaemonsDeathEndsEveryWaiter) {
  FakeDaemon daemon({.completes = false});
  auto session = attach(daemon);
  const std::vector<float> in(100, 2.0f);
  std::vector<float> out(100, 7.0f);
  std::vector<std::thread> waiters;
  for (int i = 0; i < 3; ++i) {
    waiters.emplace_back([&, i] {
      std::vector<float> own(100);
      std::string name = "t" + std::to_string(i);
      rueda_handle handle =
          session->submit({allreduce_of(name.c_str(), in.data(), own.data(), 100, 1.0)}).value();
      Status status = session->wait(handle, -1, nullptr);
      EXPECT_EQ(status.code(), Code::kDaemonLost);
      EXPECT_THAT(status.message(), AllOf(HasSubstr(daemon.socket_path()), HasSubstr("restart")));
    });
  }
  ASSERT_TRUE(wait_for_submissions(daemon, 3));
  daemon.drop();
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_THAT(in, Each(2.0f));
  Status later = session->submit({allreduce_of("later", in.data(), out.data(), 100, 1.0)}).status();
  EXPECT_EQ(later.code(), Code::kDaemonLost);
  EXPECT_THAT(out, Each(7.0f));
  EXPECT_TRUE(session->detach(20'000).is_ok()) << "nothing is left to wait for";
}

TEST(SessionFailureTest, WhoOnlyTestsLearnsOfTheDeathToo) {
  FakeDaemon daemon({.completes = false});
  auto session = attach(daemon);
  rueda_handle handle = session->submit({check_barrier("x").value()}).value();
  ASSERT_TRUE(wait_for_submissions(daemon, 1));
  EXPECT_EQ(session->wait(handle, 0, nullptr).code(), Code::kTimeout);
  daemon.drop();
  while (!session->test(handle).value()) std::this_thread::yield();
  EXPECT_EQ(session->wait(handle, 0, nullptr).code(), Code::kDaemonLost);
}

TEST(SessionFailureTest, AFailedJobEndsAllWithItsReason) {
  FakeDaemon daemon({.completes = false});
  auto session = attach(daemon);
  rueda_handle done = session->submit({check_barrier("done").value()}).value();
  rueda_handle lost = session->submit({check_barrier("lost").value()}).value();
  ASSERT_TRUE(wait_for_submissions(daemon, 2));
  daemon.complete(daemon.submissions()[0].ticket);
  daemon.fail_job(RUEDA_ERR_NODE_LOST, "node b died");
  Status status = session->wait(lost, -1, nullptr);
  EXPECT_EQ(status.code(), Code::kNodeLost);
  EXPECT_EQ(status.message(), "node b died");
  EXPECT_TRUE(session->wait(done, -1, nullptr).is_ok()) << "it was done before the failure";
  EXPECT_EQ(session->submit({check_barrier("later").value()}).status().message(), "node b died");
  daemon.drop();
  EXPECT_EQ(session->submit({check_barrier("later").value()}).status().code(), Code::kNodeLost);
}

TEST(SessionFailureTest, AFailureEndsASubmissionThatWaitsForRoom) {
  FakeDaemon daemon({.submission_capacity = 1, .completion_capacity = 1, .completes = false});
  auto session = attach(daemon);
  ASSERT_TRUE(session->submit({check_barrier("a").value()}).is_ok());
  std::thread second([&] {
    EXPECT_EQ(session->submit({check_barrier("b").value()}).status().code(), Code::kRankLost);
  });
  ASSERT_TRUE(daemon.wait_for([](const auto& counts) { return counts.interns == 2; }));
  daemon.fail_job(RUEDA_ERR_RANK_LOST, "rank 1 died");
  second.join();
}

TEST(SessionFailureTest, UnknownTicketsAndCodesDoNoHarm) {
  FakeDaemon daemon({.completes = false});
  auto session = attach(daemon);
  rueda_handle handle = session->submit({check_barrier("x").value()}).value();
  ASSERT_TRUE(wait_for_submissions(daemon, 1));
  rueda_abi_completion record{};
  record.ticket = 0xdeadbeef;
  daemon.push_raw(record, "");
  record.ticket = daemon.submissions()[0].ticket;
  record.code = -12345;
  daemon.push_raw(record, "");
  Status status = session->wait(handle, 20'000, nullptr);
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("\"x\""));
  // The daemon completes a ticket again that has ended.
  daemon.push_raw(record, "");
  EXPECT_EQ(session->test(handle).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(session->stats().completions, 1u);
}

TEST(SessionFailureTest, ADamagedRingEndsTheSession) {
  FakeDaemon daemon({.completes = false});
  auto session = attach(daemon);
  rueda_handle handle = session->submit({check_barrier("x").value()}).value();
  ASSERT_TRUE(wait_for_submissions(daemon, 1));
  daemon.damage_completion_ring();
  Status status = session->wait(handle, 20'000, nullptr);
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("ring is damaged"));
}

TEST(SessionFailureTest, AMessageThatMakesNoSenseEndsTheSession) {
  FakeDaemon daemon({.completes = false});
  auto session = attach(daemon);
  rueda_handle handle = session->submit({check_barrier("x").value()}).value();
  ASSERT_TRUE(wait_for_submissions(daemon, 1));
  daemon.send_raw("sixteen bytes !!", 16);
  EXPECT_EQ(session->wait(handle, 20'000, nullptr).code(), Code::kVersion);
}

}  // namespace
}  // namespace rueda::client
