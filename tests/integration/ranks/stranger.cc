// Whoever reaches a daemon's control port and means it no good:
//
//   integration_stranger links HOST:PORT BYTES   opens links without end, each with a hello of so
//   many bytes and messages of
//                                                jobs that are none
//   integration_stranger messages HOST:PORT      says hello, and floods one link
//   integration_stranger large HOST:PORT         sends messages of 64 MiB, over many connections
//   integration_stranger hello HOST:PORT TEXT    says hello with that name, and waits for the end
//   of the link
//
// Prints "begun" when it has begun, goes on until SIGTERM, and prints what it has
// done.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/grpcpp.h>
#include <signal.h>

#include "daemon/service/links/protocol_version.h"
#include "rueda/v1/control.grpc.pb.h"

namespace {

using rueda::v1::LinkMessage;

constexpr int kThreads = 4;
constexpr int kLinksOfAConnection = 12;
constexpr size_t kConnections = 100;  // the connections of a thread, at a time

struct Link {
  explicit Link(const std::shared_ptr<grpc::Channel>& channel)
      : stub(rueda::v1::Control::NewStub(channel)), stream(stub->Link(&context)) {}
  grpc::ClientContext context;
  std::unique_ptr<rueda::v1::Control::Stub> stub;
  std::unique_ptr<grpc::ClientReaderWriter<LinkMessage, LinkMessage>> stream;
};

// Returns a channel with a connection of its own.
std::shared_ptr<grpc::Channel> connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

LinkMessage hello(const std::string& name) {
  LinkMessage message;
  message.mutable_hello()->set_protocol_version(rueda::service::kProtocolVersion);
  message.mutable_hello()->set_nonce(std::string(32, 'n'));
  message.mutable_hello()->set_node_id(name);
  return message;
}

LinkMessage nobodys() {
  LinkMessage message;
  message.mutable_job()->set_job_id("nobody's");
  message.mutable_job()->set_number(1);
  message.mutable_job()->mutable_leave()->set_rank(1);
  return message;
}

std::atomic<bool> over{false};
std::atomic<uint64_t> done{0};

void open_links(const std::string& address, size_t bytes, int thread) {
  struct Connection {
    std::shared_ptr<grpc::Channel> channel;
    std::vector<std::unique_ptr<Link>> links;
  };
  std::deque<Connection> connections;
  for (int number = 0; !over; ++number) {
    if (connections.size() >= kConnections) {
      for (const auto& link : connections.front().links) link->context.TryCancel();
      connections.pop_front();
    }
    Connection& connection = connections.emplace_back(Connection{connect(address), {}});
    for (int i = 0; i < kLinksOfAConnection && !over; ++i) {
      std::string name =
          std::to_string(thread) + "-" + std::to_string(number) + "-" + std::to_string(i);
      if (bytes > name.size()) name.resize(bytes, 'x');
      auto link = std::make_unique<Link>(connection.channel);
      if (!link->stream->Write(hello(name))) continue;
      link->stream->Write(nobodys());
      connection.links.push_back(std::move(link));
      ++done;
    }
  }
  for (const Connection& connection : connections) {
    for (const auto& link : connection.links) link->context.TryCancel();
  }
}

void flood(const std::string& address) {
  while (!over) {
    Link link(connect(address));
    std::atomic<bool> closed{false};
    std::thread stopper([&] {
      while (!over && !closed) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      link.context.TryCancel();
    });
    if (link.stream->Write(hello("flood"))) {
      while (!over && link.stream->Write(nobodys())) ++done;
    }
    closed = true;
    stopper.join();
  }
}

void send_large(const std::string& address) {
  while (!over) {
    Link link(connect(address));
    link.context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));
    link.stream->Write(hello(std::string(64 << 20, 'x')));
    LinkMessage answer;
    while (link.stream->Read(&answer)) {
    }
    ++done;
  }
}

int say_hello(const std::string& address, const std::string& name) {
  Link link(connect(address));
  link.stream->Write(hello(name));
  LinkMessage answer;
  while (link.stream->Read(&answer)) {
  }
  std::puts("ended");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 2 ? argv[1] : "";
  const std::string address = argc > 2 ? argv[2] : "";
  if (how == "hello" && argc == 4) return say_hello(address, argv[3]);
  std::function<void(int)> attack;
  if (how == "links" && argc == 4) {
    attack = [&](int thread) { open_links(address, std::strtoul(argv[3], nullptr, 10), thread); };
  } else if (how == "messages") {
    attack = [&](int) { flood(address); };
  } else if (how == "large") {
    attack = [&](int) { send_large(address); };
  } else {
    std::fputs("how this is called stands at the top of its source\n", stderr);
    return 2;
  }
  sigset_t ends;
  ::sigemptyset(&ends);
  ::sigaddset(&ends, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(attack, i);
  std::puts("begun");
  std::fflush(stdout);
  int number = 0;
  ::sigwait(&ends, &number);
  over = true;
  for (std::thread& thread : threads) thread.join();
  std::printf("done %llu\n", static_cast<unsigned long long>(done.load()));
  return 0;
}
