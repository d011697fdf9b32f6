// Fuzzes everything that a launcher can send at the unix socket. The first byte of an input says
// what the rest is: bytes of the connection as they are, or AgentRequests, one behind another, each
// with its length in two bytes, which are put into the frames of one stream. They go as far as the
// engine's register_job and the use of its handle. What comes back has to be frames, and the job
// has to be gone when its launcher is.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include "daemon/base/check.h"
#include "daemon/engine/loops/poster.h"
#include "daemon/engine/node/engine.h"
#include "daemon/local/server.h"
#include "daemon/local/wire.h"
#include "daemon/service/convert/convert.h"
#include "daemon/service/convert/convert_generation.h"
#include "daemon/service/convert/convert_timeline.h"
#include "daemon/service/members/membership.h"
#include "daemon/service/services/agent_service.h"
#include "tests/transport/mem/mem_transport.h"

namespace rueda::service {
namespace {

// A control plane with nobody at the other end.
struct NoPlane final : engine::ControlPlane {
  engine::LinkId acquire(const std::string&) override { return ++last; }
  void release(engine::LinkId) override {}
  void send(engine::LinkId, const engine::Envelope&) override {}
  void send(engine::LinkId, const engine::TimelineMessage&) override {}
  void send(engine::LinkId, const engine::NonfiniteMessage&) override {}
  void send(engine::LinkId, const engine::CommunicatorMessage&) override {}
  void send(engine::LinkId, const engine::GenerationPacket&) override {}
  std::string encode(const core::GenerationMessage& message) const override {
    return service::encode(message);
  }
  Result<core::GenerationMessage> decode(const std::string& body) const override {
    return decode_generation_message(body);
  }
  std::string encode(const core::GenerationVotes& votes) const override {
    return service::encode(votes);
  }
  Result<core::GenerationVotes> decode_votes(const std::string& bytes) const override {
    return decode_generation_votes(bytes);
  }
  engine::LinkId last = 0;
};

struct Node {
  Node() {
    spdlog::set_level(spdlog::level::off);
    options.node_id = "n0";
    options.timeout_ms = 3'600'000;
    RUEDA_CHECK(loops.start({"data:1"}).is_ok());
    agent.serve(server);
  }

  static std::vector<std::unique_ptr<engine::DataLoop>> one_loop(observe::Metrics& metrics) {
    std::vector<std::unique_ptr<engine::DataLoop>> made;
    made.push_back(std::make_unique<engine::DataLoop>(metrics, [](boost::asio::io_context& io) {
      return transport::make_mem_transport(io, transport::make_mem_network());
    }));
    return made;
  }

  boost::asio::io_context loop{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> awake{
      loop.get_executor()};
  observe::Metrics metrics{{"0", "n0", "none"}};
  engine::EngineOptions options;
  engine::DataLoops loops{one_loop(metrics)};
  NoPlane plane;
  StaticMembership membership =
      StaticMembership::parse({"n0=127.0.0.1:1", "n1=127.0.0.1:2"}).value();
  engine::Engine engine{engine::EngineContext{loop, loops, plane, metrics, options, "data:1"}};
  const engine::LoopPoster poster{loop};
  DaemonInfo info;
  AgentService agent{poster, engine, membership, info};
  local::Server server{loop};
};

// Puts requests into the frames of a stream, which a last request of no bytes ends.
std::string frames_of(std::span<const uint8_t> input) {
  std::string frames;
  while (input.size() >= 2) {
    const size_t wanted = input[0] | (input[1] << 8);
    const size_t bytes = std::min(wanted, input.size() - 2);
    const std::string request(reinterpret_cast<const char*>(input.data() + 2), bytes);
    input = input.subspan(2 + bytes);
    frames += frames.empty() ? local::make_frame(local::Method::kRun, request)
              : bytes == 0   ? local::make_frame(local::Kind::kEnd, 0, "")
                             : local::make_frame(local::Kind::kMessage, 0, request);
  }
  return frames;
}

// Takes what has come, and the whole frames out of it.
void hear(int client, std::string& heard) {
  std::array<char, 4096> bytes;
  for (;;) {
    const ssize_t got = ::recv(client, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got <= 0) break;
    heard.append(bytes.data(), static_cast<size_t>(got));
  }
  while (heard.size() >= local::kHeaderBytes) {
    const Result<local::Header> header = local::decode(heard);
    RUEDA_CHECK(header.is_ok());
    RUEDA_CHECK(header.value().kind == local::Kind::kMessage ||
                header.value().kind == local::Kind::kStatus);
    if (heard.size() < local::kHeaderBytes + header.value().bytes) break;
    heard.erase(0, local::kHeaderBytes + header.value().bytes);
  }
}

void talk(Node& node, const std::string& bytes) {
  int ends[2];
  RUEDA_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  UniqueFd client(ends[1]);
  security::Caller caller;
  caller.kind = security::Caller::Kind::kUser;
  caller.principal = Principal::user(1000);
  node.server.adopt(UniqueFd(ends[0]), caller);
  std::string heard;
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t now =
        ::send(client.get(), bytes.data() + sent, bytes.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    const bool has_moved = node.loop.poll() > 0;
    hear(client.get(), heard);
    if (now > 0) sent += static_cast<size_t>(now);
    if (now < 0 && (errno == EPIPE || errno == ECONNRESET || !has_moved)) break;
  }
  while (node.loop.poll() > 0) hear(client.get(), heard);
  client.reset();
  while (!node.engine.jobs().empty()) node.loop.run_one();
  while (node.loop.poll() > 0) {
  }
}

}  // namespace
}  // namespace rueda::service

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  static auto& node = *new rueda::service::Node;
  if (bytes == 0) return 0;
  const std::span<const uint8_t> rest(data + 1, bytes - 1);
  const std::string raw(reinterpret_cast<const char*>(rest.data()), rest.size());
  rueda::service::talk(node, data[0] % 2 == 0 ? raw : rueda::service::frames_of(rest));
  return 0;
}
