// Tests what launchers ask for, through real connections.
#include "tests/service/servers/servers.h"

namespace rueda::service {
namespace {

TEST_F(ServersTest, ALauncherRegistersItsJobAndTakesItAway) {
  Launcher launcher(loop_, local());
  launcher.ask_for(spec("job"));
  EXPECT_TRUE(launcher.next().has_registered());
  ASSERT_EQ(engine_.jobs().size(), 1u);
  EXPECT_EQ(engine_.jobs()[0].job, "job");
  EXPECT_EQ(engine_.jobs()[0].user, "me");
  EXPECT_TRUE(launcher.leave().is_ok());
  EXPECT_TRUE(loop_.run_until([&] { return engine_.jobs().empty(); }));
}

TEST_F(ServersTest, ALauncherThatVanishesTakesItsJobAway) {
  Launcher launcher(loop_, local());
  launcher.ask_for(spec("job"));
  ASSERT_TRUE(launcher.next().has_registered());
  launcher.vanish();
  EXPECT_TRUE(loop_.run_until([&] { return engine_.jobs().empty(); }));
}

TEST_F(ServersTest, ARegistrationThatIsRefusedSaysWhy) {
  Launcher first(loop_, local());
  first.ask_for(spec("job"));
  ASSERT_TRUE(first.next().has_registered());

  Launcher second(loop_, local());
  second.ask_for(spec("job"));
  EXPECT_EQ(second.next().body_case(), v1::AgentEvent::BODY_NOT_SET);
  const CallStatus twice = second.leave();
  EXPECT_EQ(twice.code, CallCode::kInvalidArgument);
  EXPECT_EQ(twice.text,
            "job job is registered on node n0 already; a job id names one job at a time");

  Launcher third(loop_, local());
  third.ask_for(spec("a b"));
  const CallStatus bad = third.leave();
  EXPECT_EQ(bad.code, CallCode::kInvalidArgument);
  EXPECT_NE(bad.text.find("a job id is"), std::string::npos) << bad.text;
  EXPECT_EQ(engine_.jobs().size(), 1u) << "the first one's stays";
  EXPECT_EQ(metrics_.daemon().refused_at_socket.Value(), 2);
}

// The name was once acted upon before the engine had been asked whose job it is: any user could end
// any job.
TEST_F(ServersTest, RankFailedOfARefusedRegistrationIsNotHeard) {
  Launcher owner(loop_, local());
  owner.ask_for(spec("job"));
  ASSERT_TRUE(owner.next().has_registered());

  {
    Launcher stranger(loop_, local(::getuid() + 1));
    v1::AgentRequest request;
    *request.mutable_job() = spec("job");
    stranger.ask(request);
    request.mutable_rank_failed()->set_text("ended by a stranger");
    stranger.ask(request);
    request.mutable_end_timeline();
    stranger.ask(request);
    EXPECT_EQ(stranger.next().body_case(), v1::AgentEvent::BODY_NOT_SET);
    EXPECT_EQ(stranger.leave().code, CallCode::kInvalidArgument);
  }
  for (int i = 0; i < 100; ++i) loop_.io().poll();
  ASSERT_EQ(engine_.jobs().size(), 1u);
  EXPECT_EQ(engine_.jobs()[0].error, "");
  EXPECT_EQ(engine_.jobs()[0].state, "idle");
}

class MembershipWithoutMemory final : public Membership {
 public:
  Result<std::string> address_of(const std::string&) const override { throw std::bad_alloc(); }
  std::vector<std::string> node_ids() const override { return {}; }
};

TEST_F(ServersTest, ARegistrationThatCannotBeServedIsRefusedAndOthersGoOn) {
  const MembershipWithoutMemory none;
  GrpcControlPlane plane(loop_.io(), metrics_, {"n0", 1, 60'000});
  Servers servers(poster_, engine_, plane, none, metrics_, info_, [] { return true; });
  ASSERT_TRUE(servers.bind("127.0.0.1", 0).is_ok());
  servers.serve();
  for (int i = 0; i < 2; ++i) {
    Launcher launcher(loop_, local(servers, {::getpid(), ::getuid(), ::getgid()}));
    v1::JobSpec of_two = spec("job");
    of_two.add_nodes()->set_node_id("n1");
    of_two.mutable_nodes(1)->add_ranks(1);
    launcher.ask_for(of_two);
    EXPECT_EQ(launcher.next().body_case(), v1::AgentEvent::BODY_NOT_SET);
    EXPECT_EQ(launcher.leave().code, CallCode::kResourceExhausted);
  }
  loop_.beside([&] {
    servers.stop();
    return true;
  });
}

TEST_F(ServersTest, ALauncherHearsHowItsJobFails) {
  Launcher launcher(loop_, local());
  launcher.ask_for(spec("job"));
  ASSERT_TRUE(launcher.next().has_registered());
  v1::AgentRequest request;
  request.mutable_rank_failed()->set_rank(0);
  request.mutable_rank_failed()->set_text("rank 0 exited with status 3");
  launcher.ask(request);
  const v1::AgentEvent event = launcher.next();
  ASSERT_TRUE(event.has_failed());
  EXPECT_EQ(event.failed().code(), static_cast<int>(Code::kRankLost));
  EXPECT_EQ(event.failed().text(), "rank 0 exited with status 3");
  EXPECT_EQ(event.failed().origin_node(), "n0");
  EXPECT_EQ(event.failed().origin_rank(), 0);
}

TEST_F(ServersTest, ALauncherThatSaysNothingUsefulHarmsNobody) {
  Launcher launcher(loop_, local());
  launcher.ask({});
  v1::AgentRequest request;
  request.mutable_rank_failed()->set_rank(0);
  launcher.ask(request);
  EXPECT_TRUE(launcher.leave().is_ok());
  EXPECT_TRUE(engine_.jobs().empty());
}

// Jobs belong to a user, and the network cannot say who that is.
TEST_F(ServersTest, TheNetworkCannotRegisterJobs) {
  v1::AgentRequest request;
  *request.mutable_job() = spec("job");
  v1::AgentEvent event;
  EXPECT_EQ(ask(network(), "rueda.v1.Agent/Run", request, event).code, CallCode::kUnimplemented);
  EXPECT_TRUE(engine_.jobs().empty());
}

TEST_F(ServersTest, WhatIsNoRequestEndsTheJobAndIsCounted) {
  const Way way = local();
  v1::JobSpec job = spec("job");
  v1::AgentRequest request;
  *request.mutable_job() = job;
  const std::string frames = local::make_frame(local::Method::kRun, request.SerializeAsString()) +
                             local::make_frame(local::Kind::kMessage, 0, "\xff\xff");
  ASSERT_EQ(::send(way.socket->get(), frames.data(), frames.size(), 0),
            static_cast<ssize_t>(frames.size()));
  ASSERT_TRUE(loop_.run_until([&] { return metrics_.daemon().refused_at_socket.Value() == 1; }));
  EXPECT_TRUE(loop_.run_until([&] { return engine_.jobs().empty(); }));
}

// protobuf tells of them by itself, on standard error, which nobody who can make a call may fill.
TEST_F(ServersTest, ATextThatIsNoUtf8IsRefusedWithoutAWordOfProtobufs) {
  ::testing::internal::CaptureStderr();
  v1::JobSpec job = spec("job");
  job.set_user("\xff");
  Launcher launcher(loop_, local());
  launcher.ask_for(job);
  EXPECT_EQ(launcher.leave().code, CallCode::kInvalidArgument);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

// --- A job that is refused

// The stream was once read on after it had been finished, and its job's id was written on one
// thread and read on another.
TEST_F(ServersTest, ARefusedLauncherThatKeepsTalkingIsHeardNoMore) {
  for (int i = 0; i < 20; ++i) {
    Launcher launcher(loop_, local());
    launcher.ask_for(spec("a b"));
    launcher.ask_for(spec("job"));
    launcher.ask_for(spec("job"));
    if (i % 2 == 0) launcher.vanish();
    EXPECT_FALSE(launcher.leave().is_ok());
  }
  EXPECT_TRUE(engine_.jobs().empty());
}

}  // namespace
}  // namespace rueda::service
