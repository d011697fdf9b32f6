// Fuzzes everything that a launcher can send: AgentRequests, one behind another, each with its
// length in two bytes. They go as far as the engine's register_job and the use of its handle, and
// the job has to be gone when its launcher is.
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <spdlog/spdlog.h>

#include "daemon/base/check.h"
#include "daemon/engine/node/engine.h"
#include "daemon/service/convert/convert.h"
#include "daemon/service/convert/convert_generation.h"
#include "daemon/service/convert/convert_timeline.h"
#include "daemon/service/members/membership.h"
#include "rueda/v1/agent.pb.h"
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
};

void talk(Node& node, std::span<const uint8_t> input) {
  engine::JobHandle handle;
  bool has_asked = false;
  while (input.size() > 2) {
    const size_t wanted = input[0] | (input[1] << 8);
    const size_t bytes = std::min(wanted, input.size() - 2);
    v1::AgentRequest request;
    if (!request.ParseFromArray(input.data() + 2, static_cast<int>(bytes))) break;
    input = input.subspan(2 + bytes);
    if (request.has_job() && !std::exchange(has_asked, true)) {
      Result<engine::JobSpec> spec = from_proto(request.job(), node.membership);
      if (!spec.is_ok()) {
        RUEDA_CHECK(!spec.status().message().empty());
        continue;
      }
      const Result<engine::JobHandle> made = node.engine.register_job(spec.value(), {});
      if (made.is_ok()) handle = made.value();
    } else if (request.has_rank_failed()) {
      node.engine.report_rank_failed(handle, Rank{request.rank_failed().rank()},
                                     request.rank_failed().text());
    } else if (request.has_end_timeline()) {
      node.engine.end_timeline(handle);
    }
    node.loop.poll();
  }
  node.engine.close_job(handle);
  while (!node.engine.jobs().empty()) node.loop.run_one();
}

}  // namespace
}  // namespace rueda::service

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  static auto& node = *new rueda::service::Node;
  rueda::service::talk(node, {data, bytes});
  return 0;
}
