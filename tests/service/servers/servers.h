// Sets up the servers of a daemon that has no sockets of its own, and launchers that talk to it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/limits.h"
#include "daemon/local/client.h"
#include "daemon/service/servers/servers.h"
#include "tests/service/loop.h"
#include "tests/transport/mem/mem_transport.h"

namespace rueda::service {

// How a test reaches the servers: over the network, or by a connection at the unix socket.
struct Way {
  Way(std::shared_ptr<grpc::Channel> to) : channel(std::move(to)) {}  // NOLINT: a channel is a way
  explicit Way(UniqueFd to) : socket(std::make_shared<UniqueFd>(std::move(to))) {}

  std::shared_ptr<grpc::Channel> channel;
  std::shared_ptr<UniqueFd> socket;
};

inline CallStatus from_grpc(const grpc::Status& status) {
  return {static_cast<CallCode>(status.error_code()), status.error_message()};
}

// Makes a call with a request and a reply, which are messages. `method` is its name, such as
// "rueda.v1.Admin/ListJobs".
template <class Request, class Reply>
CallStatus ask_by(const Way& way, std::string_view method, const Request& request, Reply& reply) {
  if (way.socket) {
    return local::ask(way.socket->get(), *local::find_method(method), request, reply,
                      std::chrono::minutes(1));
  }
  grpc::TemplatedGenericStub<Request, Reply> stub(way.channel);
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  const auto call = stub.PrepareUnaryCall(&context, "/" + std::string(method), request, &queue);
  grpc::Status status;
  call->StartCall();
  call->Finish(&reply, &status, &status);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  return from_grpc(status);
}

class ServersTest : public ::testing::Test {
 protected:
  explicit ServersTest(std::optional<gid_t> admin_group = {},
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
  // Returns a connection of a launcher of that user, over the unix socket.
  Way local(uid_t uid = ::getuid(), gid_t gid = ::getgid()) {
    return local(session::Credentials{::getpid(), uid, gid, Principal::user(uid)});
  }
  Way local(const session::Credentials& peer) { return local(servers_, peer); }
  static Way local(Servers& servers, const session::Credentials& peer) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    servers.adopt(UniqueFd(ends[0]), peer);
    return Way(UniqueFd(ends[1]));
  }
  // Makes a call while the control loop runs.
  template <class Request, class Reply>
  CallStatus ask(const Way& way, const char* method, const Request& request, Reply& reply) {
    return loop_.beside([&] { return ask_by(way, method, request, reply); });
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
  Servers servers_{poster_,
                   engine_,
                   plane_,
                   membership_,
                   metrics_,
                   info_,
                   [this] { return is_well_.load(); },
                   admin_group_};
  std::string address_;
};

// A launcher's stream; what blocks is done beside the loop.
class Launcher {
 public:
  Launcher(testing::Loop& loop, const Way& way) : loop_(loop), way_(way) {}
  ~Launcher() {
    if (stream_ && !end_) (void)leave();
  }

  void ask(const v1::AgentRequest& request) {
    if (stream_) return stream_->send(request.SerializeAsString());
    stream_ = std::make_unique<local::Stream>(
        std::move(*way_.socket), local::Method::kRun, request.SerializeAsString(),
        local::Stream::Events{[this](const std::string& message) { on_message(message); },
                              [this](const CallStatus& status) { on_end(status); }});
    stream_->start();
  }
  void ask_for(const v1::JobSpec& job) {
    v1::AgentRequest request;
    *request.mutable_job() = job;
    ask(request);
  }
  // Returns the next event; BODY_NOT_SET means that the daemon ended the stream.
  v1::AgentEvent next() {
    return loop_.beside([this] {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return end_ || !events_.empty(); });
      if (events_.empty()) return v1::AgentEvent();
      v1::AgentEvent event = std::move(events_.front());
      events_.pop_front();
      return event;
    });
  }
  CallStatus leave() {
    return loop_.beside([this] {
      stream_->finish();
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return end_.has_value(); });
      return *end_;
    });
  }
  void vanish() { stream_->cancel(); }

 private:
  void on_message(const std::string& message) {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(events_.emplace_back().ParseFromString(message));
    changed_.notify_all();
  }
  void on_end(const CallStatus& status) {
    const std::lock_guard lock(mutex_);
    end_ = status;
    changed_.notify_all();
  }

  testing::Loop& loop_;
  const Way way_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<v1::AgentEvent> events_;
  std::optional<CallStatus> end_;
  std::unique_ptr<local::Stream> stream_;
};

}  // namespace rueda::service
