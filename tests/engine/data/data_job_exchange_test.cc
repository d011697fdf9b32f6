// Tests all-reduces over the mesh: every algorithm on real data, and a peer that breaks the rules.

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/engine/fake_gpu_adder.h"
#include "tests/engine/ring.h"

namespace rueda::engine {
namespace {

using core::AlgorithmChoice;
using testing::Bytes;
using testing::FakeGpuAdder;
using testing::OperationFixture;
using testing::OperationSpec;
using testing::Ring;
using testing::RingOptions;
using transport::FrameKind;

constexpr std::array kExchanges{AlgorithmChoice::kRecursiveDoubling,
                                AlgorithmChoice::kHalvingDoubling, AlgorithmChoice::kDirect,
                                AlgorithmChoice::kCentral};

struct Sender final : transport::SendEvents {
  void on_sent(uint64_t) override {}
  void on_slot_free(uint32_t) override {}
  void on_closed(const Status&) override {}
};

class DataJobExchange : public ::testing::TestWithParam<AlgorithmChoice> {
 protected:
  RingOptions options(int nodes) const {
    RingOptions options;
    options.ranks_per_node.assign(static_cast<size_t>(nodes), 1);
    options.ranks_per_node.front() = 2;
    options.algorithm = GetParam();
    return options;
  }
};

TEST_P(DataJobExchange, AllDtypesAndOpsAtOddSizes) {
  for (int nodes = 2; nodes <= 8; ++nodes) {
    Ring ring(options(nodes));
    for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
      for (int op = 0; op < kElementwiseOpCount; ++op) {
        if (!has_operator(static_cast<DType>(dtype), static_cast<ReduceOp>(op))) continue;
        // The sizes are from less than a block for each node to many more pieces than the window
        // has.
        for (const int64_t size : {0, 1, 3, 1023, 21'001}) {
          OperationSpec spec;
          spec.dtype = static_cast<DType>(dtype);
          spec.op = static_cast<ReduceOp>(op);
          spec.sizes = {size, 5};
          spec.in_place = size % 2 == 1;
          ring.add(spec);
        }
      }
    }
    ASSERT_TRUE(ring.run_all()) << nodes << " nodes";
    ASSERT_EQ(ring.check(), "") << nodes << " nodes";
  }
}

TEST_P(DataJobExchange, TheSizeOfAChunkDoesNotChangeABit) {
  OperationSpec spec;
  spec.sizes = {30'001};
  spec.random_seed = 1;
  spec.op = ReduceOp::kAverage;
  spec.prescale = 0.3;
  Bytes first;
  for (const uint64_t chunk_bytes : {4096, 12'288, 262'144}) {
    RingOptions of_this_size = options(5);
    of_this_size.chunk_bytes = chunk_bytes;
    Ring ring(of_this_size);
    const OperationFixture& work = ring.add(spec);
    ASSERT_TRUE(ring.run_all());
    ASSERT_EQ(ring.check(), "");
    if (first.empty()) first = work.output(Rank{0});
    EXPECT_EQ(work.output(Rank{3}), first) << chunk_bytes;
  }
}

// The bits are those of a data loop that adds, whenever and in whatever order sums come back.
TEST_P(DataJobExchange, ADataLoopNeedNotAddItself) {
  std::mt19937_64 random(7);
  for (int nodes = 2; nodes <= 6; ++nodes) {
    for (const WireDType wire : {WireDType::kSame, WireDType::kFloat16, WireDType::kBFloat16}) {
      std::vector<std::vector<Bytes>> outputs(2);
      for (const bool is_elsewhere : {false, true}) {
        RingOptions shared = options(nodes);
        shared.shares_staging = true;
        FakeGpuAdder elsewhere;
        Ring ring(shared);
        std::vector<std::unique_ptr<OperationFixture>> works;
        for (uint64_t seq = 1; seq <= 3; ++seq) {
          OperationSpec spec;
          spec.sizes = {static_cast<int64_t>(seq), 19'000};
          spec.random_seed = static_cast<uint32_t>(seq);
          spec.wire_dtype = wire;
          spec.op = seq == 2 ? ReduceOp::kMax : ReduceOp::kAverage;
          spec.prescale = 0.3;
          spec.postscale = seq == 2 ? 1 : 1.7;
          works.push_back(
              std::make_unique<OperationFixture>(spec, shared.ranks_per_node, Seq{seq}));
          for (int node = 0; node < nodes; ++node) {
            auto operation = works.back()->operation(NodeIndex{node});
            if (is_elsewhere) {
              elsewhere.take_over(*operation, works.back()->operation(NodeIndex{node}));
            }
            ring.node(node).job->run(std::move(operation));
          }
        }
        const auto is_over = [&] {
          for (int node = 0; node < nodes; ++node) {
            if (ring.node(node).done.size() < works.size()) return false;
          }
          return true;
        };
        while (!is_over()) {
          const bool was_idle = !ring.poll();
          if (elsewhere.waiting() > 0 && (was_idle || random() % 4 == 0)) {
            elsewhere.add(random() % elsewhere.waiting());
          } else {
            ASSERT_FALSE(was_idle) << "it hangs";
          }
        }
        EXPECT_EQ(elsewhere.added() > 0, is_elsewhere);
        for (const auto& work : works) {
          EXPECT_EQ(work->check(), "");
          outputs[is_elsewhere ? 1 : 0].push_back(work->output(Rank{nodes}));
        }
      }
      EXPECT_EQ(outputs[0], outputs[1]) << nodes << " nodes, " << to_string(wire);
    }
  }
}

TEST_P(DataJobExchange, WhatCannotBeAddedElsewhereIsTheOperationsError) {
  RingOptions shared = options(2);
  shared.shares_staging = true;
  FakeGpuAdder elsewhere;
  Ring ring(shared);
  const OperationFixture& work = ring.add({.sizes = {2000}});
  for (int node = 0; node < 2; ++node) {
    auto operation = work.operation(NodeIndex{node});
    if (node == 0) elsewhere.take_over(*operation, work.operation(NodeIndex{node}));
    ring.node(node).job->run(std::move(operation));
  }
  ASSERT_TRUE(ring.run_until([&] { return elsewhere.waiting() > 0; }));
  elsewhere.add(0, {Code::kInternal, "the adder has no hands"});
  ASSERT_TRUE(ring.run_until([&] { return !ring.node(0).failed.empty(); }));
  EXPECT_EQ(ring.node(0).failed[0].first, Seq{1});
  EXPECT_EQ(ring.node(0).failed[0].second.message(), "the adder has no hands");
}

TEST_P(DataJobExchange, TheTestFaultIsSeenOnEveryRank) {
  RingOptions corrupt = options(3);
  corrupt.corrupt = true;
  Ring ring(corrupt);
  const OperationFixture& work = ring.add({.sizes = {8}});
  ASSERT_TRUE(ring.run_all());
  EXPECT_NE(ring.check(), "");
  for (int rank = 1; rank < work.ranks(); ++rank) {
    EXPECT_EQ(work.output(Rank{rank}), work.output(Rank{0}));
  }
}

TEST_P(DataJobExchange, MessagesThatComeEarlyWaitInTheirSlots) {
  Ring ring(options(4));
  for (int i = 0; i < 4; ++i) ring.add({.sizes = {3000}});
  for (int node = 0; node < 3; ++node) {
    while (ring.launch_next(node)) {
    }
  }
  ring.settle();
  ASSERT_TRUE(ring.run_all());
  EXPECT_EQ(ring.check(), "");
}

TEST_P(DataJobExchange, CountsTheTrafficOfEachPeer) {
  Ring ring(options(2));
  ring.add({.sizes = {1000}});
  ASSERT_TRUE(ring.run_all());
  ring.settle();
  for (int i = 0; i < 2; ++i) ring.node(i).job->count_traffic();
  EXPECT_GE(ring.metrics().peer("n1", "mem")->sent_bytes.Value(), 4000);
  EXPECT_GE(ring.metrics().peer("n1", "mem")->received_bytes.Value(), 4000);
}

TEST_P(DataJobExchange, ANodeMayGoAtAnyMoment) {
  for (int turns = 0; turns < 120; turns += 3) {
    Ring ring(options(3));
    for (int i = 0; i < 4; ++i) ring.add({.sizes = {9000}});
    for (int node = 0; node < 3; ++node) ring.launch_next(node);
    for (int i = 0; i < turns; ++i) ring.poll();
    ring.node(1).job.reset();
    for (int i = 0; i < 500; ++i) ring.poll();
    if (turns < 40) continue;  // the channels may not be open, and their deadline is long
    EXPECT_FALSE(ring.node(0).lost.empty()) << "after " << turns << " turns";
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, DataJobExchange, ::testing::ValuesIn(kExchanges),
                         [](const auto& choice) {
                           std::string name = core::to_string(choice.param);
                           std::erase(name, '-');
                           return name;
                         });

TEST(DataJobAlgorithms, DoublingAndHalvingGiveTheSameBits) {
  for (const int nodes : {2, 3, 6, 8}) {
    std::vector<Bytes> outputs;
    for (const AlgorithmChoice algorithm :
         {AlgorithmChoice::kRecursiveDoubling, AlgorithmChoice::kHalvingDoubling}) {
      RingOptions options;
      options.ranks_per_node.assign(static_cast<size_t>(nodes), 1);
      options.algorithm = algorithm;
      Ring ring(options);
      const OperationFixture& work = ring.add({.sizes = {20'000}, .random_seed = 3});
      ASSERT_TRUE(ring.run_all());
      ASSERT_EQ(ring.check(), "");
      outputs.push_back(work.output(Rank{0}));
    }
    EXPECT_EQ(outputs[0], outputs[1]) << nodes << " nodes";
  }
}

TEST(DataJobAlgorithms, WhatIsTheQuickestIsMeasuredBeforeTheFirstOperation) {
  for (int nodes = 2; nodes <= 5; ++nodes) {
    RingOptions options;
    options.ranks_per_node.assign(static_cast<size_t>(nodes), 1);
    options.algorithm = AlgorithmChoice::kAuto;
    Ring ring(options);
    for (const int64_t size : {0, 1, 1000, 1'000'000}) ring.add({.sizes = {size}});
    ASSERT_TRUE(ring.run_all());
    EXPECT_EQ(ring.check(), "");
  }
}

// The table would have been sent on over a channel that is not open.
TEST(DataJobAlgorithms, ATableThatComesBeforeItCanBePassedOnIsRefused) {
  boost::asio::io_context io{1};
  Turns turns{io, kTurnBytes, kLongestTurn};
  const auto network = transport::make_mem_network();
  observe::Metrics metrics({"0", "test", "none"});
  auto transport = transport::make_mem_transport(io, network);
  DataJobOptions options = testing::data_job_options(3, 1, &turns);  // node 2 never comes
  options.algorithm = AlgorithmChoice::kAuto;
  options.chunk_bytes = 4096;
  std::vector<Status> lost;
  options.events.on_channel_lost = [&](NodeIndex, const Status& status, bool) {
    lost.push_back(status);
  };
  ASSERT_TRUE(transport->listen(options.data_addresses[1]).is_ok());
  const SlotGeometry ring = SlotGeometry::make(3, options.lanes, options.chunk_bytes,
                                               options.staging_bytes - mesh_budget(options));
  Sender sender;
  auto peer = transport::make_mem_transport(io, network);
  std::vector<std::byte> memory(16);
  const transport::RegionKey region = peer->register_region(memory).value();
  transport::ConnectOptions connect;
  connect.address = options.data_addresses[1];
  connect.id = {testing::kRingKey, 1, 0, 1, 0};
  connect.slot_count = ring.slots();
  connect.slot_bytes = ring.slot_bytes;
  connect.timeout_ms = 60'000;
  connect.events = &sender;
  options.timeout_ms = 60'000;
  DataJob job(io, *transport, metrics, std::move(options));
  job.start();
  std::unique_ptr<transport::SendChannel> to_job;
  peer->connect(connect, [&](auto channel) { to_job = std::move(channel).value(); });
  while (!to_job) io.run_one();
  const OperationFixture work({.sizes = {4}}, {1, 1, 1}, Seq{1});
  job.run(work.operation(NodeIndex{1}));
  transport::FrameHeader header;
  header.kind = FrameKind::kTable;
  header.job = connect.id.job.first;
  header.epoch = 1;
  header.payload_bytes = 16;
  const int64_t everything = INT64_MAX;  // up to all sizes; the ring is 0
  std::memcpy(memory.data(), &everything, sizeof(everything));
  const transport::SendBuffer buffer{memory.data(), memory.size(), region};
  to_job->write(header, {&buffer, 1}, 0);
  while (lost.empty()) io.run_one();
  EXPECT_NE(lost[0].message().find("a table that cannot be"), std::string::npos)
      << lost[0].message();
}

// The test is node 1 of two, and sends what it likes.
class DataJobWithMeshPeer : public ::testing::Test {
 protected:
  static constexpr uint64_t kChunkBytes = 4096;
  static constexpr uint32_t kMeshStream = 1u << 16;

  struct Receiver final : transport::ReceiveEvents {
    void on_frame(const transport::FrameHeader& header, std::span<std::byte>) override {
      frames.push_back(header);
    }
    void on_closed(const Status&) override {}
    std::vector<transport::FrameHeader> frames;
  };

  void SetUp() override {
    DataJobOptions options = testing::data_job_options(2, 0, &turns_);
    options.chunk_bytes = kChunkBytes;
    options.algorithm = AlgorithmChoice::kRecursiveDoubling;
    const SlotGeometry ring = SlotGeometry::make(2, options.lanes, kChunkBytes,
                                                 options.staging_bytes - mesh_budget(options));
    const MeshGeometry mesh =
        MeshGeometry::make(options.lanes, 1, kChunkBytes, mesh_budget(options));
    ASSERT_TRUE(job_transport_->listen(options.data_addresses[0]).is_ok());
    ASSERT_TRUE(peer_transport_->listen(options.data_addresses[1]).is_ok());
    options.events.on_done = [this](Seq seq, double) { done_.push_back(seq); };
    options.events.on_failed = [this](Seq seq, const Status& status) {
      failed_.emplace_back(seq, status);
    };
    options.events.on_channel_lost = [this](NodeIndex node, const Status& status, bool) {
      lost_.emplace_back(node, status);
    };
    const std::string address = options.data_addresses[0];
    job_ = std::make_unique<DataJob>(io_, *job_transport_, metrics_, std::move(options));
    job_->start();
    memory_.resize(ring.total_bytes() + mesh.total_bytes(1));
    region_ = peer_transport_->register_region(memory_).value();
    open(address, 0, ring.slots(), ring.slot_bytes, memory_.data(), ring_to_job_, ring_from_job_,
         ring_receiver_);
    open(address, kMeshStream, mesh.slots(), mesh.slot_bytes, memory_.data() + ring.total_bytes(),
         to_job_, from_job_, receiver_);
    while (!to_job_ || !from_job_ || !ring_to_job_ || !ring_from_job_) poll();
    poll();
  }
  void TearDown() override {
    job_.reset();
    for (auto* channel : {&to_job_, &ring_to_job_}) channel->reset();
    for (auto* channel : {&from_job_, &ring_from_job_}) channel->reset();
    poll();
  }

  void restart() {
    TearDown();
    lost_.clear();
    done_.clear();
    job_transport_ = transport::make_mem_transport(io_, network_);
    peer_transport_ = transport::make_mem_transport(io_, network_);
    SetUp();
  }

  void open(const std::string& address, uint32_t stream, uint32_t slots, uint32_t slot_bytes,
            std::byte* base, std::unique_ptr<transport::SendChannel>& to,
            std::unique_ptr<transport::ReceiveChannel>& from, Receiver& receiver) {
    transport::AcceptOptions accept;
    accept.id = {testing::kRingKey, 1, 0, 1, stream};
    accept.slots = {base, slots, slot_bytes, region_};
    accept.timeout_ms = 60'000;
    accept.events = &receiver;
    peer_transport_->expect(accept, [&from](auto channel) { from = std::move(channel).value(); });
    transport::ConnectOptions connect;
    connect.address = address;
    connect.id = {testing::kRingKey, 1, 1, 0, stream};
    connect.slot_count = slots;
    connect.slot_bytes = slot_bytes;
    connect.timeout_ms = 60'000;
    connect.events = &sender_;
    peer_transport_->connect(connect, [&to](auto channel) { to = std::move(channel).value(); });
  }

  // Returns a message of four floats, in operation 1's lane.
  transport::FrameHeader message() const {
    transport::FrameHeader header;
    header.kind = FrameKind::kReduce;
    header.slot = 4 * core::kMaxMessages;  // in lane 1; there are four pieces to a lane
    header.job = testing::kRingKey.first;
    header.epoch = 1;
    header.seq = 1;
    header.plan_hash = 7;
    header.payload_bytes = 16;
    return header;
  }
  void send(transport::SendChannel& channel, const transport::FrameHeader& header) {
    const transport::SendBuffer buffer{memory_.data(), header.payload_bytes, region_};
    channel.write(header, {&buffer, 1}, 0);
    poll();
  }
  void poll() {
    io_.restart();
    io_.poll();
  }

  boost::asio::io_context io_{1};
  Turns turns_{io_, kTurnBytes, kLongestTurn};
  std::shared_ptr<transport::MemNetwork> network_ = transport::make_mem_network();
  std::unique_ptr<transport::Transport> job_transport_ =
      transport::make_mem_transport(io_, network_);
  std::unique_ptr<transport::Transport> peer_transport_ =
      transport::make_mem_transport(io_, network_);
  observe::Metrics metrics_{{"0", "test", "none"}};
  std::vector<Seq> done_;
  std::vector<std::pair<Seq, Status>> failed_;
  std::vector<std::pair<NodeIndex, Status>> lost_;
  std::unique_ptr<DataJob> job_;
  std::vector<std::byte> memory_;
  transport::RegionKey region_;
  Sender sender_;
  Receiver receiver_;
  Receiver ring_receiver_;
  std::unique_ptr<transport::SendChannel> to_job_;
  std::unique_ptr<transport::SendChannel> ring_to_job_;
  std::unique_ptr<transport::ReceiveChannel> from_job_;
  std::unique_ptr<transport::ReceiveChannel> ring_from_job_;
};

TEST_F(DataJobWithMeshPeer, OneMessageEachWayIsAnAllReduceOfTwoNodes) {
  const OperationFixture work({.sizes = {4}}, {1, 1}, Seq{1});
  job_->run(work.operation(NodeIndex{0}));
  poll();
  ASSERT_EQ(receiver_.frames.size(), 1u);
  EXPECT_TRUE(ring_receiver_.frames.empty());
  EXPECT_EQ(receiver_.frames[0].payload_bytes, 16u);
  EXPECT_EQ(receiver_.frames[0].slot, message().slot);
  EXPECT_TRUE(done_.empty());
  send(*to_job_, message());
  EXPECT_EQ(done_, std::vector{Seq{1}});
}

TEST_F(DataJobWithMeshPeer, OperationsOfOnePieceUseTheSlotsOfTheirLaneInTurn) {
  constexpr uint64_t kLanes = 4, kWindow = 4;
  for (uint64_t turn = 0; turn < 2 * kWindow; ++turn) {
    const Seq seq{1 + turn * kLanes};
    const OperationFixture work({.sizes = {4}}, {1, 1}, seq);
    job_->run(work.operation(NodeIndex{0}));
    poll();
    ASSERT_EQ(receiver_.frames.size(), turn + 1);
    transport::FrameHeader header = message();
    header.seq = seq.value;
    header.slot += static_cast<uint32_t>(turn % kWindow) * core::kMaxMessages;
    EXPECT_EQ(receiver_.frames.back().slot, header.slot);
    send(*to_job_, header);
    ASSERT_EQ(done_.size(), turn + 1);
    from_job_->release(header.slot);
    poll();
  }
}

TEST_F(DataJobWithMeshPeer, MessagesThatCannotBe) {
  struct Case {
    const char* what;
    std::function<void(transport::FrameHeader&)> spoil;
  };
  const Case cases[] = {
      {"process set 3", [](auto& header) { header.process_set = 3; }},
      {"message 1", [](auto& header) { header.chunk = 1; }},
      {"message 2", [](auto& header) { header.chunk = 2; }},
      {"at a wrong time", [](auto& header) { header.slot = 0; }},
      {"a phase that node has no part in", [](auto& header) { header.kind = FrameKind::kGather; }},
      {"12 bytes", [](auto& header) { header.payload_bytes = 12; }},
      {"belongs to the ring", [](auto& header) { header.kind = FrameKind::kProbe; }},
      {"belongs to the ring", [](auto& header) { header.kind = FrameKind::kStable; }},
      {"lock generation 2", [](auto& header) { header.lock_generation = 2; }},
  };
  for (const Case& item : cases) {
    restart();
    const OperationFixture work({.sizes = {4}}, {1, 1}, Seq{1});
    auto operation = work.operation(NodeIndex{0});
    operation->generation = 3;
    job_->run(std::move(operation));
    poll();
    transport::FrameHeader header = message();
    header.lock_generation = 3;
    item.spoil(header);
    send(*to_job_, header);
    ASSERT_EQ(lost_.size(), 1u) << item.what;
    EXPECT_EQ(lost_[0].first, NodeIndex{1});
    EXPECT_NE(lost_[0].second.message().find(item.what), std::string::npos)
        << lost_[0].second.message();
    EXPECT_TRUE(done_.empty());
  }
}

TEST_F(DataJobWithMeshPeer, AFrameOfTheRingForWhatIsExchanged) {
  const OperationFixture work({.sizes = {4}}, {1, 1}, Seq{1});
  job_->run(work.operation(NodeIndex{0}));
  poll();
  transport::FrameHeader header = message();
  header.chunk = 1;
  header.payload_bytes = 8;
  send(*ring_to_job_, header);
  ASSERT_EQ(lost_.size(), 1u);
  EXPECT_NE(lost_[0].second.message().find("a way that it does not go"), std::string::npos);
}

// A probe or a table is refused once the table is known.
TEST_F(DataJobWithMeshPeer, ATableThatNobodyWaitsFor) {
  for (const FrameKind kind : {FrameKind::kProbe, FrameKind::kTable}) {
    restart();
    transport::FrameHeader header = message();
    header.kind = kind;
    header.slot = 0;
    send(*ring_to_job_, header);
    ASSERT_EQ(lost_.size(), 1u);
    EXPECT_NE(lost_[0].second.message().find("that cannot be"), std::string::npos);
  }
}

}  // namespace
}  // namespace rueda::engine
