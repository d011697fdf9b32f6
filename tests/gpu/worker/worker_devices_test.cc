// Tests a worker with several GPUs: each rank has one of its own, and each GPU takes a part of a
// batch.
#include <algorithm>
#include <array>
#include <cstring>

#include <gtest/gtest.h>

#include "daemon/gpu/worker/parts.h"
#include "tests/gpu/several_gpus.h"

namespace rueda::gpu {
namespace {

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

// The second operation takes what the first gives; so do launches of one operation.
TEST_P(WorkerDevicesTest, OperationsKeepTheirOrderOnAllGpus) {
  for (size_t late = 0; late < gpus_.size(); ++late) {
    if (opened_.empty()) open_all();
    for (uint32_t rank = 0; rank < own_.size(); ++rank) {
      write(rank, std::vector<float>(kMany, static_cast<float>(rank + 1)));
    }
    const uint64_t number = 10 * late;
    WorkerOperation twice = sum_of_all(number + 1);
    twice.segments.push_back(twice.segments[0]);
    // needs another launch, as it has fewer destinations
    twice.segments[1].destinations.pop_back();
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
    const float second = n * once;  // of all ranks but the last, which keeps `once`
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

// On the way between nodes, the first GPU gathers what all have, however much it is.
TEST_P(WorkerDevicesTest, TheFirstGathersAndScatters) {
  open_all();
  constexpr uint64_t kSome = 3 * kLeastPartBytes;  // in bytes
  Packet scratch(WorkerMessage::kAddMemory);
  send(scratch.add(AddMemoryBody{.memory = 50, .kind = MemoryKind::kScratch, .bytes = kSome}));
  expect_scratch(50);
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

// The other GPU could be given its part at once, while the first still has much queued.
TEST_P(WorkerDevicesTest, APartThatFailsIsNotTheErrorOfWhatComesBefore) {
  open_all();
  held_ = {0};
  constexpr uint64_t kSmall = 600;  // operations of two calls each
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
  rest.sources.pop_back();  // needs a launch of its own
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

INSTANTIATE_TEST_SUITE_P(Gpus, WorkerDevicesTest, testing::Values(2, 4),
                         testing::PrintToStringParamName());

// Tests every order in which the GPUs' streams may run.
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

// The operations add to one rank and to the other in turn, as Fibonacci's numbers are made, so
// their order matters. An element is one GPU's at one time, and the other's at another.
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
