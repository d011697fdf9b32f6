// Sets up a DataJob beside a neighbour that the test plays.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/engine/ring.h"

namespace rueda::engine::testing {

using transport::FrameKind;

inline OperationSpec sum_of(std::vector<int64_t> sizes) {
  OperationSpec spec;
  spec.sizes = std::move(sizes);
  return spec;
}

// Sets up node 0 of a ring, with a peer in the place of all other nodes that sends what the test
// wants.
class DataJobWithPeer : public ::testing::Test {
 protected:
  static constexpr uint64_t kChunkBytes = 4096;
  static constexpr int64_t kChunkFloats = 1024;

  void SetUp() override { open(2); }
  void TearDown() override {
    job_.reset();
    to_job_.reset();
    from_job_.reset();
    poll();
  }

  void open(int nodes, TicksMs timeout_ms = 60'000,
            core::DeathPolicy policy = core::DeathPolicy::kFail) {
    job_.reset();
    to_job_.reset();
    from_job_.reset();
    poll();
    nodes_ = nodes;
    geometry_ =
        SlotGeometry::make(nodes, 4, kChunkBytes, 64u << 20, policy == core::DeathPolicy::kShrink);
    job_transport_ = transport::make_mem_transport(io_, network_);
    peer_transport_ = transport::make_mem_transport(io_, network_);
    DataJobOptions options = data_job_options(nodes, 0, &turns_);
    options.chunk_bytes = kChunkBytes;
    options.timeout_ms = timeout_ms;
    options.policy = policy;
    ASSERT_TRUE(job_transport_->listen(options.data_addresses[0]).is_ok());
    ASSERT_TRUE(peer_transport_->listen(options.data_addresses[1]).is_ok());
    options.events.on_done = [this](Seq seq, double) { done_.push_back(seq); };
    options.events.on_failed = [this](Seq seq, const Status& status) {
      failed_.emplace_back(seq, status);
    };
    options.events.on_diverged = [this](Seq seq, uint32_t generation, NodeIndex node) {
      diverged_.emplace_back(seq, generation, node);
    };
    options.events.on_channel_lost = [this](NodeIndex node, const Status& status, bool is_missed) {
      lost_.emplace_back(node, status);
      missed_.push_back(is_missed);
    };
    address_ = options.data_addresses[0];
    job_ = std::make_unique<DataJob>(io_, *job_transport_, metrics_, std::move(options));
    job_->start();
    connect_peer();
  }

  void connect_peer() {
    memory_.assign(geometry_.total_bytes(), std::byte{0});
    region_ = peer_transport_->register_region(memory_).value();
    transport::AcceptOptions accept;
    accept.id = {kRingKey, 1, 0, 1, 0};
    accept.slots = {memory_.data(), geometry_.slots(), geometry_.slot_bytes, region_};
    accept.timeout_ms = 60'000;
    accept.events = &from_events_;
    peer_transport_->expect(accept,
                            [this](auto channel) { from_job_ = std::move(channel).value(); });
    transport::ConnectOptions connect;
    connect.address = address_;
    connect.id = {kRingKey, 1, nodes_ - 1, 0, 0};
    connect.slot_count = geometry_.slots();
    connect.slot_bytes = geometry_.slot_bytes;
    connect.timeout_ms = 60'000;
    connect.events = &to_events_;
    peer_transport_->connect(connect,
                             [this](auto channel) { to_job_ = std::move(channel).value(); });
    run_until([this] { return to_job_ && from_job_; });
    poll();
  }

  void launch(const OperationFixture& work) {
    job_->run(work.operation(NodeIndex{0}));
    poll();
  }

  struct Frame {
    uint64_t seq = 1;
    FrameKind kind = FrameKind::kReduce;
    uint32_t chunk = 1;
    uint32_t slot = 0;
    size_t bytes = 16;
    uint64_t plan_hash = 7;
    uint64_t stable_seq = 0;
    uint32_t generation = 0;
  };
  // Sends a frame, which has four floats of shard 1 unless told otherwise.
  void send(const Frame& frame) {
    transport::FrameHeader header;
    header.kind = frame.kind;
    header.slot = frame.slot;
    header.job = kRingKey.first;
    header.epoch = 1;
    header.chunk = frame.chunk;
    header.seq = frame.seq;
    header.plan_hash = frame.plan_hash;
    header.stable_seq = frame.stable_seq;
    header.lock_generation = frame.generation;
    header.payload_bytes = static_cast<uint32_t>(frame.bytes);
    const transport::SendBuffer buffer{memory_.data(), frame.bytes, region_};
    to_job_->write(header, std::span(&buffer, frame.bytes > 0 ? 1 : 0), 0);
    poll();
  }
  void poll() {
    io_.restart();
    io_.poll();
  }
  bool run_until(const std::function<bool()>& condition) {
    const TicksMs give_up = steady_now_ms() + 60'000;
    while (!condition() && steady_now_ms() < give_up) {
      io_.restart();
      io_.run_one_for(std::chrono::milliseconds(100));
    }
    return condition();
  }

  // Returns the reason of the one loss there was, which must be of the node that sends to node 0.
  std::string reason() const {
    if (lost_.size() != 1) return std::to_string(lost_.size()) + " losses";
    if (lost_[0].first != NodeIndex{nodes_ - 1}) return "the wrong node";
    if (lost_[0].second.code() != Code::kNodeLost) return "the wrong code";
    const std::string id = "n" + std::to_string(nodes_ - 1);
    if (lost_[0].second.origin().node_id != id) return "the wrong origin";
    const std::string start = "node " + id + " is lost: ";
    const std::string& message = lost_[0].second.message();
    return message.starts_with(start) ? message.substr(start.size()) : message;
  }

  struct FromEvents final : transport::ReceiveEvents {
    void on_frame(const transport::FrameHeader& header, std::span<std::byte>) override {
      frames.push_back(header);
    }
    void on_closed(const Status&) override { closed = true; }
    std::vector<transport::FrameHeader> frames;
    bool closed = false;
  };
  struct ToEvents final : transport::SendEvents {
    void on_sent(uint64_t) override {}
    void on_slot_free(uint32_t) override {}
    void on_closed(const Status&) override { closed = true; }
    bool closed = false;
  };

  boost::asio::io_context io_{1};
  Turns turns_{io_, kTurnBytes, kLongestTurn};
  std::shared_ptr<transport::MemNetwork> network_ = transport::make_mem_network();
  observe::Metrics metrics_{{"0", "test", "none"}};
  int nodes_ = 2;
  SlotGeometry geometry_;
  std::unique_ptr<transport::Transport> job_transport_;
  std::unique_ptr<transport::Transport> peer_transport_;
  std::string address_;
  Bytes memory_;
  transport::RegionKey region_;
  FromEvents from_events_;
  ToEvents to_events_;
  std::unique_ptr<transport::ReceiveChannel> from_job_;
  std::unique_ptr<transport::SendChannel> to_job_;
  std::unique_ptr<DataJob> job_;
  std::vector<Seq> done_;
  std::vector<std::pair<Seq, Status>> failed_;
  std::vector<std::tuple<Seq, uint32_t, NodeIndex>> diverged_;
  std::vector<std::pair<NodeIndex, Status>> lost_;
  std::vector<bool> missed_;  // is_missed of each loss
};

}  // namespace rueda::engine::testing
