// Tests the agent's and the operator's services, through real connections.
#include "tests/service/servers/servers.h"

#include <future>
#include <thread>

#include <arpa/inet.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/service/links/acceptor.h"
#include "daemon/service/servers/local_caller.h"

namespace rueda::service {
namespace {

TEST_F(ServersTest, DescribeTellsThePorts) {
  v1::DescribeReply reply;
  const CallStatus status = ask(local(), "rueda.v1.Agent/Describe", v1::DescribeRequest(), reply);
  ASSERT_TRUE(status.is_ok()) << status.text;
  EXPECT_EQ(reply.node_id(), "n0");
  EXPECT_EQ(reply.version(), RUEDA_VERSION);
  EXPECT_EQ(reply.control_port(), 1);
  EXPECT_EQ(reply.data_port(), 2);
  EXPECT_EQ(reply.http_port(), 3);
  EXPECT_EQ(reply.advertised_control_address(), "me:1");
  EXPECT_EQ(reply.cpus(), "0-3,8");
}

TEST_F(ServersTest, AnOperatorAsksOverEitherWay) {
  Launcher launcher(loop_, local());
  launcher.ask_for(spec("job"));
  ASSERT_TRUE(launcher.next().has_registered());
  for (const Way& way : {Way(network()), local()}) {
    v1::GetStatusReply daemon;
    v1::ListJobsReply jobs;
    v1::ListPeersReply peers;
    ASSERT_TRUE(ask(way, "rueda.v1.Admin/GetStatus", v1::GetStatusRequest(), daemon).is_ok());
    ASSERT_TRUE(ask(way, "rueda.v1.Admin/ListJobs", v1::ListJobsRequest(), jobs).is_ok());
    ASSERT_TRUE(ask(way, "rueda.v1.Admin/ListPeers", v1::ListPeersRequest(), peers).is_ok());
    EXPECT_EQ(daemon.node_id(), "n0");
    EXPECT_EQ(daemon.pid(), ::getpid());
    EXPECT_EQ(daemon.jobs(), 1);
    EXPECT_EQ(daemon.clients(), 0);
    EXPECT_EQ(daemon.simd(), "AVX2");
    EXPECT_EQ(daemon.state(), "ready");
    EXPECT_EQ(daemon.socket(), "@socket");
    ASSERT_EQ(jobs.jobs_size(), 1);
    EXPECT_EQ(jobs.jobs(0).job_id(), "job");
    EXPECT_EQ(jobs.jobs(0).state(), "idle");
    EXPECT_EQ(jobs.jobs(0).world_size(), 1);
    EXPECT_EQ(jobs.jobs(0).coordinator(), "n0");
    ASSERT_EQ(jobs.jobs(0).missing_ranks_size(), 1);
    EXPECT_EQ(jobs.jobs(0).missing_ranks(0), 0);
    EXPECT_EQ(peers.peers_size(), 0);
  }
}

TEST_F(ServersTest, PeersAreListed) {
  const engine::LinkId self = plane_.acquire(address_);
  ASSERT_TRUE(loop_.run_until([&] {
    const auto now = plane_.peers();
    return now.size() == 2 && now[0].state == "connected" && now[1].state == "connected";
  }));
  v1::ListPeersReply peers;
  const auto list = [&] {
    return ask(local(), "rueda.v1.Admin/ListPeers", v1::ListPeersRequest(), peers).is_ok();
  };
  ASSERT_TRUE(list());
  EXPECT_EQ(peers.peers_size(), 1) << "what no job needs may be anybody's";
  for (const PeerSnapshot& peer : plane_.peers()) plane_.bind(peer.link, "job");
  ASSERT_TRUE(list());
  ASSERT_EQ(peers.peers_size(), 2);
  for (const auto& peer : peers.peers()) {
    EXPECT_EQ(peer.node_id(), "n0");
    EXPECT_EQ(peer.state(), "connected");
    EXPECT_EQ(peer.version(), RUEDA_VERSION);
  }
  plane_.release(self);
}

TEST_F(ServersTest, APortThatIsTakenIsNamed) {
  GrpcControlPlane plane(loop_.io(), metrics_, {"n0", 1, 60'000});
  Servers second(poster_, engine_, plane, membership_, metrics_, info_, [] { return true; });
  const int port = std::stoi(address_.substr(address_.rfind(':') + 1));
  const Result<std::string> bound = second.bind("127.0.0.1", port);
  ASSERT_FALSE(bound.is_ok());
  EXPECT_NE(bound.status().message().find(address_), std::string::npos) << bound.status().message();
  EXPECT_NE(bound.status().message().find("--control-port"), std::string::npos);
  second.stop();
}

// --- Start

// Addresses were once filled in while calls were being answered already.
TEST_F(ServersTest, ACallThatComesBeforeTheServersServeWaits) {
  DaemonInfo info = info_;
  GrpcControlPlane plane(loop_.io(), metrics_, {"n0", 1, 60'000});
  Servers early(poster_, engine_, plane, membership_, metrics_, info, [] { return true; });
  const Result<std::string> bound = early.bind("127.0.0.1", 0);
  ASSERT_TRUE(bound.is_ok()) << bound.status().message();
  v1::GetStatusReply reply;
  auto asked = std::async(std::launch::async, [&] {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    return v1::Admin::NewStub(
               grpc::CreateChannel(bound.value(), grpc::InsecureChannelCredentials()))
        ->GetStatus(&context, {}, &reply);
  });
  // No call is answered yet, whenever it arrives.
  for (int i = 0; i < 100; ++i) loop_.io().poll();
  EXPECT_NE(asked.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  info.http_address = "late:1";
  early.serve();
  ASSERT_TRUE(loop_.run_until(
      [&] { return asked.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }));
  EXPECT_TRUE(asked.get().ok());
  EXPECT_EQ(reply.http_address(), "late:1");
  loop_.beside([&] {
    early.stop();
    return true;
  });
}

TEST_F(ServersTest, ServersThatNeverServedStop) {
  GrpcControlPlane plane(loop_.io(), metrics_, {"n0", 1, 60'000});
  Servers early(poster_, engine_, plane, membership_, metrics_, info_, [] { return true; });
  ASSERT_TRUE(early.bind("127.0.0.1", 0).is_ok());
  early.stop();
}

// --- Health. The messages, of one field each, are the test's own.

class HealthClient {
 public:
  HealthClient(testing::Loop& loop, const std::shared_ptr<grpc::Channel>& channel)
      : loop_(loop), stub_(channel) {}

  // Makes one call, and returns the answer's bytes and how it ended.
  std::pair<std::string, grpc::Status> call(const std::string& method, const std::string& request) {
    return loop_.beside([&] {
      grpc::ClientContext context;
      grpc::CompletionQueue queue;
      const auto call = stub_.PrepareUnaryCall(&context, method, bytes(request), &queue);
      call->StartCall();
      grpc::ByteBuffer reply;
      grpc::Status status;
      call->Finish(&reply, &status, this);
      void* tag = nullptr;
      bool ok = false;
      queue.Next(&tag, &ok);
      return std::pair(text(reply), status);
    });
  }

  static grpc::ByteBuffer bytes(const std::string& text) {
    const grpc::Slice slice(text);
    return {&slice, 1};
  }
  static std::string text(const grpc::ByteBuffer& buffer) {
    std::vector<grpc::Slice> slices;
    std::string all;
    if (!buffer.Valid() || !buffer.Dump(&slices).ok()) return all;
    for (const grpc::Slice& slice : slices) {
      all.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
    return all;
  }

 private:
  testing::Loop& loop_;
  grpc::GenericStub stub_;
};

const std::string kHealthServing("\x08\x01", 2);
const std::string kHealthNotServing("\x08\x02", 2);
const std::string kHealthServiceUnknown("\x08\x03", 2);
const char* const kHealthCheck = "/grpc.health.v1.Health/Check";

TEST_F(ServersTest, HealthIsChecked) {
  HealthClient client(loop_, network());
  servers_.set_serving(false);
  EXPECT_EQ(client.call(kHealthCheck, "").first, kHealthNotServing);
  servers_.set_serving(true);
  EXPECT_EQ(client.call(kHealthCheck, "").first, kHealthServing);
  EXPECT_EQ(client.call(kHealthCheck, std::string("\x0a\x00", 2)).first, kHealthServing);
  is_well_ = false;
  EXPECT_EQ(client.call(kHealthCheck, "").first, kHealthNotServing) << "a loop stands still";
  is_well_ = true;
  EXPECT_EQ(client.call(kHealthCheck, "\x0a\x03you").second.error_code(),
            grpc::StatusCode::NOT_FOUND);
  for (const char* garbage : {"\x0a\x7fyou", "\x0a", "\x10\x01", "\xff\xff\xff"}) {
    EXPECT_EQ(client.call(kHealthCheck, garbage).second.error_code(),
              grpc::StatusCode::INVALID_ARGUMENT);
  }
  EXPECT_EQ(client.call("/grpc.health.v1.Health/Nothing", "").second.error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(ServersTest, AStrangerWhoCallsTooFastIsCutOffAndNamed) {
  // A connection of its own, which comes again when it has been ended.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  HealthClient client(
      loop_, grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments));
  const auto refused = [&] { return metrics_.daemon().refused_at_control.Value(); };
  int answered = 0;
  while (refused() == 0 && answered < 10'000) {
    answered += client.call(kHealthCheck, "").second.ok() ? 1 : 0;
  }
  EXPECT_GE(answered, AcceptorLimits{}.calls);
  EXPECT_EQ(refused(), 1);
  // The next connection has a right to calls of its own.
  HealthClient next(loop_, network());
  EXPECT_TRUE(next.call(kHealthCheck, "").second.ok());
}

TEST_F(ServersTest, HealthIsWatched) {
  grpc::GenericStub stub(network());
  for (const std::string& service : {std::string(), std::string("\x0a\x03you")}) {
    servers_.set_serving(true);
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    const auto ended = [&] {
      return loop_.beside([&queue] {
        void* tag = nullptr;
        bool ok = false;
        queue.Next(&tag, &ok);
        return ok;
      });
    };
    const auto call = stub.PrepareCall(&context, "/grpc.health.v1.Health/Watch", &queue);
    call->StartCall(this);
    ASSERT_TRUE(ended());
    call->Write(HealthClient::bytes(service), this);
    ASSERT_TRUE(ended());
    grpc::ByteBuffer told;
    call->Read(&told, this);
    ASSERT_TRUE(ended());
    EXPECT_EQ(HealthClient::text(told), service.empty() ? kHealthServing : kHealthServiceUnknown);
    if (service.empty()) {
      // Nobody reports that a loop stands still, so the watch looks at it.
      for (const bool is_well : {false, true}) {
        is_well_ = is_well;
        call->Read(&told, this);
        ASSERT_TRUE(ended());
        EXPECT_EQ(HealthClient::text(told), is_well ? kHealthServing : kHealthNotServing);
      }
      servers_.set_serving(true);  // changes nothing
      servers_.set_serving(false);
      call->Read(&told, this);
      ASSERT_TRUE(ended());
      EXPECT_EQ(HealthClient::text(told), kHealthNotServing);
    }
    context.TryCancel();
    grpc::Status status;
    call->Finish(&status, this);
    ASSERT_TRUE(ended());
    EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  }
}

using Kind = security::Caller::Kind;

TEST(LocalCaller, IsAUserOrAnOperator) {
  const security::Caller user =
      local_caller({100, 1000, 1000, Principal::user(1000)}, {}, gid_t{1003});
  EXPECT_EQ(user.principal, Principal::user(1000));
  EXPECT_EQ(user.kind, Kind::kUser);
  EXPECT_EQ(local_caller({101, 1001, 1003, Principal::user(1001)}, {}, gid_t{1003}).kind,
            Kind::kOperator);
  EXPECT_EQ(local_caller({101, 1001, 1003, Principal::user(1001)}, {}, {}).kind, Kind::kUser);
  EXPECT_EQ(local_caller({102, 0, 0, Principal::user(0)}, {}, {}).kind, Kind::kOperator);
}

// Root in a container of a tenant once was an operator of its node.
TEST(LocalCaller, OfANamedSocketIsNoOperator) {
  const Principal team = Principal::named("team-a");
  for (const session::Credentials& peer :
       {session::Credentials{100, 0, 0, team}, session::Credentials{101, ::geteuid(), 1000, team},
        session::Credentials{102, 1002, 1003, team}}) {
    const security::Caller caller = local_caller(peer, {1003}, gid_t{1003});
    EXPECT_EQ(caller.kind, Kind::kUser) << peer.uid;
    EXPECT_EQ(caller.principal, team);
  }
}

// A member need not have it as its first group.
TEST(LocalCaller, HasAllItsGroups) {
  const session::Credentials peer{100, 1000, 1000, Principal::user(1000)};
  EXPECT_EQ(local_caller(peer, {1002, 1003}, gid_t{1003}).kind, Kind::kOperator);
  EXPECT_EQ(local_caller(peer, {1002, 1004}, gid_t{1003}).kind, Kind::kUser);
}

TEST_F(ServersTest, TheNetworkCannotAskForAProbe) {
  const CallStatus from_network = loop_.beside([&] {
    const auto stub = v1::Admin::NewStub(network());
    grpc::ClientContext context;
    const auto stream = stub->Probe(&context);
    stream->Write({});
    v1::ProbeReply reply;
    stream->Read(&reply);
    return from_grpc(stream->Finish());
  });
  EXPECT_EQ(from_network.code, CallCode::kPermissionDenied);
  v1::ProbeReply reply;
  const auto probe = [&](const Way& way) {
    return ask(way, "rueda.v1.Admin/Probe", v1::ProbeRequest(), reply);
  };
  EXPECT_EQ(probe(local(54'321)).code, CallCode::kPermissionDenied)
      << "it takes the network of all nodes";
  EXPECT_EQ(metrics_.daemon().refused_at_control.Value(), 1);
  EXPECT_EQ(metrics_.daemon().refused_at_socket.Value(), 1);
  const CallStatus asked = probe(local());
  EXPECT_EQ(asked.code, CallCode::kFailedPrecondition);
  EXPECT_NE(asked.text.find("--nodes of node n0 has 0"), std::string::npos) << asked.text;
}

// A probe takes the network of all nodes.
TEST_F(ServersTest, AProbeEndsWithItsClient) {
  const UniqueFd silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(at);
  ASSERT_EQ(::bind(silent.get(), reinterpret_cast<const sockaddr*>(&at), bytes), 0);
  ASSERT_EQ(::listen(silent.get(), 8), 0);
  ASSERT_EQ(::getsockname(silent.get(), reinterpret_cast<sockaddr*>(&at), &bytes), 0);
  membership_ = StaticMembership::parse(
                    {"n0=127.0.0.1:1", "n1=127.0.0.1:" + std::to_string(ntohs(at.sin_port))})
                    .value();
  const auto probe = [&] {
    return loop_.beside([way = local()] {
      std::string reply;
      return local::ask_bytes(way.socket->get(), local::Method::kProbe, "", reply,
                              std::chrono::milliseconds(100));
    });
  };
  EXPECT_EQ(probe().code, CallCode::kDeadlineExceeded);
  // While there is one, another is refused.
  const TicksMs give_up = steady_now_ms() + 5'000;
  CallStatus again;
  do {
    again = probe();
  } while (again.code == CallCode::kFailedPrecondition && steady_now_ms() < give_up);
  EXPECT_EQ(again.code, CallCode::kDeadlineExceeded) << again.text;
}

// gRPC's own listener was once deaf for good after descriptors had run out.
TEST_F(ServersTest, TheControlPortAnswersAgainWhenDescriptorsAreBack) {
  const auto status_of = [&](const std::shared_ptr<grpc::Channel>& channel) {
    return loop_.beside([&] {
      grpc::ClientContext context;
      context.set_wait_for_ready(true);
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
      v1::GetStatusReply reply;
      return v1::Admin::NewStub(channel)->GetStatus(&context, {}, &reply);
    });
  };
  EXPECT_TRUE(status_of(network()).ok());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<UniqueFd> waiting;
  for (int i = 0; i < 20; ++i) {
    waiting.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  }
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(waiting.back().get()) + 1;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address_.substr(address_.rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (const UniqueFd& one : waiting) {
    (void)::connect(one.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // it has failed to accept by now
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  waiting.clear();
  grpc::ChannelArguments own;
  own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const grpc::Status status =
      status_of(grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), own));
  EXPECT_TRUE(status.ok()) << status.error_message();
}

// The control loop, where the answer comes from, may stand still for longer than a client waits.
TEST_F(ServersTest, AnAnswerToWhoHasGoneIsDropped) {
  {
    const Way way = local();
    std::string reply;
    EXPECT_EQ(local::ask_bytes(way.socket->get(), local::Method::kGetStatus, "", reply,
                               std::chrono::milliseconds(50))
                  .code,
              CallCode::kDeadlineExceeded);
  }
  v1::GetStatusReply reply;
  EXPECT_TRUE(ask(local(), "rueda.v1.Admin/GetStatus", v1::GetStatusRequest(), reply).is_ok());
}

TEST_F(ServersTest, ManyWhoAskAtOnceAreAnsweredOneAfterTheOther) {
  std::vector<std::future<CallStatus>> all;
  for (int i = 0; i < 40; ++i) {
    all.push_back(std::async(std::launch::async, [way = i % 2 == 0 ? Way(network()) : local()] {
      v1::ListPlansReply reply;
      return ask_by(way, "rueda.v1.Admin/ListPlans", v1::ListPlansRequest(), reply);
    }));
  }
  for (auto& one : all) {
    ASSERT_TRUE(loop_.run_until(
        [&] { return one.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }));
    EXPECT_TRUE(one.get().is_ok());
  }
}

// Plays the daemon of node n1, as far as a probe goes: it explains its errands.
class FakeProber final : public v1::Probe::Service {
 public:
  static constexpr uint64_t kProbe = 7;

  FakeProber() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  int port() const { return port_; }
  // Gives out an errand, in place of the last.
  v1::Errand give(const v1::Explanation& explanation) {
    const std::lock_guard lock(mutex_);
    explanation_ = explanation;
    v1::Errand errand;
    errand.set_prober("n1");
    errand.set_probe(kProbe);
    errand.set_number(++number_);
    return errand;
  }

 private:
  grpc::Status Explain(grpc::ServerContext*, const v1::Errand* errand,
                       v1::Explanation* explanation) override {
    const std::lock_guard lock(mutex_);
    if (errand->probe() != kProbe || errand->number() != number_) {
      return {grpc::StatusCode::NOT_FOUND, "no such errand"};
    }
    *explanation = explanation_;
    return grpc::Status::OK;
  }

  int port_ = 0;
  std::mutex mutex_;
  uint32_t number_ = 0;
  v1::Explanation explanation_;
  std::unique_ptr<grpc::Server> server_;
};

class ProbeServiceTest : public ServersTest {
 protected:
  ProbeServiceTest() {
    membership_ = StaticMembership::parse(
                      {"n0=127.0.0.1:1", "n1=127.0.0.1:" + std::to_string(prober_.port())})
                      .value();
  }

  static v1::Measurement measurement(const std::string& from, const std::string& to,
                                     size_t token_bytes = limits::kTokenBytes) {
    v1::Measurement made;
    made.set_probe(1);
    made.set_pair(1);
    made.set_token(std::string(token_bytes, 't'));
    made.set_from(from);
    made.set_to(to);
    return made;
  }
  static v1::Explanation receiving(const v1::Measurement& what) {
    v1::Explanation made;
    *made.mutable_receive() = what;
    return made;
  }
  static v1::Explanation sending(const v1::Measurement& what) {
    v1::Explanation made;
    *made.mutable_send()->mutable_measurement() = what;
    made.mutable_send()->set_data_address("nobody:1");
    return made;
  }
  grpc::Status receive(const v1::Measurement& what) {
    v1::ReceiveReply reply;
    return call(&v1::Probe::Stub::Receive, prober_.give(receiving(what)), reply);
  }
  grpc::Status send(const v1::Measurement& what, v1::SendReply* reply) {
    return call(&v1::Probe::Stub::Send, prober_.give(sending(what)), *reply);
  }
  grpc::Status keep(const std::vector<std::string>& nodes,
                    const std::vector<std::vector<double>>& rows) {
    v1::Explanation explanation;
    v1::Bandwidths& bandwidths = *explanation.mutable_keep();
    for (const std::string& node : nodes) bandwidths.add_nodes(node);
    for (const std::vector<double>& row : rows) {
      bandwidths.add_rows()->mutable_bytes_per_second()->Assign(row.begin(), row.end());
    }
    v1::KeepReply reply;
    return call(&v1::Probe::Stub::Keep, prober_.give(explanation), reply);
  }
  template <class Method, class Reply>
  grpc::Status call(Method method, const v1::Errand& errand, Reply& reply) {
    return loop_.beside([&] {
      grpc::ClientContext context;
      return (*v1::Probe::NewStub(network()).*method)(&context, errand, &reply);
    });
  }

  FakeProber prober_;
};

TEST_F(ProbeServiceTest, StrangersErrandsAreNotDone) {
  const v1::Errand right = prober_.give(receiving(measurement("n1", "n0")));
  v1::Errand of_stranger = right;
  of_stranger.set_prober("z");
  v1::Errand of_nobody = right;
  of_nobody.set_probe(FakeProber::kProbe + 1);
  v1::Errand old = right;
  old.set_number(right.number() - 1);
  v1::SendReply sent;
  v1::ReceiveReply ready;
  v1::KeepReply kept;
  const std::pair<grpc::Status, const char*> refused[] = {
      {call(&v1::Probe::Stub::Send, of_stranger, sent), "z, which is not in its --nodes"},
      {call(&v1::Probe::Stub::Send, of_nobody, sent), "which did not say so: no such errand"},
      {call(&v1::Probe::Stub::Keep, old, kept), "which did not say so: no such errand"},
      {call(&v1::Probe::Stub::Keep, right, kept), "node n1 has another errand under way"},
      {call(&v1::Probe::Stub::Send, right, sent), "node n1 has another errand under way"},
      {call(&v1::Probe::Stub::Send, {}, sent), "which is not in its --nodes"},
  };
  for (const auto& [status, text] : refused) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION) << text;
    EXPECT_NE(status.error_message().find(text), std::string::npos) << status.error_message();
  }
  EXPECT_TRUE(call(&v1::Probe::Stub::Receive, right, ready).ok());
}

TEST_F(ProbeServiceTest, ErrandsOfOneWhoRunsNoProbeAreNotExplained) {
  v1::Explanation explanation;
  const grpc::Status status =
      call(&v1::Probe::Stub::Explain, prober_.give(receiving({})), explanation);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND) << status.error_message();
}

TEST_F(ProbeServiceTest, OnlyNodesOfTheListAreMeasured) {
  EXPECT_TRUE(receive(measurement("n1", "n0")).ok());
  v1::SendReply sent;
  const std::pair<grpc::Status, const char*> refused[] = {
      {receive(measurement("z", "n0")), "node n0 measures nothing with node z"},
      {receive(measurement("n1", "z")), "the daemon called node z in --nodes is node n0"},
      {receive(measurement("n1", "n0", 31)), "a token of 31 bytes"},
      {send(measurement("n0", "z"), &sent), "node n0 measures nothing with node z"},
      {send(measurement("n1", "n0"), &sent), "the daemon called node n1 in --nodes is node n0"},
  };
  for (const auto& [status, text] : refused) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION) << text;
    EXPECT_NE(status.error_message().find(text), std::string::npos) << status.error_message();
  }
  EXPECT_TRUE(send(measurement("n0", "n1"), &sent).ok());
  // Otherwise any daemon would scan ports for anybody.
  EXPECT_EQ(sent.error(), "no measurement over its data plane; the log of node n0 says why");
}

TEST_F(ProbeServiceTest, NothingIsMeasuredBesideAJob) {
  Launcher launcher(loop_, local());
  launcher.ask_for(spec("job"));
  ASSERT_TRUE(launcher.next().has_registered());
  v1::SendReply sent;
  for (const grpc::Status& status :
       {receive(measurement("n1", "n0")), send(measurement("n0", "n1"), &sent)}) {
    EXPECT_EQ(status.error_message(),
              "node n0 serves job job, which a measurement would disturb; wait for it to end");
  }
}

TEST_F(ProbeServiceTest, BandwidthsThatCannotBeAreNotKept) {
  EXPECT_TRUE(keep({"n0", "n1"}, {{0, 5}, {0, 0}}).ok());
  EXPECT_EQ(metrics_.daemon().unreachable_pairs.Value(), 1);
  const grpc::Status strange = keep({"n0", "z"}, {{0, 0}, {0, 0}});
  EXPECT_NE(strange.error_message().find("node z, which is not in its --nodes"), std::string::npos)
      << strange.error_message();
  EXPECT_FALSE(keep({"n0", "n1"}, {{0, -1}, {0, 0}}).ok());
  EXPECT_FALSE(keep({"n0", "n1"}, {{0, 1}}).ok());
  EXPECT_EQ(metrics_.daemon().unreachable_pairs.Value(), 1) << "what was kept stays";
}

}  // namespace
}  // namespace rueda::service
