// Fuzzes, with libFuzzer, a neighbour that has the job's token and means harm. One node of three is
// real, with operations of several kinds under way; the input says which frames the others send,
// what they give back, and what the node's own control loop does meanwhile.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/engine/data/data_job.h"
#include "tests/transport/mem/mem_transport.h"

namespace rueda::engine {
namespace {

constexpr int kNodes = 3;
constexpr int64_t kElements = 3000;
constexpr uint32_t kMeshStream = 1u << 16;  // has the value of mesh.cc

// Reads the input byte by byte, and zeros after its end.
class Bytes {
 public:
  explicit Bytes(std::span<const uint8_t> input) : input_(input) {}
  bool is_empty() const { return at_ >= input_.size(); }
  uint8_t next() { return is_empty() ? 0 : input_[at_++]; }
  uint32_t next_word() {
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word = (word << 8) | next();
    return word;
  }

 private:
  std::span<const uint8_t> input_;
  size_t at_ = 0;
};

class Peer final : public transport::SendEvents, public transport::ReceiveEvents {
 public:
  void on_sent(uint64_t) override {}
  void on_slot_free(uint32_t) override {}
  void on_frame(const transport::FrameHeader& header, std::span<std::byte>) override {
    held.push_back(header.slot);
  }
  void on_closed(const Status&) override { is_closed = true; }

  std::unique_ptr<transport::SendChannel> to_node;
  std::unique_ptr<transport::ReceiveChannel> from_node;
  std::vector<std::byte> memory;
  std::vector<uint32_t> held;  // slots of frames that have come
  bool is_closed = false;
};

struct Kind {
  CollectiveKind kind;
  ReduceOp op;
  bool is_locked;
  bool is_large;
};
constexpr std::array kKinds{
    Kind{CollectiveKind::kAllreduce, ReduceOp::kSum, false, false},
    Kind{CollectiveKind::kAllreduce, ReduceOp::kSum, true, true},
    Kind{CollectiveKind::kBroadcast, ReduceOp::kSum, false, true},
    Kind{CollectiveKind::kAllreduce, ReduceOp::kAdasum, false, true},
    Kind{CollectiveKind::kAllreduce, ReduceOp::kAverage, true, false},
};

class World {
 public:
  explicit World(uint8_t choice) {
    static observe::Metrics metrics({"0", "test", "none"});
    static PassThreads pass_threads(1);
    node_transport_ = transport::make_mem_transport(io_, network_);
    peer_transport_ = transport::make_mem_transport(io_, network_);
    options_.job = "job";
    options_.key = transport::JobKey(77, 5);
    options_.epoch = Epoch{1};
    options_.self = NodeIndex{choice % kNodes};
    options_.node_ids = {"n0", "n1", "n2"};
    options_.chunk_bytes = 4096;
    options_.staging_bytes = 1 << 20;
    options_.timeout_ms = 60'000;
    options_.pass_threads = &pass_threads;
    options_.turns = &turns_;
    // The choices are probing, exchanges alone, and the ring alone, which is the one that can
    // recover.
    constexpr std::array kChoices{core::AlgorithmChoice::kAuto, core::AlgorithmChoice::kCentral,
                                  core::AlgorithmChoice::kRing};
    options_.algorithm = kChoices[choice / kNodes % 3];
    if (choice & 0x80) {
      options_.policy = core::DeathPolicy::kShrink;
      options_.algorithm = core::AlgorithmChoice::kRing;
    }
    for (int node = 0; node < kNodes; ++node) {
      options_.data_addresses.push_back(node == options_.self.value ? "node:1" : "peers:1");
    }
    (void)node_transport_->listen("node:1");
    (void)peer_transport_->listen("peers:1");
    options_.events.on_done = [](Seq, double) {};
    options_.events.on_failed = [](Seq, const Status&) {};
    options_.events.on_diverged = [](Seq, uint32_t, NodeIndex) {};
    options_.events.on_channel_lost = [](NodeIndex, const Status&, bool) {};
    job_ = std::make_unique<DataJob>(io_, *node_transport_, metrics, options_);
    job_->start();
    open_ring();
    open_mesh();
    poll();
  }
  ~World() {
    job_.reset();
    poll();
  }

  void poll() {
    io_.restart();
    io_.poll();
  }
  void step(Bytes& input) {
    const uint8_t what = input.next();
    switch (what % 8) {
      case 0: return launch(input.next());
      case 1:
        // Core cancels nothing that is complete, and a recovery would notice if it did.
        if (options_.policy == core::DeathPolicy::kShrink) return;
        return job_->cancel({Seq{1 + input.next() % 8u}, 1 + input.next() % 4u});
      case 2: return release(what);
      case 3:
        if (Peer* peer = peer_of(what / 8)) peer->to_node.reset();
        return;
      case 4: return job_->when_quiet([] {});
      default: return send(what / 8, input);
    }
  }

 private:
  int next() const { return (options_.self.value + 1) % kNodes; }
  int previous() const { return (options_.self.value + kNodes - 1) % kNodes; }
  transport::ChannelId id(int from, int to, uint32_t stream) const {
    return {options_.key, 1, from, to, stream, 0};
  }

  void open(int from, int to, uint32_t stream, uint32_t slots, uint32_t slot_bytes) {
    Peer& peer = *peers_.emplace_back(std::make_unique<Peer>());
    peer.memory.resize(size_t{slots} * slot_bytes);
    const transport::RegionKey region = peer_transport_->register_region(peer.memory).value();
    regions_.push_back(region);
    if (from == options_.self.value) {
      transport::AcceptOptions accept;
      accept.id = id(from, to, stream);
      accept.slots = {peer.memory.data(), slots, slot_bytes, region};
      accept.timeout_ms = 60'000;
      accept.events = &peer;
      peer_transport_->expect(accept, [&peer](auto made) {
        if (made.is_ok()) peer.from_node = std::move(made).value();
      });
      return;
    }
    transport::ConnectOptions connect;
    connect.address = "node:1";
    connect.id = id(from, to, stream);
    connect.slot_count = slots;
    connect.slot_bytes = slot_bytes;
    connect.timeout_ms = 60'000;
    connect.events = &peer;
    slot_bytes_ = slot_bytes;
    peer_transport_->connect(connect, [&peer](auto made) {
      if (made.is_ok()) peer.to_node = std::move(made).value();
    });
  }
  void open_ring() {
    const SlotGeometry ring = SlotGeometry::make(kNodes, options_.lanes, options_.chunk_bytes,
                                                 options_.staging_bytes - mesh_budget(options_),
                                                 options_.policy == core::DeathPolicy::kShrink);
    open(options_.self.value, next(), 0, ring.slots(), ring.slot_bytes);
    open(previous(), options_.self.value, 0, ring.slots(), ring.slot_bytes);
  }
  void open_mesh() {
    if (mesh_budget(options_) == 0) return;
    const std::vector<core::Algorithm> algorithms = core::exchanges_of(options_.algorithm);
    size_t most = 0;
    for (int node = 0; node < kNodes; ++node) {
      most = std::max(most, core::peers_of(algorithms, kNodes, NodeIndex{node}).from.size());
    }
    const MeshGeometry mesh = MeshGeometry::make(options_.lanes, static_cast<int>(most),
                                                 options_.chunk_bytes, mesh_budget(options_));
    const core::PairwisePeers peers = core::peers_of(algorithms, kNodes, options_.self);
    for (const NodeIndex to : peers.to) {
      open(options_.self.value, to.value, kMeshStream, mesh.slots(), mesh.slot_bytes);
    }
    for (const NodeIndex from : peers.from) {
      open(from.value, options_.self.value, kMeshStream, mesh.slots(), mesh.slot_bytes);
    }
  }

  Peer* peer_of(uint8_t number) { return peers_[number % peers_.size()].get(); }

  void launch(uint8_t choice) {
    const Kind& kind = kKinds[choice % kKinds.size()];
    // The frame is refused there, and the job is over.
    const bool recovers = options_.policy == core::DeathPolicy::kShrink;
    if (recovers && kind.op == ReduceOp::kAdasum) return;
    auto operation = std::make_unique<Operation>();
    const bool is_decreed = has_root(kind.kind);
    uint64_t& number = launched_[is_decreed ? 1 : 0];
    if (number >= (is_decreed ? 2u : 4u)) return;  // keeps within core's windows
    operation->epoch = Epoch{1};
    const uint64_t first =
        core::first_of(is_decreed ? core::Track::kDecreed : core::Track::kLockable).value;
    operation->seq = Seq{first + number++};
    operation->kind = kind.kind;
    operation->op = kind.op;
    operation->locked = kind.is_locked;
    operation->generation = kind.is_locked ? 1 : 0;
    operation->plan_hash = 7;
    if (kind.op == ReduceOp::kAverage) operation->divisor = kNodes;
    if (is_decreed) operation->root_node = NodeIndex{choice / 8 % kNodes};
    const int64_t elements = kind.is_large ? kElements : 8;
    auto& memory = tensors_.emplace_back(static_cast<size_t>(elements) * sizeof(float));
    operation->first_element = {0};
    operation->add(elements, {{memory.data(), memory.data()}});
    if (kind.op == ReduceOp::kAdasum) operation->weights.assign(1, 0.5);
    job_->run(std::move(operation));
  }

  void release(uint8_t number) {
    Peer* peer = peer_of(number / 8);
    if (!peer->from_node || peer->held.empty()) return;
    peer->from_node->release(peer->held.back());
    peer->held.pop_back();
  }

  void send(uint8_t number, Bytes& input) {
    Peer* peer = peer_of(number);
    if (!peer->to_node) return;
    transport::FrameHeader header;
    header.job = options_.key.first;
    header.epoch = 1;
    const uint8_t shape = input.next();
    header.kind = static_cast<transport::FrameKind>(shape % 8);
    header.slot = input.next();
    header.seq = (shape & 8 ? core::first_of(core::Track::kDecreed).value
                            : core::first_of(core::Track::kLockable).value) +
                 input.next() % 8u;
    header.chunk = shape & 16 ? input.next_word() : input.next();
    header.payload_bytes = (uint32_t{input.next()} << 8 | input.next()) % 4097;
    header.plan_hash = shape & 32 ? input.next() : 7;
    header.lock_generation = shape & 64 ? input.next() : 0;
    header.stable_seq = shape & 128 ? input.next_word() : 0;
    if (!peer->to_node->slot_free(header.slot)) return;
    for (uint8_t& byte : std::span(payload_).first(16)) byte = input.next();
    // The payload lies in registered memory, which each peer has.
    auto* const at = peer->memory.data();
    const uint32_t bytes = std::min<uint32_t>(header.payload_bytes, slot_bytes_);
    header.payload_bytes = bytes;
    std::memcpy(at, payload_.data(), std::min<size_t>(payload_.size(), bytes));
    const transport::SendBuffer buffer{at, bytes, region_of(*peer)};
    peer->to_node->write(header, std::span(&buffer, bytes > 0 ? 1 : 0), 0);
  }
  transport::RegionKey region_of(const Peer& peer) const {
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (peers_[i].get() == &peer) return regions_[i];
    }
    return {};
  }

  boost::asio::io_context io_{1};
  Turns turns_{io_, kTurnBytes, kLongestTurn};
  std::shared_ptr<transport::MemNetwork> network_ = transport::make_mem_network();
  DataJobOptions options_;
  std::unique_ptr<transport::Transport> node_transport_;
  std::unique_ptr<transport::Transport> peer_transport_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<transport::RegionKey> regions_;  // keys by peer
  std::vector<std::vector<std::byte>> tensors_;
  std::array<uint8_t, 64> payload_{};
  std::array<uint64_t, 2> launched_{};  // numbers by track
  uint32_t slot_bytes_ = 4096;
  std::unique_ptr<DataJob> job_;
};

}  // namespace
}  // namespace rueda::engine

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  rueda::engine::Bytes input({data, size});
  rueda::engine::World world(input.next());
  for (int steps = 0; !input.is_empty() && steps < 200; ++steps) {
    world.step(input);
    world.poll();
  }
  return 0;
}
