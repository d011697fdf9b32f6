// A worker with several GPUs: each rank has one of its own, and each GPU takes a part of a batch.
#include <array>
#include <cstring>
#include <memory>
#include <random>

#include <gtest/gtest.h>

#include "daemon/gpu/worker/parts.h"
#include "tests/gpu/worker_rig.h"

namespace rueda::gpu {
namespace {

// Enough for a part on each of four, and no multiple of anything.
constexpr uint64_t kMany = 4 * kLeastPartBytes / sizeof(float) + 1003;
constexpr uint64_t kManyBytes = kMany * sizeof(float);

// Rank i's memory has number i, and lies on GPU i.
class SeveralGpus : public WorkerTest {
 protected:
  explicit SeveralGpus(size_t gpus, uint64_t seed = 1, bool have_peer_access = true)
      : WorkerTest(gpus, seed, have_peer_access) {
    for (FakeGpu& gpu : gpus_) own_.emplace_back(gpu);
  }

  void open_with_counters() {
    open();
    ASSERT_EQ(next()->type(), WorkerMessage::kReady);
    add_counters();
  }
  void open_all(Sharing sharing = Sharing::kIpc) {
    open_with_counters();
    for (uint32_t i = 0; i < own_.size(); ++i) {
      allocate(i, kManyBytes, sharing);
      fill(i);
      expect_added(i);
    }
  }
  void allocate(uint32_t rank, uint64_t bytes, Sharing sharing) {
    own_[rank].at = own_[rank].device.allocate(bytes, sharing).value();
  }
  void expect_added(uint32_t rank, Code code = Code::kOk) {
    Rank& own = own_[rank];
    const std::array<uint8_t, 16> uuid = own.device.facts().uuid;
    add(rank, own.device.export_memory(own.at).value(), uuid);
    if (code == Code::kOk && uuid[15] > 0 && ready_.insert(uuid).second) {
      auto packet = next();
      ASSERT_TRUE(packet.has_value());
      ReadyBody ready;
      ASSERT_EQ(packet->type(), WorkerMessage::kReady);
      ASSERT_TRUE(packet->take(ready));
      EXPECT_EQ(ready.uuid, uuid);
    }
    expect_outcome(WorkerMessage::kMemoryAdded, rank, code);
  }
  // Random numbers, of which sums depend on their order.
  void fill(uint32_t rank) {
    std::vector<float>& values = given_[rank];
    values.resize(kMany);
    for (float& value : values) value = normal_(random_);
    write(rank, values);
  }
  void write(uint32_t rank, const std::vector<float>& values) {
    Rank& own = own_[rank];
    const auto host = own.device.allocate_host(kManyBytes).value();
    std::memcpy(host.data(), values.data(), kManyBytes);
    ASSERT_TRUE(own.stream->copy_to_device(own.at, host.data(), kManyBytes).is_ok());
    run_own(own);
    ASSERT_TRUE(own.device.free_host(host.data()).is_ok());
  }
  std::vector<float> read(uint32_t rank) {
    Rank& own = own_[rank];
    const auto host = own.device.allocate_host(kManyBytes).value();
    EXPECT_TRUE(own.stream->copy_to_host(host.data(), own.at, kManyBytes).is_ok());
    run_own(own);
    std::vector<float> found(kMany);
    std::memcpy(found.data(), host.data(), kManyBytes);
    EXPECT_TRUE(own.device.free_host(host.data()).is_ok());
    return found;
  }
  void run_own(Rank& own) {
    FakeGpu& gpu = gpus_[static_cast<size_t>(own.device.facts().ordinal)];
    while (!own.stream->is_idle().value()) ASSERT_TRUE(gpu.step());
  }
  // As one GPU adds them up, rank by rank.
  std::vector<float> sum() const {
    std::vector<float> sums = given_.at(0);
    for (uint32_t rank = 1; rank < own_.size(); ++rank) {
      for (uint64_t i = 0; i < kMany; ++i) sums[i] += given_.at(rank)[i];
    }
    return sums;
  }

  // Of all ranks, in place.
  WorkerOperation sum_of_all(uint64_t number, uint64_t count = kMany) const {
    WorkerOperation operation{.number = number};
    PlacedSegment segment{.count = count};
    for (uint32_t rank = 0; rank < own_.size(); ++rank) {
      segment.sources.push_back({.memory = rank});
      segment.destinations.push_back({.memory = rank});
    }
    operation.segments.push_back(std::move(segment));
    return operation;
  }
  // How many steps each GPU took for an operation.
  std::vector<uint64_t> steps_for(const WorkerOperation& operation, Code code = Code::kOk) {
    std::vector<uint64_t> steps;
    for (const FakeGpu& gpu : gpus_) steps.push_back(gpu.steps());
    run(operation);
    expect_outcome(WorkerMessage::kEnded, operation.number, code);
    for (size_t i = 0; i < gpus_.size(); ++i) steps[i] = gpus_[i].steps() - steps[i];
    return steps;
  }
  void expect_all(const std::vector<float>& wanted) {
    for (uint32_t rank = 0; rank < own_.size(); ++rank) {
      EXPECT_TRUE(read(rank) == wanted) << "rank " << rank;  // not all of them in a message
    }
  }
  // Time for whatever goes on.
  void wait_a_while() { EXPECT_EQ(next(), std::nullopt); }

  std::deque<Rank> own_;
  std::set<std::array<uint8_t, 16>> ready_;  // told, beside the first
  std::map<uint32_t, std::vector<float>> given_;
  std::mt19937 random_{7};
  std::normal_distribution<float> normal_;
};

class WorkerDevicesTest : public SeveralGpus, public testing::WithParamInterface<size_t> {
 protected:
  WorkerDevicesTest() : SeveralGpus(GetParam()) {}
};

TEST_P(WorkerDevicesTest, EachTakesAPartAndTheBitsAreThoseOfOne) {
  for (const uint64_t count : {kMany, kMany - 1}) {
    if (opened_.empty()) {
      open_all();
    } else {
      for (uint32_t rank = 0; rank < own_.size(); ++rank) fill(rank);
    }
    for (const uint64_t steps : steps_for(sum_of_all(count, count))) EXPECT_GT(steps, 0u);
    std::vector<float> wanted = sum();
    for (uint32_t rank = 0; rank < own_.size(); ++rank) {
      if (count < kMany) wanted.back() = given_[rank].back();
      EXPECT_TRUE(read(rank) == wanted) << "rank " << rank;
    }
  }
  EXPECT_EQ(opened_.size(), GetParam());
}

TEST_P(WorkerDevicesTest, FusedTensorsOutOfPlaceAndAverages) {
  open_all(Sharing::kFd);
  std::vector<DeviceAddress> outputs;
  for (uint32_t rank = 0; rank < own_.size(); ++rank) {
    Rank& own = own_[rank];
    outputs.push_back(own.device.allocate(kManyBytes, Sharing::kIpc).value());
    add(20 + rank, own.device.export_memory(outputs.back()).value(), own.device.facts().uuid);
    expect_outcome(WorkerMessage::kMemoryAdded, 20 + rank, Code::kOk);
  }
  WorkerOperation operation{.number = 1};
  operation.batch.op = ReduceOp::kAverage;
  operation.batch.divisor = static_cast<int64_t>(own_.size());
  operation.batch.prescale = 0.5;
  uint64_t first = 0;
  for (const uint64_t count :
       {uint64_t{1}, uint64_t{100}, kMany / 2, uint64_t{63}, kMany / 2 - 170}) {
    PlacedSegment segment{.count = count};
    for (uint32_t rank = 0; rank < own_.size(); ++rank) {
      segment.sources.push_back({.memory = rank, .offset = first * 4});
      segment.destinations.push_back({.memory = 20 + rank, .offset = first * 4});
    }
    operation.segments.push_back(std::move(segment));
    first += count;
  }
  for (const uint64_t steps : steps_for(operation)) EXPECT_GT(steps, 0u);
  for (uint32_t rank = 0; rank < own_.size(); ++rank) {
    EXPECT_TRUE(read(rank) == given_[rank]) << "an input has changed";
    own_[rank].at = outputs[rank];
    const std::vector<float> found = read(rank);
    for (uint64_t i = 0; i < first; ++i) {
      float wanted = 0.5f * given_[0][i];
      for (uint32_t other = 1; other < own_.size(); ++other) wanted += 0.5f * given_[other][i];
      ASSERT_EQ(found[i], wanted / static_cast<float>(own_.size())) << rank << ", element " << i;
    }
  }
}

TEST_P(WorkerDevicesTest, ASmallBatchGoesOnOne) {
  open_all();
  const std::vector<uint64_t> steps =
      steps_for(sum_of_all(1, 2 * kLeastPartBytes / sizeof(float) - 1));
  EXPECT_GT(steps[0], 0u);
  for (size_t i = 1; i < steps.size(); ++i) EXPECT_EQ(steps[i], 0u);
  for (uint32_t rank = 0; rank < own_.size(); ++rank) EXPECT_EQ(read(rank)[0], sum()[0]);
}

TEST_P(WorkerDevicesTest, OnlyGpusWithMemoryInABatchTakePart) {
  open_all();
  const auto last = static_cast<uint32_t>(own_.size() - 1);
  WorkerOperation alone{.number = 1};
  alone.batch.prescale = 2;
  alone.segments = {
      {.count = kMany, .sources = {{.memory = last}}, .destinations = {{.memory = last}}}};
  const std::vector<uint64_t> steps = steps_for(alone);
  EXPECT_GT(steps[last], 0u);
  for (size_t i = 1; i < last; ++i) EXPECT_EQ(steps[i], 0u);
  std::vector<float> wanted = given_[last];
  for (float& value : wanted) value *= 2;
  EXPECT_TRUE(read(last) == wanted);
}

TEST_P(WorkerDevicesTest, NoneBeginsBeforeAllInputsAreThere) {
  open_all();
  WorkerOperation operation = sum_of_all(1);
  for (uint32_t rank = 0; rank < own_.size(); ++rank) operation.waits.push_back({counter(rank), 1});
  run(operation);
  for (uint32_t rank = 0; rank < own_.size(); ++rank) {
    wait_a_while();
    fill(rank);
    counters_.set(rank, 1);
  }
  expect_outcome(WorkerMessage::kEnded, 1, Code::kOk);
  expect_all(sum());
}

TEST_P(WorkerDevicesTest, ItHasEndedWhenAllHaveDoneTheirPart) {
  open_all();
  for (size_t late = 0; late < gpus_.size(); ++late) {
    for (uint32_t rank = 0; rank < own_.size(); ++rank) fill(rank);
    WorkerOperation operation = sum_of_all(late + 1);
    operation.writes = {{counter(10 + late), 1}};
    held_ = {late};
    run(operation);
    wait_a_while();
    EXPECT_EQ(counters_.get(10 + late), 0u) << "without GPU " << late;
    held_ = {};
    expect_outcome(WorkerMessage::kEnded, late + 1, Code::kOk);
    EXPECT_EQ(counters_.get(10 + late), 1u);
    expect_all(sum());
  }
}

// The second takes what the first gives; launches of one operation likewise.
TEST_P(WorkerDevicesTest, OperationsKeepTheirOrderOnAllGpus) {
  for (size_t late = 0; late < gpus_.size(); ++late) {
    if (opened_.empty()) open_all();
    for (uint32_t rank = 0; rank < own_.size(); ++rank) {
      write(rank, std::vector<float>(kMany, static_cast<float>(rank + 1)));
    }
    const uint64_t number = 10 * late;
    WorkerOperation twice = sum_of_all(number + 1);
    twice.segments.push_back(twice.segments[0]);
    twice.segments[1].destinations.pop_back();  // another launch, as it has fewer
    twice.segments.push_back(twice.segments[0]);
    held_ = {late};
    run(twice);
    run(sum_of_all(number + 2));
    wait_a_while();
    held_ = {};
    expect_outcome(WorkerMessage::kEnded, number + 1, Code::kOk);
    expect_outcome(WorkerMessage::kEnded, number + 2, Code::kOk);
    const auto n = static_cast<float>(own_.size());
    const float once = n * (n + 1) / 2;
    const float second = n * once;  // of all but the last, which keeps `once`
    const float third = (n - 1) * second + once;
    expect_all(std::vector<float>(kMany, n * third));
  }
}

TEST_P(WorkerDevicesTest, StreamsDoNotWaitForEachOther) {
  open_all();
  WorkerOperation blocked = sum_of_all(1);
  blocked.waits = {{counter(0), 1}};
  run(blocked);
  WorkerOperation beside = sum_of_all(2);
  beside.stream = 1;
  run(beside);
  expect_outcome(WorkerMessage::kEnded, 2, Code::kOk);
  expect_all(sum());
  counters_.set(0, 1);
  expect_outcome(WorkerMessage::kEnded, 1, Code::kOk);
}

TEST_P(WorkerDevicesTest, MemoryIsClosedOnAllAndComesAgain) {
  open_all();
  const auto mapped = [this] {
    size_t count = 0;
    for (FakeDevice* const device : opened_) {
      const uint64_t own = 0x10'0000'0000 * static_cast<uint64_t>(device->facts().ordinal);
      for (uint64_t page = 0; page < 8 * kManyBytes; page += 4096) {
        const DeviceAddress at = 0x7f00'0000'0000 + own + page;
        const auto found = device->find(at);
        count += found.is_ok() && at - found.value().base < 4096 ? 1 : 0;
      }
    }
    return count;
  };
  EXPECT_EQ(mapped(), own_.size() * own_.size());
  Packet removal(WorkerMessage::kRemoveMemory);
  send(removal.add(RemoveMemoryBody{.memory = 1}));
  wait_a_while();
  EXPECT_EQ(mapped(), own_.size() * (own_.size() - 1));
  expect_added(1);
  EXPECT_EQ(mapped(), own_.size() * own_.size());
  run(sum_of_all(1));
  expect_outcome(WorkerMessage::kEnded, 1, Code::kOk);
  expect_all(sum());
}

TEST_P(WorkerDevicesTest, AJoinIsAllGpus) {
  open_all();
  Rank& last = own_.back();
  constexpr uint64_t kPiece = kManyBytes / 2 / 4096 * 4096 + 4096;
  std::vector<uint32_t> pieces;
  std::vector<DeviceAddress> addresses;
  for (uint32_t number = 30; number < 32; ++number) {
    addresses.push_back(last.device.allocate(kPiece, Sharing::kFd).value());
    add(number, last.device.export_memory(addresses.back()).value(), last.device.facts().uuid);
    expect_outcome(WorkerMessage::kMemoryAdded, number, Code::kOk);
    pieces.push_back(number);
  }
  const auto join = [this](uint32_t number, const std::vector<uint32_t>& numbers) {
    Packet packet(WorkerMessage::kJoinMemory);
    packet.add(JoinMemoryBody{.memory = number, .pieces = static_cast<uint32_t>(numbers.size())});
    send(packet.add_bytes(numbers.data(), numbers.size() * sizeof(uint32_t)));
  };
  join(40, pieces);
  expect_outcome(WorkerMessage::kMemoryAdded, 40, Code::kOk);
  // Its output lies in the join.
  WorkerOperation operation = sum_of_all(1);
  operation.segments[0].destinations.back() = {.memory = 40};
  for (const uint64_t steps : steps_for(operation)) EXPECT_GT(steps, 0u);
  const std::vector<float> wanted = sum();
  const auto host = last.device.allocate_host(kPiece).value();
  for (size_t i = 0; i < addresses.size(); ++i) {
    ASSERT_TRUE(last.stream->copy_to_host(host.data(), addresses[i], kPiece).is_ok());
    run_own(last);
    const uint64_t bytes = std::min(kPiece, kManyBytes - i * kPiece);
    const auto* const expected = reinterpret_cast<const std::byte*>(wanted.data()) + i * kPiece;
    EXPECT_EQ(std::memcmp(host.data(), expected, bytes), 0) << "piece " << i;
  }
  // What two GPUs have is no one range.
  const DeviceAddress other = own_[0].device.allocate(kPiece, Sharing::kFd).value();
  add(33, own_[0].device.export_memory(other).value(), own_[0].device.facts().uuid);
  expect_outcome(WorkerMessage::kMemoryAdded, 33, Code::kOk);
  join(41, {30, 33});
  expect_outcome(WorkerMessage::kMemoryAdded, 41, Code::kInvalidArgument);
  EXPECT_NE(text_.find("two GPUs"), std::string::npos) << text_;
}

// On its way between nodes: what all have, by the first GPU, however much it is.
TEST_P(WorkerDevicesTest, TheFirstGathersAndScatters) {
  open_all();
  constexpr uint64_t kSome = 3 * kLeastPartBytes;  // bytes
  Packet scratch(WorkerMessage::kAddMemory);
  send(scratch.add(AddMemoryBody{.memory = 50, .kind = MemoryKind::kScratch, .bytes = kSome}));
  expect_outcome(WorkerMessage::kMemoryAdded, 50, Code::kOk);
  WorkerOperation out = sum_of_all(1, kSome / 4);
  out.segments[0].destinations = {{.memory = 50}};
  out.copies_after = {{.to = {.memory = kCounters}, .from = {.memory = 50}, .bytes = 4000}};
  WorkerOperation in{.number = 2, .stream = 1};
  in.copies_before = {{.to = {.memory = 50}, .from = {.memory = kCounters}, .bytes = 4000}};
  PlacedSegment spread{.count = kSome / 4, .partial = Place{.memory = 50}, .sources = {}};
  for (uint32_t rank = 0; rank < own_.size(); ++rank) {
    spread.destinations.push_back({.memory = rank, .offset = 4});
  }
  in.segments = {spread};
  for (const WorkerOperation& operation : {out, in}) {
    const std::vector<uint64_t> steps = steps_for(operation);
    for (size_t i = 1; i < steps.size(); ++i) EXPECT_EQ(steps[i], 0u);
  }
  const std::vector<float> wanted = sum();
  for (uint32_t rank = 0; rank < own_.size(); ++rank) {
    const std::vector<float> found = read(rank);
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.begin() + kSome / 4, found.begin() + 1));
    EXPECT_EQ(found[0], given_[rank][0]);
  }
}

// The other GPU could be told of its part at once, the first has much queued yet.
TEST_P(WorkerDevicesTest, APartThatFailsIsNotTheErrorOfWhatComesBefore) {
  open_all();
  held_ = {0};
  constexpr uint64_t kSmall = 600;  // of two calls each
  for (uint64_t i = 1; i <= kSmall; ++i) run({.number = i}), turn();
  opened_.back()->fail_once("reduce", {Code::kInternal, "on demand"});
  run(sum_of_all(kSmall + 1));
  wait_a_while();
  held_ = {};
  for (uint64_t i = 1; i <= kSmall; ++i) expect_outcome(WorkerMessage::kEnded, i, Code::kOk);
  expect_outcome(WorkerMessage::kEnded, kSmall + 1, Code::kInternal);
}

TEST_P(WorkerDevicesTest, WhatComesBehindAFailureIsDoneByNone) {
  open_all();
  WorkerOperation operation = sum_of_all(1, 1);
  PlacedSegment rest = sum_of_all(1).segments[0];
  rest.count -= 64;
  rest.sources.pop_back();  // a launch of its own
  for (auto* places : {&rest.sources, &rest.destinations}) {
    for (Place& place : *places) place.offset = 64;
  }
  operation.segments.push_back(rest);
  opened_[0]->fail_once("reduce", {Code::kInternal, "on demand"});
  run(operation);
  expect_outcome(WorkerMessage::kEnded, 1, Code::kInternal);
  for (uint32_t rank = 0; rank < own_.size(); ++rank) EXPECT_TRUE(read(rank) == given_[rank]);
}

TEST_P(WorkerDevicesTest, APartThatFailsIsTheOperationsErrorAndNoOther) {
  open_all();
  WorkerOperation bad = sum_of_all(1);
  bad.writes = {{counter(2), 1}};
  opened_.back()->fail_once("reduce", {Code::kInternal, "on demand"});
  run(bad);
  run(sum_of_all(2, 1));
  expect_outcome(WorkerMessage::kEnded, 1, Code::kInternal);
  EXPECT_EQ(counters_.get(2), 1u);
  expect_outcome(WorkerMessage::kEnded, 2, Code::kOk);
  for (uint32_t rank = 0; rank < own_.size(); ++rank) fill(rank);
  run(sum_of_all(3));
  expect_outcome(WorkerMessage::kEnded, 3, Code::kOk);
  expect_all(sum());
}

TEST_P(WorkerDevicesTest, TheLossOfOneIsTheEnd) {
  open_all();
  WorkerOperation blocked = sum_of_all(1);
  blocked.waits = {{counter(0), 1}};
  run(blocked);
  wait_a_while();
  opened_.back()->lose({Code::kUnavailable, "fallen off the bus"});
  expect_end(Code::kUnavailable);
  EXPECT_EQ(text_, "fallen off the bus");
}

TEST_P(WorkerDevicesTest, OneThatHangsIsTheEndAndNamed) {
  open_all();
  const size_t late = gpus_.size() - 1;
  held_ = {late};
  run(sum_of_all(1));
  EXPECT_EQ(next(0), std::nullopt);
  expect_end(Code::kTimeout, 1500);
  EXPECT_NE(text_.find("(GPU " + std::to_string(late) + ") has not ended"), std::string::npos)
      << text_;
}

TEST_P(WorkerDevicesTest, AFullStreamOfAnotherGpuIsWaitedFor) {
  open_all();
  held_ = {gpus_.size() - 1};
  constexpr uint64_t kOperations = 600;  // of three calls each
  for (uint64_t i = 1; i <= kOperations; ++i) {
    WorkerOperation tiny = sum_of_all(i, 64);
    const auto last = static_cast<uint32_t>(own_.size() - 1);
    tiny.segments[0].sources = {{.memory = last}};
    tiny.segments[0].destinations = {{.memory = last, .offset = 256}};
    run(tiny);
    turn();
  }
  held_ = {};
  for (uint64_t i = 1; i <= kOperations; ++i) {
    expect_outcome(WorkerMessage::kEnded, i, Code::kOk);
  }
}

TEST_P(WorkerDevicesTest, WhatCannotBeReachedIsToldAndNoMore) {
  open_with_counters();
  allocate(0, kManyBytes, Sharing::kIpc);
  fill(0);
  expect_added(0);
  allocate(1, kManyBytes, Sharing::kIpc);
  fill(1);
  expect_added(1);
  Rank& own = own_[1];
  const DeviceAddress more = own.device.allocate(kBytes, Sharing::kIpc).value();
  const MemoryHandle handle = own.device.export_memory(more).value();
  opened_[0]->fail_once("reach", {Code::kResourceExhausted, "no addresses"});
  add(60, handle, own.device.facts().uuid);
  expect_outcome(WorkerMessage::kMemoryAdded, 60, Code::kResourceExhausted);
  // Nothing of it is open on the other.
  add(61, handle, own.device.facts().uuid);
  expect_outcome(WorkerMessage::kMemoryAdded, 61, Code::kOk);
  add(62, handle, own_[0].device.facts().uuid);  // it is not
  expect_outcome(WorkerMessage::kMemoryAdded, 62, Code::kInvalidArgument);
  std::array<uint8_t, 16> stranger{0xfa};
  stranger[15] = 99;
  add(63, handle, stranger);
  expect_outcome(WorkerMessage::kMemoryAdded, 63, Code::kNotFound);
  EXPECT_FALSE(worker_->is_busy());
}

INSTANTIATE_TEST_SUITE_P(Gpus, WorkerDevicesTest, testing::Values(2, 4),
                         testing::PrintToStringParamName());

class WithoutPeerAccess : public SeveralGpus {
 protected:
  WithoutPeerAccess() : SeveralGpus(2, 1, false) {}
};

TEST_F(WithoutPeerAccess, AnotherGpusMemoryIsRefusedAndTheFirstGoesOn) {
  open_with_counters();
  for (uint32_t i = 0; i < 2; ++i) {
    allocate(i, kManyBytes, Sharing::kIpc);
    fill(i);
  }
  expect_added(0);
  for (int attempt = 0; attempt < 2; ++attempt) {
    expect_added(1, Code::kPermission);
    EXPECT_NE(text_.find("fake GPU 0 and fake GPU 1 do not reach each other"), std::string::npos)
        << text_;
    EXPECT_NE(text_.find("hand over host memory"), std::string::npos) << text_;
  }
  WorkerOperation alone{.number = 1};
  alone.segments = {{.count = kMany, .sources = {{.memory = 0}}, .destinations = {{.memory = 0}}}};
  run(alone);
  expect_outcome(WorkerMessage::kEnded, 1, Code::kOk);
}

// Whatever order the GPUs' streams take.
class GpusInAnyOrder : public SeveralGpus, public testing::WithParamInterface<uint64_t> {
 protected:
  GpusInAnyOrder() : SeveralGpus(2, 100 * GetParam()) {}

  void write_numbers(uint32_t rank) {
    std::vector<float> bits(kMany);
    std::memcpy(bits.data(), numbers_[rank].data(), kManyBytes);
    write(rank, bits);
  }
  std::vector<uint32_t> read_numbers(uint32_t rank) {
    const std::vector<float> bits = read(rank);
    std::vector<uint32_t> numbers(kMany);
    std::memcpy(numbers.data(), bits.data(), kManyBytes);
    return numbers;
  }

  std::array<std::vector<uint32_t>, 2> numbers_;
};

// To one rank and to the other in turn, as Fibonacci's numbers are: what comes first matters. An
// element is one GPU's at one time, and the other's at another.
TEST_P(GpusInAnyOrder, OneOperationFollowsTheOther) {
  open_all();
  random_.seed(static_cast<uint32_t>(GetParam()));
  for (uint32_t rank = 0; rank < 2; ++rank) {
    numbers_[rank].resize(kMany);
    for (uint32_t& number : numbers_[rank]) number = static_cast<uint32_t>(random_());
    write_numbers(rank);
  }
  constexpr uint64_t kOperations = 20;
  constexpr uint64_t kLeast = 2 * kLeastPartBytes / sizeof(float);
  for (uint64_t i = 0; i < kOperations; ++i) {
    const uint64_t begin = random_() % (kMany - kLeast);
    const uint64_t count = kLeast + random_() % (kMany - kLeast - begin);
    const auto target = static_cast<uint32_t>(i % 2);
    WorkerOperation operation{.number = i + 1};
    operation.batch.dtype = DType::kInt32;
    operation.segments = {
        {.count = count,
         .sources = {{.memory = 0, .offset = begin * 4}, {.memory = 1, .offset = begin * 4}},
         .destinations = {{.memory = target, .offset = begin * 4}}}};
    run(operation);
    for (uint64_t e = begin; e < begin + count; ++e) numbers_[target][e] += numbers_[1 - target][e];
    for (uint64_t some = random_() % 8; some > 0; --some) {
      turn();
      gpus_[random_() % 2].step();
    }
  }
  for (uint64_t i = 1; i <= kOperations; ++i) {
    expect_outcome(WorkerMessage::kEnded, i, Code::kOk);
  }
  for (uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(read_numbers(rank) == numbers_[rank]) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, GpusInAnyOrder, testing::Range(uint64_t{1}, uint64_t{9}));

}  // namespace
}  // namespace rueda::gpu
