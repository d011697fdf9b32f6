// Runs a worker in this process. The test plays the daemon at the other end of the socket, and
// decides when the fake devices go on.
#pragma once

#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/gpu/worker/commands.h"
#include "daemon/gpu/worker/worker.h"
#include "tests/gpu/fake/fake_device.h"
#include "tests/gpu/shared_counters.h"

namespace rueda::gpu {

using fake::FakeDevice;
using fake::FakeGpu;

inline constexpr uint64_t kCount = 1000;
inline constexpr uint64_t kBytes = kCount * sizeof(float);
inline constexpr uint32_t kCounters = 9;  // the number of the counters' memory

class WorkerTest : public testing::Test {
 protected:
  // Holds what one rank has, in a process of its own.
  struct Rank {
    explicit Rank(FakeGpu& gpu) : device(gpu), stream(device.make_stream(Priority::kLow).value()) {}
    FakeDevice device;
    std::unique_ptr<Stream> stream;
    DeviceAddress at = 0;
  };

  explicit WorkerTest(size_t gpus = 1, uint64_t seed = 1, bool have_peer_access = true)
      : gpus_(make_gpus(gpus, seed, have_peer_access)) {
    auto ends = make_packet_sockets().value();
    daemon_.emplace(std::move(ends.first));
    worker_.emplace(std::move(ends.second),
                    [this](const OpenBody& wanted,
                           const AcceptDevice& accept) -> Result<std::unique_ptr<Device>> {
                      const size_t ordinal = wanted.uuid[15];
                      if (wanted.uuid[0] != 0xfa || ordinal >= gpus_.size()) {
                        return Status(Code::kNotFound, "no such GPU");
                      }
                      auto device = std::make_unique<FakeDevice>(
                          gpus_[ordinal],
                          DeviceOptions{.memory_limit_bytes = wanted.memory_limit_bytes});
                      if (Status status = accept(device->facts()); !status.is_ok()) return status;
                      if (device_ == nullptr) device_ = device.get();
                      opened_.push_back(device.get());
                      return std::unique_ptr<Device>(std::move(device));
                    });
  }

  static std::deque<FakeGpu> make_gpus(size_t count, uint64_t seed, bool have_peer_access) {
    std::deque<FakeGpu> gpus;
    for (size_t i = 0; i < count; ++i) {
      gpus.emplace_back(fake::FakeOptions{
          .seed = seed + i, .ordinal = static_cast<int>(i), .has_peer_access = have_peer_access});
    }
    return gpus;
  }
  void step_gpus() {
    for (size_t i = 0; i < gpus_.size(); ++i) {
      if (!held_.contains(i)) gpus_[i].step();
    }
  }

  void send(const Packet& packet) { ASSERT_EQ(daemon_->send(packet), PacketSocket::Io::kDone); }
  void open(uint8_t first_of_uuid = 0xfa) {
    OpenBody body{.timeout_ms = 1000, .memory_limit_bytes = 1 << 20};
    body.uuid[0] = first_of_uuid;
    Packet packet(WorkerMessage::kOpen);
    send(packet.add(body));
  }
  void open_and_share() {
    open();
    ASSERT_EQ(next()->type(), WorkerMessage::kReady);
    add_counters();
    for (uint32_t i = 0; i < 2; ++i) share(i, ranks_[i], static_cast<float>(i + 1));
  }
  void add_counters() {
    Packet packet(WorkerMessage::kAddMemory);
    packet.add(AddMemoryBody{
        .memory = kCounters, .kind = MemoryKind::kHost, .bytes = SharedCounters::kBytes});
    packet.fd = counters_.duplicate();
    send(packet);
    expect_outcome(WorkerMessage::kMemoryAdded, kCounters, Code::kOk);
  }
  // Shares the rank's device memory, kCount times the value, under the number.
  void share(uint32_t number, Rank& rank, float value, Sharing sharing = Sharing::kIpc) {
    rank.at = rank.device.allocate(kBytes, sharing).value();
    put(rank, value);
    const MemoryHandle handle = rank.device.export_memory(rank.at).value();
    add(number, handle, rank.device.facts().uuid);
    expect_outcome(WorkerMessage::kMemoryAdded, number, Code::kOk);
  }
  void add(uint32_t number, const MemoryHandle& handle,
           const std::array<uint8_t, 16>& uuid = {0xfa}) {
    Packet packet(WorkerMessage::kAddMemory);
    const auto kind = handle.sharing == Sharing::kIpc ? MemoryKind::kIpc : MemoryKind::kFd;
    packet.add(AddMemoryBody{
        .memory = number, .kind = kind, .bytes = handle.bytes, .uuid = uuid, .ipc = handle.ipc});
    packet.fd = UniqueFd(handle.fd);
    send(packet);
  }
  void put(Rank& rank, float value) {
    const auto host = rank.device.allocate_host(kBytes).value();
    for (uint64_t i = 0; i < kCount; ++i) std::memcpy(host.data() + i * 4, &value, 4);
    ASSERT_TRUE(rank.stream->copy_to_device(rank.at, host.data(), kBytes).is_ok());
    gpu_.run();
  }
  std::vector<float> values(Rank& rank) {
    const auto host = rank.device.allocate_host(kBytes).value();
    EXPECT_TRUE(rank.stream->copy_to_host(host.data(), rank.at, kBytes).is_ok());
    gpu_.run();
    std::vector<float> found(kCount);
    std::memcpy(found.data(), host.data(), kBytes);
    return found;
  }
  static std::vector<float> all(float value) { return std::vector<float>(kCount, value); }

  // Returns an operation that all-reduces memory 0 and 1, in place; it waits for nothing, and
  // writes no counter.
  static WorkerOperation sum_of_two(uint64_t number) {
    WorkerOperation operation{.number = number};
    operation.segments.push_back({.count = kCount,
                                  .sources = {{.memory = 0}, {.memory = 1}},
                                  .destinations = {{.memory = 0}, {.memory = 1}}});
    return operation;
  }
  static Place counter(size_t index) { return {.memory = kCounters, .offset = index * 8}; }
  void run(const WorkerOperation& operation) {
    auto packets = make_packets(operation);
    ASSERT_TRUE(packets.is_ok()) << packets.status().to_string();
    for (const Packet& packet : packets.value()) send(packet);
  }

  bool turn(TicksMs now = 0) { return worker_->turn(now); }
  // Returns the next packet of the worker, after the worker has had its turns, or nullopt if it
  // says nothing.
  std::optional<Packet> next(TicksMs now = 0) {
    for (int i = 0; i < 200; ++i) {
      turn(now);
      Packet packet;
      if (daemon_->receive(packet) == PacketSocket::Io::kDone) return packet;
      step_gpus();
    }
    return std::nullopt;
  }
  void expect_outcome(WorkerMessage type, uint64_t about, Code code) {
    auto packet = next();
    ASSERT_TRUE(packet.has_value());
    ASSERT_EQ(packet->type(), type);
    const auto outcome = take_outcome(*packet);
    ASSERT_TRUE(outcome.has_value());
    EXPECT_EQ(outcome->about, about);
    EXPECT_EQ(outcome->status.code(), code) << outcome->status.to_string();
    text_ = outcome->status.message();
  }
  // Checks that scratch memory was added, and that it was told first whether others can read it.
  void expect_scratch(uint32_t number) {
    auto packet = next();
    ASSERT_TRUE(packet.has_value());
    ASSERT_EQ(packet->type(), WorkerMessage::kExported);
    ExportedBody body;
    ASSERT_TRUE(packet->take(body));
    const auto outcome = take_outcome(*packet);
    ASSERT_TRUE(outcome.has_value());
    EXPECT_EQ(outcome->about, number);
    EXPECT_EQ(packet->fd.is_open(), outcome->status.is_ok());
    EXPECT_EQ(body.bytes > 0, outcome->status.is_ok());
    expect_outcome(WorkerMessage::kMemoryAdded, number, Code::kOk);
  }
  // Checks that the worker has said why it ends, and has ended.
  void expect_end(Code code, TicksMs now = 0) {
    std::optional<Packet> packet = next(now);
    while (packet && packet->type() == WorkerMessage::kAlive) packet = next(now);
    ASSERT_TRUE(packet.has_value());
    ASSERT_EQ(packet->type(), WorkerMessage::kLost);
    const auto outcome = take_outcome(*packet);
    ASSERT_TRUE(outcome.has_value());
    EXPECT_EQ(outcome->status.code(), code) << outcome->status.to_string();
    text_ = outcome->status.message();
    EXPECT_FALSE(turn(now));
    EXPECT_EQ(worker_->why(), outcome->status);
  }

  std::deque<FakeGpu> gpus_;     // in the order of ordinals
  std::set<size_t> held_;        // the GPUs on which no time passes
  FakeGpu& gpu_{gpus_.front()};  // the only one, except in tests of several
  std::array<Rank, 2> ranks_{Rank(gpu_), Rank(gpu_)};
  SharedCounters counters_;
  FakeDevice* device_ = nullptr;  // the worker's first device
  std::vector<FakeDevice*> opened_;
  std::optional<PacketSocket> daemon_;
  std::optional<Worker> worker_;
  std::string text_;
};

}  // namespace rueda::gpu
