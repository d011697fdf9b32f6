// Tests what launchers ask for, through real channels.
#include "tests/service/servers/servers.h"

namespace rueda::service {
namespace {

TEST_F(GrpcServersTest, ALauncherRegistersItsJobAndTakesItAway) {
  Launcher launcher(loop_, local());
  launcher.ask_for(spec("job"));
  EXPECT_TRUE(launcher.next().has_registered());
  ASSERT_EQ(engine_.jobs().size(), 1u);
  EXPECT_EQ(engine_.jobs()[0].job, "job");
  EXPECT_EQ(engine_.jobs()[0].user, "me");
  EXPECT_TRUE(launcher.leave().ok());
  EXPECT_TRUE(loop_.run_until([&] { return engine_.jobs().empty(); }));
}

TEST_F(GrpcServersTest, ALauncherThatVanishesTakesItsJobAway) {
  Launcher launcher(loop_, local());
  launcher.ask_for(spec("job"));
  ASSERT_TRUE(launcher.next().has_registered());
  launcher.vanish();
  EXPECT_TRUE(loop_.run_until([&] { return engine_.jobs().empty(); }));
}

TEST_F(GrpcServersTest, ARegistrationThatIsRefusedSaysWhy) {
  Launcher first(loop_, local());
  first.ask_for(spec("job"));
  ASSERT_TRUE(first.next().has_registered());

  Launcher second(loop_, local());
  second.ask_for(spec("job"));
  EXPECT_EQ(second.next().body_case(), v1::AgentEvent::BODY_NOT_SET);
  const grpc::Status twice = second.leave();
  EXPECT_EQ(twice.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(twice.error_message(),
            "job job is registered on node n0 already; a job id names one job at a time");

  Launcher third(loop_, local());
  third.ask_for(spec("a b"));
  const grpc::Status bad = third.leave();
  EXPECT_EQ(bad.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(bad.error_message().find("a job id is"), std::string::npos) << bad.error_message();
  EXPECT_EQ(engine_.jobs().size(), 1u) << "the first one's stays";
  EXPECT_EQ(metrics_.daemon().refused_at_socket.Value(), 2);
}

// The name was once acted upon before the engine had been asked whose job it is: any user could end
// any job.
TEST_F(GrpcServersTest, RankFailedOfARefusedRegistrationIsNotHeard) {
  Launcher owner(loop_, local());
  owner.ask_for(spec("job"));
  ASSERT_TRUE(owner.next().has_registered());

  const auto channel = local(::getuid() + 1);
  {
    Launcher stranger(loop_, channel);
    v1::AgentRequest request;
    *request.mutable_job() = spec("job");
    stranger.ask_meanwhile(request);
    request.mutable_rank_failed()->set_text("ended by a stranger");
    stranger.ask_meanwhile(request);
    request.mutable_end_timeline();
    stranger.ask_meanwhile(request);
    // The request is answered without the control loop, behind the requests that were sent before
    // on the connection.
    for (int i = 0; i < 3; ++i) {
      grpc::ClientContext context;
      v1::DescribeReply reply;
      EXPECT_TRUE(v1::Agent::NewStub(channel)->Describe(&context, {}, &reply).ok());
    }
    EXPECT_EQ(stranger.next().body_case(), v1::AgentEvent::BODY_NOT_SET);
    EXPECT_EQ(stranger.leave().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
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

TEST_F(GrpcServersTest, ARegistrationThatCannotBeServedIsRefusedAndOthersGoOn) {
  const MembershipWithoutMemory none;
  GrpcControlPlane plane(loop_.io(), metrics_, {"n0", 1, 60'000});
  GrpcServers servers(poster_, engine_, plane, none, metrics_, info_, [] { return true; });
  ASSERT_TRUE(servers.bind("127.0.0.1", 0).is_ok());
  servers.serve();
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  servers.adopt(ends[0], {::getpid(), ::getuid(), ::getgid()});
  const auto channel = grpc::CreateInsecureChannelFromFd("launcher", ends[1]);
  for (int i = 0; i < 2; ++i) {
    Launcher launcher(loop_, channel);
    v1::JobSpec of_two = spec("job");
    of_two.add_nodes()->set_node_id("n1");
    of_two.mutable_nodes(1)->add_ranks(1);
    launcher.ask_for(of_two);
    EXPECT_EQ(launcher.next().body_case(), v1::AgentEvent::BODY_NOT_SET);
    EXPECT_EQ(launcher.leave().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  loop_.beside([&] {
    servers.stop();
    return true;
  });
}

TEST_F(GrpcServersTest, ALauncherHearsHowItsJobFails) {
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

TEST_F(GrpcServersTest, ALauncherThatSaysNothingUsefulHarmsNobody) {
  Launcher launcher(loop_, local());
  launcher.ask({});
  v1::AgentRequest request;
  request.mutable_rank_failed()->set_rank(0);
  launcher.ask(request);
  EXPECT_TRUE(launcher.leave().ok());
  EXPECT_TRUE(engine_.jobs().empty());
}

// Jobs belong to a user, and the network cannot say who that is.
TEST_F(GrpcServersTest, TheNetworkCannotRegisterJobs) {
  Launcher launcher(loop_, network());
  launcher.ask_for(spec("job"));
  EXPECT_EQ(launcher.leave().error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_TRUE(engine_.jobs().empty());
}

// --- A job that is refused

// The stream was once read on after it had been finished, and its job's id was written on one
// thread and read on another.
TEST_F(GrpcServersTest, ARefusedLauncherThatKeepsTalkingIsHeardNoMore) {
  for (int i = 0; i < 20; ++i) {
    Launcher launcher(loop_, local());
    launcher.ask_for(spec("a b"));
    launcher.ask_for(spec("job"));
    launcher.ask_for(spec("job"));
    if (i % 2 == 0) launcher.vanish();
    EXPECT_FALSE(launcher.leave().ok());
  }
  EXPECT_TRUE(engine_.jobs().empty());
}

}  // namespace
}  // namespace rueda::service
