// Tests a GPU worker and the communicators of other nodes. The test plays the daemon, and the other
// node.
#include <gmock/gmock.h>

#include "tests/gpu/worker/worker_rig.h"

namespace rueda::gpu {
namespace {

using testing::HasSubstr;

constexpr uint32_t kCommunicator = 5;
constexpr uint32_t kScratch = 20;

class WorkerAcross : public WorkerTest {
 protected:
  void add_scratch() {
    Packet packet(WorkerMessage::kAddMemory);
    packet.add(AddMemoryBody{.memory = kScratch, .kind = MemoryKind::kScratch, .bytes = kBytes});
    send(packet);
    expect_scratch(kScratch);
  }
  CommunicatorId make_id(Code code = Code::kOk) {
    Packet packet(WorkerMessage::kMakeId);
    send(packet.add(CommunicatorBody{.communicator = kCommunicator}));
    auto reply = next();
    CommunicatorId id{};
    EXPECT_TRUE(reply && reply->type() == WorkerMessage::kIdMade && reply->take(id));
    const auto outcome = take_outcome(*reply);
    EXPECT_TRUE(outcome.has_value());
    EXPECT_EQ(outcome->about, kCommunicator);
    EXPECT_EQ(outcome->status.code(), code);
    return id;
  }
  void connect(const CommunicatorId& id, int size = 2) {
    Packet packet(WorkerMessage::kConnect);
    send(packet.add(ConnectBody{
        .communicator = kCommunicator, .rank = 0, .size = size, .timeout_ms = 500, .id = id}));
  }
  // Makes the other node join, on a GPU of its own.
  void join(const CommunicatorId& id) {
    other_ = other_device_.connect(id, 1, 2).value();
    stream_ = other_device_.make_stream(Priority::kLow).value();
    at_ = other_device_.allocate(kBytes, Sharing::kIpc).value();
  }
  void meet() {
    const CommunicatorId id = make_id();
    connect(id);
    join(id);
  }
  // Makes the other node reduce `value` while turns of the worker go on, and returns its result.
  std::vector<float> reduce_beside(float value) {
    const auto host = other_device_.allocate_host(kBytes).value();
    for (uint64_t i = 0; i < kCount; ++i) std::memcpy(host.data() + i * 4, &value, 4);
    EXPECT_TRUE(stream_->copy_to_device(at_, host.data(), kBytes).is_ok());
    bool is_queued = false;
    for (int i = 0; i < 2000 && !(is_queued && stream_->is_idle().value()); ++i) {
      if (!is_queued) {
        is_queued =
            other_->all_reduce(*stream_, at_, kCount, DType::kFloat32, ReduceOp::kSum).is_ok();
      }
      turn();
      step_gpus();
      other_gpu_.step();
    }
    EXPECT_TRUE(stream_->copy_to_host(host.data(), at_, kBytes).is_ok());
    other_gpu_.run();
    std::vector<float> found(kCount);
    std::memcpy(found.data(), host.data(), kBytes);
    return found;
  }
  // Returns operations that take what two ranks have to scratch memory, across, and back to both.
  std::vector<WorkerOperation> both(uint64_t number) {
    WorkerOperation out{.number = number, .stream = 2};
    out.segments.push_back({.count = kCount,
                            .sources = {{.memory = 0}, {.memory = 1}},
                            .destinations = {{.memory = kScratch}}});
    WorkerOperation in{.number = number + 1, .stream = 2};
    in.across = {.communicator = kCommunicator, .at = {.memory = kScratch}, .count = kCount};
    in.batch.divisor = 4;
    in.batch.op = ReduceOp::kAverage;
    in.segments.push_back({.count = kCount,
                           .partial = Place{.memory = kScratch},
                           .destinations = {{.memory = 0}, {.memory = 1}}});
    in.writes.push_back({counter(0), 7});
    return {out, in};
  }
  void run_both(uint64_t number) {
    for (const WorkerOperation& operation : both(number)) run(operation);
  }

  FakeGpu other_gpu_{fake::FakeOptions{.seed = 77, .ordinal = 3}};
  FakeDevice other_device_{other_gpu_};
  std::unique_ptr<Communicator> other_;
  std::unique_ptr<Stream> stream_;
  DeviceAddress at_ = 0;
};

TEST_F(WorkerAcross, WhatItsRanksHaveIsReducedWithOtherNodes) {
  open_and_share();
  add_scratch();
  const CommunicatorId id = make_id();
  connect(id);
  run_both(1);  // waits until the other node is there
  for (int i = 0; i < 50; ++i) {
    turn();
    step_gpus();
  }
  EXPECT_EQ(values(ranks_[0]), all(1));
  join(id);
  EXPECT_EQ(reduce_beside(9), all(12));
  expect_outcome(WorkerMessage::kEnded, 1, Code::kOk);
  expect_outcome(WorkerMessage::kEnded, 2, Code::kOk);
  EXPECT_EQ(values(ranks_[0]), all(3));
  EXPECT_EQ(values(ranks_[1]), all(3));
  run_both(3);
  EXPECT_EQ(reduce_beside(2), all(8));
  expect_outcome(WorkerMessage::kEnded, 3, Code::kOk);
  expect_outcome(WorkerMessage::kEnded, 4, Code::kOk);
}

// The worker waits for another node's work, so such a batch has no deadline of the device's.
TEST_F(WorkerAcross, WaitsForOtherNodesAsLongAsTheyAreThere) {
  open_and_share();
  add_scratch();
  meet();
  run_both(1);
  for (TicksMs now = 0; now < 60'000; now += 100) {
    ASSERT_TRUE(turn(now)) << worker_->why().to_string();
    step_gpus();
    static_cast<void>(other_->health());
    Packet packet;
    while (daemon_->receive(packet) == PacketSocket::Io::kDone) {
    }
  }
  EXPECT_EQ(reduce_beside(1), all(4));
}

TEST_F(WorkerAcross, NodesThatDoNotComeAreAnErrorAfterTheDeadline) {
  open_and_share();
  add_scratch();
  connect(make_id());
  run_both(1);
  expect_outcome(WorkerMessage::kEnded, 1, Code::kOk);
  EXPECT_TRUE(turn(500));
  expect_end(Code::kTimeout, 501);
  EXPECT_THAT(text_, HasSubstr("the GPUs of 2 nodes have not found each other in 500 ms"));
}

TEST_F(WorkerAcross, ANodeThatGoesIsTheEndOfTheWorker) {
  open_and_share();
  add_scratch();
  meet();
  run_both(1);
  EXPECT_EQ(reduce_beside(1), all(4));
  for (const uint64_t number : {1, 2}) expect_outcome(WorkerMessage::kEnded, number, Code::kOk);
  other_.reset();
  run_both(3);
  expect_outcome(WorkerMessage::kEnded, 3, Code::kOk);
  expect_end(Code::kNodeLost);
}

TEST_F(WorkerAcross, WithoutALibraryOperationsEndWithTheReasonAndCountersAreWritten) {
  open_and_share();
  add_scratch();
  device_->fail_once("make_communicator_id", {Code::kUnavailable, "there is no NCCL"});
  make_id(Code::kUnavailable);
  device_->fail_once("connect", {Code::kUnavailable, "there is no NCCL"});
  connect({});
  run_both(1);
  expect_outcome(WorkerMessage::kEnded, 1, Code::kOk);
  expect_outcome(WorkerMessage::kEnded, 2, Code::kNotFound);
  EXPECT_THAT(text_, HasSubstr("there is no NCCL"));
  EXPECT_EQ(counters_.get(0), 7u);
}

TEST_F(WorkerAcross, ALeftCommunicatorIsGone) {
  open_and_share();
  meet();
  Packet packet(WorkerMessage::kDisconnect);
  send(packet.add(CommunicatorBody{.communicator = kCommunicator}));
  turn();
  turn();
  for (int i = 0; i < 20 && other_->health().code() == Code::kUnavailable; ++i) turn();
  EXPECT_NE(other_->health().code(), Code::kOk);
}

TEST_F(WorkerAcross, WhatCannotBeIsTheEnd) {
  const auto refused = [this](const Packet& packet) {
    open_and_share();
    add_scratch();
    send(packet);
    expect_end(Code::kInternal);
  };
  Packet packet(WorkerMessage::kAcross);
  refused(packet.add(
      AcrossBody{.communicator = 99, .at = {.memory = kScratch}, .count = 1, .root = -1}));
  EXPECT_THAT(text_, HasSubstr("a communicator that is not there"));
}

TEST_F(WorkerAcross, MemoryThatIsNotThereIsTheOperationsError) {
  open_and_share();
  add_scratch();
  meet();
  std::vector<WorkerOperation> operations = both(1);
  operations[1].across->count = kCount + 1;
  for (const WorkerOperation& operation : operations) run(operation);
  expect_outcome(WorkerMessage::kEnded, 1, Code::kOk);
  expect_outcome(WorkerMessage::kEnded, 2, Code::kNotFound);
}

}  // namespace
}  // namespace rueda::gpu
