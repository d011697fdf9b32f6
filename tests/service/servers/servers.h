// Sets up the servers of a daemon that has no sockets of its own, and launchers that talk to it.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <grpcpp/create_channel_posix.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/limits.h"
#include "daemon/service/servers/servers.h"
#include "tests/service/loop.h"
#include "tests/transport/mem/mem_transport.h"

namespace rueda::service {

class GrpcServersTest : public ::testing::Test {
 protected:
  explicit GrpcServersTest(std::optional<gid_t> admin_group = {},
                           std::shared_ptr<const rpc::Credentials> credentials = {})
      : credentials_(std::move(credentials)), admin_group_(admin_group) {}

  void SetUp() override {
    options_.node_id = info_.node_id = "n0";
    info_.control_address = "127.0.0.1:1";
    info_.data_address = "[::1]:2";
    info_.http_address = "host:3";
    info_.advertised_address = "me:1";
    info_.cpus = "0-3,8";
    info_.socket = "@socket";
    info_.simd = "AVX2";
    info_.transport = "mem";
    ASSERT_TRUE(data_loops_.start({"data:1"}).is_ok());
    plane_.set_events(&engine_);
    const Result<std::string> bound = servers_.bind("127.0.0.1", 0);
    ASSERT_TRUE(bound.is_ok()) << bound.status().message();
    address_ = bound.value();
    servers_.serve();
  }
  void TearDown() override {
    bool closed = false;
    engine_.close_all(Status(Code::kShutDown, "the test is over"), [&] { closed = true; });
    EXPECT_TRUE(loop_.run_until([&] { return closed; }));
    bool stopped = false;
    plane_.stop([&] { stopped = true; });
    EXPECT_TRUE(loop_.run_until([&] { return stopped; }));
    loop_.beside([this] {
      servers_.stop();
      return true;
    });
    data_loops_.stop();
  }

  std::vector<std::unique_ptr<engine::DataLoop>> one_loop() {
    std::vector<std::unique_ptr<engine::DataLoop>> loops;
    loops.push_back(std::make_unique<engine::DataLoop>(metrics_, [](boost::asio::io_context& io) {
      return transport::make_mem_transport(io, transport::make_mem_network());
    }));
    return loops;
  }
  std::shared_ptr<grpc::Channel> network() const {
    return grpc::CreateChannel(address_, grpc::InsecureChannelCredentials());
  }
  // Returns a channel of a launcher of that user, over the unix socket.
  std::shared_ptr<grpc::Channel> local(uid_t uid = ::getuid(), gid_t gid = ::getgid()) {
    return local(session::Credentials{::getpid(), uid, gid});
  }
  std::shared_ptr<grpc::Channel> local(const session::Credentials& peer) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    servers_.adopt(ends[0], peer);
    return grpc::CreateInsecureChannelFromFd("launcher", ends[1]);
  }
  static v1::JobSpec spec(const std::string& job) {
    v1::JobSpec made;
    made.set_job_id(job);
    made.set_token(std::string(limits::kTokenBytes, 't'));
    made.set_user("me");
    made.add_nodes()->set_node_id("n0");
    made.mutable_nodes(0)->add_ranks(0);
    return made;
  }

  ControlPlaneOptions plane_options() const {
    ControlPlaneOptions options;
    options.node_id = "n0";
    options.incarnation = 1;
    options.timeout_ms = 60'000;
    if (credentials_) options.credentials = credentials_;
    return options;
  }

  const std::shared_ptr<const rpc::Credentials> credentials_;
  testing::Loop loop_;
  observe::Metrics metrics_{{"0", "n0", "none"}};
  engine::EngineOptions options_;
  engine::DataLoops data_loops_{one_loop()};
  GrpcControlPlane plane_{loop_.io(), metrics_, plane_options()};
  engine::Engine engine_{
      engine::EngineContext{loop_.io(), data_loops_, plane_, metrics_, options_, "data:1"}};
  const engine::LoopPoster poster_{loop_.io()};
  StaticMembership membership_ = StaticMembership::parse({}).value();
  DaemonInfo info_;
  std::atomic<bool> is_well_{true};
  const std::optional<gid_t> admin_group_;
  GrpcServers servers_{poster_,
                       engine_,
                       plane_,
                       membership_,
                       metrics_,
                       info_,
                       [this] { return is_well_.load(); },
                       admin_group_};
  std::string address_;
};

// A launcher's stream; every call blocks, and is made beside the loop.
class Launcher {
 public:
  Launcher(testing::Loop& loop, const std::shared_ptr<grpc::Channel>& channel)
      : loop_(loop), stub_(v1::Agent::NewStub(channel)), stream_(stub_->Run(&context_)) {}
  ~Launcher() {
    if (!finished_) (void)leave();
  }

  void ask(const v1::AgentRequest& request) {
    loop_.beside([&] { return stream_->Write(request); });
  }
  void ask_for(const v1::JobSpec& job) {
    v1::AgentRequest request;
    *request.mutable_job() = job;
    ask(request);
  }
  // Returns the next event; BODY_NOT_SET means that the daemon ended the stream.
  v1::AgentEvent next() {
    v1::AgentEvent event;
    loop_.beside([&] { return stream_->Read(&event); });
    return event;
  }
  grpc::Status leave() {
    finished_ = true;
    return loop_.beside([&] {
      stream_->WritesDone();
      v1::AgentEvent event;
      while (stream_->Read(&event)) {
      }
      return stream_->Finish();
    });
  }
  void vanish() { context_.TryCancel(); }
  // Writes while the control loop stands still.
  void ask_meanwhile(const v1::AgentRequest& request) { EXPECT_TRUE(stream_->Write(request)); }

 private:
  testing::Loop& loop_;
  grpc::ClientContext context_;
  std::unique_ptr<v1::Agent::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AgentRequest, v1::AgentEvent>> stream_;
  bool finished_ = false;
};

}  // namespace rueda::service
