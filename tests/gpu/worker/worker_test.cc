// Tests what a worker does of what the daemon tells it, and what ends it.
#include <algorithm>
#include <cstring>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/gpu/worker/worker_rig.h"

namespace rueda::gpu {
namespace {

TEST_F(WorkerTest, ReducesMemoryOfTwoProcesses) {
  open_and_share();
  run(sum_of_two(5));
  expect_outcome(WorkerMessage::kEnded, 5, Code::kOk);
  for (Rank& rank : ranks_) EXPECT_EQ(values(rank), all(3));
  EXPECT_FALSE(worker_->is_busy());
}

TEST_F(WorkerTest, MemoryComesByDescriptorsToo) {
  open();
  ASSERT_EQ(next()->type(), WorkerMessage::kReady);
  share(0, ranks_[0], 1, Sharing::kFd);
  share(1, ranks_[1], 2, Sharing::kFd);
  run(sum_of_two(1));
  expect_outcome(WorkerMessage::kEnded, 1, Code::kOk);
  EXPECT_EQ(values(ranks_[1]), all(3));
}

TEST_F(WorkerTest, ScalesAndAverages) {
  open_and_share();
  WorkerOperation operation = sum_of_two(1);
  operation.batch.op = ReduceOp::kAverage;
  operation.batch.divisor = 2;
  operation.batch.prescale = 4;
  run(operation);
  expect_outcome(WorkerMessage::kEnded, 1, Code::kOk);
  EXPECT_EQ(values(ranks_[0]), all(6));
}

TEST_F(WorkerTest, WaitsForTheRanksAndTellsThem) {
  open_and_share();
  WorkerOperation operation = sum_of_two(1);
  operation.waits = {{counter(0), 7}, {counter(1), 3}};
  operation.writes = {{counter(2), 11}, {counter(3), 12}};
  run(operation);
  EXPECT_EQ(next(), std::nullopt);
  EXPECT_TRUE(worker_->is_busy());
  counters_.set(0, 7);
  EXPECT_EQ(next(), std::nullopt);
  // A value that is one beyond serves as well.
  counters_.set(1, 4);
  expect_outcome(WorkerMessage::kEnded, 1, Code::kOk);
  EXPECT_EQ(counters_.get(2), 11u);
  EXPECT_EQ(counters_.get(3), 12u);
  EXPECT_EQ(values(ranks_[0]), all(3));
}

TEST_F(WorkerTest, ReadsOnlyOnceARankIsReady) {
  open_and_share();
  WorkerOperation operation = sum_of_two(1);
  operation.waits = {{counter(0), 1}};
  run(operation);
  EXPECT_EQ(next(), std::nullopt);
  put(ranks_[0], 10);
  counters_.set(0, 1);
  expect_outcome(WorkerMessage::kEnded, 1, Code::kOk);
  EXPECT_EQ(values(ranks_[1]), all(12));
}

TEST_F(WorkerTest, OperationsOfAStreamKeepTheirOrderAndStreamsDoNot) {
  open_and_share();
  WorkerOperation blocked = sum_of_two(1);
  blocked.waits = {{counter(0), 1}};
  WorkerOperation after = sum_of_two(2);
  WorkerOperation beside{.number = 3, .stream = 1};
  run(blocked);
  run(after);
  run(beside);
  expect_outcome(WorkerMessage::kEnded, 3, Code::kOk);
  EXPECT_EQ(next(), std::nullopt);
  counters_.set(0, 1);
  expect_outcome(WorkerMessage::kEnded, 1, Code::kOk);
  expect_outcome(WorkerMessage::kEnded, 2, Code::kOk);
  EXPECT_EQ(values(ranks_[0]), all(6));
}

TEST_F(WorkerTest, AnOperationOfManySegmentsIsSeveralMessages) {
  open_and_share();
  WorkerOperation operation{.number = 1};
  for (uint64_t i = 0; i < kCount; ++i) {
    operation.segments.push_back(
        {.count = 1,
         .sources = {{.memory = 0, .offset = i * 4}, {.memory = 1, .offset = i * 4}},
         .destinations = {{.memory = 0, .offset = i * 4}, {.memory = 1, .offset = i * 4}}});
  }
  EXPECT_GT(make_packets(operation).value().size(), 2u);
  run(operation);
  expect_outcome(WorkerMessage::kEnded, 1, Code::kOk);
  EXPECT_EQ(values(ranks_[1]), all(3));
}

TEST_F(WorkerTest, SegmentsOfDifferentRanksAndManyCountersAreFine) {
  open_and_share();
  WorkerOperation operation = sum_of_two(1);
  operation.segments[0].count = kCount / 2;
  // One rank alone gives and gets something of the other half.
  operation.segments.push_back({.count = kCount / 2,
                                .sources = {{.memory = 0, .offset = kBytes / 2}},
                                .destinations = {{.memory = 0, .offset = kBytes / 2}}});
  operation.batch.prescale = 2;
  for (uint64_t i = 0; i < 6000; ++i) operation.writes.push_back({counter(i % 500), i});
  run(operation);
  for (int i = 0; i < 50'000 && counters_.get(5999 % 500) != 5999; ++i) {
    turn();
    gpu_.step();
  }
  expect_outcome(WorkerMessage::kEnded, 1, Code::kOk);
  std::vector<float> wanted = all(6);
  std::fill(wanted.begin() + kCount / 2, wanted.end(), 2.0f);
  EXPECT_EQ(values(ranks_[0]), wanted);
  EXPECT_EQ(values(ranks_[1])[kCount / 2], 2.0f);
}

TEST_F(WorkerTest, WhatCannotBeDoneFailsAloneAndReleasesWhoWaits) {
  open_and_share();
  WorkerOperation bad = sum_of_two(1);
  bad.segments[0].sources[1].offset = 4;  // reaches one element beyond the end
  bad.writes = {{counter(2), 1}};
  run(bad);
  expect_outcome(WorkerMessage::kEnded, 1, Code::kNotFound);
  EXPECT_EQ(counters_.get(2), 1u);
  EXPECT_EQ(values(ranks_[0]), all(1));
  WorkerOperation odd = sum_of_two(2);
  odd.segments[0].count = 10;
  odd.segments[0].sources[0].offset = 2;  // lies between two elements
  run(odd);
  expect_outcome(WorkerMessage::kEnded, 2, Code::kInvalidArgument);
  run(sum_of_two(3));
  expect_outcome(WorkerMessage::kEnded, 3, Code::kOk);
  EXPECT_EQ(values(ranks_[0]), all(3));
}

TEST_F(WorkerTest, MemoryThatCannotBeOpenedIsToldAndNoMore) {
  open_and_share();
  add(5, {.bytes = 10});
  expect_outcome(WorkerMessage::kMemoryAdded, 5, Code::kPermission);
  EXPECT_NE(text_.find("cannot open this device memory"), std::string::npos) << text_;
  Packet unsealed(WorkerMessage::kAddMemory);
  unsealed.add(AddMemoryBody{.memory = 6, .kind = MemoryKind::kHost, .bytes = 4096});
  unsealed.fd = UniqueFd(::memfd_create("may shrink", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(unsealed.fd.get(), 4096), 0);
  send(unsealed);
  expect_outcome(WorkerMessage::kMemoryAdded, 6, Code::kInvalidArgument);
  EXPECT_NE(text_.find("sealed"), std::string::npos) << text_;
  run(sum_of_two(1));
  expect_outcome(WorkerMessage::kEnded, 1, Code::kOk);
}

TEST_F(WorkerTest, ALackOfMemoryIsNoLackOfPermission) {
  open_and_share();
  device_->fail_once("import_memory", {Code::kResourceExhausted, "no addresses"});
  add(5, {.bytes = 10});
  expect_outcome(WorkerMessage::kMemoryAdded, 5, Code::kResourceExhausted);
}

TEST_F(WorkerTest, KernelsHaveHostMemoryInPlaceOfDeviceMemory) {
  open_and_share();
  UniqueFd memfd(::memfd_create("staging", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(memfd.get(), 4096), 0);
  ASSERT_EQ(::fcntl(memfd.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  auto* const there = static_cast<float*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memfd.get(), 0));
  std::fill_n(there, kCount, 5.0f);
  const auto add_mapped = [&](uint32_t number) {
    Packet packet(WorkerMessage::kAddMemory);
    packet.add(AddMemoryBody{.memory = number, .kind = MemoryKind::kMapped, .bytes = 4096});
    packet.fd = UniqueFd(::dup(memfd.get()));
    send(packet);
  };
  add_mapped(40);
  expect_outcome(WorkerMessage::kMemoryAdded, 40, Code::kOk);
  WorkerOperation operation = sum_of_two(1);
  operation.segments[0].sources[1] = {.memory = 40};
  operation.segments[0].destinations[1] = {.memory = 40};
  run(operation);
  expect_outcome(WorkerMessage::kEnded, 1, Code::kOk);
  EXPECT_EQ(values(ranks_[0]), all(6));
  EXPECT_EQ(std::vector<float>(there, there + kCount), all(6));
  // Bounds of this memory are checked, and it can be removed as other memory can.
  operation.segments[0].sources[1].offset = 4096;
  operation.number = 2;
  run(operation);
  expect_outcome(WorkerMessage::kEnded, 2, Code::kNotFound);
  Packet remove(WorkerMessage::kRemoveMemory);
  send(remove.add(RemoveMemoryBody{40}));
  device_->fail_once("address_of_host", {Code::kInternal, "it is not to be had"});
  add_mapped(41);
  expect_outcome(WorkerMessage::kMemoryAdded, 41, Code::kInternal);
  add_mapped(40);
  expect_outcome(WorkerMessage::kMemoryAdded, 40, Code::kOk);
  ::munmap(there, 4096);
}

TEST_F(WorkerTest, RemovedMemoryIsClosedWhenNothingIsUnderWay) {
  open_and_share();
  WorkerOperation blocked{.number = 1, .waits = {{counter(0), 1}}};
  run(blocked);
  Packet removal(WorkerMessage::kRemoveMemory);
  removal.add(RemoveMemoryBody{.memory = 1});
  send(removal);
  EXPECT_EQ(next(), std::nullopt);
  // As long as the memory is open here, it cannot be opened again, and the request waits; other
  // requests do not wait.
  add(2, ranks_[1].device.export_memory(ranks_[1].at).value());
  EXPECT_EQ(next(), std::nullopt);
  const DeviceAddress other = ranks_[1].device.allocate(kBytes, Sharing::kIpc).value();
  add(3, ranks_[1].device.export_memory(other).value());
  expect_outcome(WorkerMessage::kMemoryAdded, 3, Code::kOk);
  counters_.set(0, 1);
  expect_outcome(WorkerMessage::kEnded, 1, Code::kOk);
  expect_outcome(WorkerMessage::kMemoryAdded, 2, Code::kOk);
}

TEST_F(WorkerTest, WhatWaitsForTooLongToBeOpenedIsRefused) {
  open_and_share();
  run({.number = 1, .waits = {{counter(0), 1}}});
  Packet removal(WorkerMessage::kRemoveMemory);
  removal.add(RemoveMemoryBody{.memory = 1});
  send(removal);
  add(2, ranks_[1].device.export_memory(ranks_[1].at).value());
  std::optional<Packet> packet;
  TicksMs now = 0;
  do {
    packet = next(now += 250);
  } while ((!packet || packet->type() == WorkerMessage::kAlive) && now < 60'000);
  EXPECT_GE(now, 5'000);
  ASSERT_TRUE(packet.has_value());
  ASSERT_EQ(packet->type(), WorkerMessage::kMemoryAdded);
  EXPECT_EQ(take_outcome(*packet)->status.code(), Code::kPermission);
  counters_.set(0, 1);
  do {
    packet = next(now);
  } while (packet && packet->type() == WorkerMessage::kAlive);
  ASSERT_TRUE(packet.has_value());
  EXPECT_EQ(packet->type(), WorkerMessage::kEnded);
  EXPECT_EQ(next(now), std::nullopt) << "it was refused, and is not opened later";
}

TEST_F(WorkerTest, AFullStreamIsWaitedFor) {
  open_and_share();
  WorkerOperation blocked{.number = 1, .waits = {{counter(0), 1}}};
  run(blocked);
  turn();
  // The operations are more than the device takes at once.
  constexpr uint64_t kMany = 600;
  for (uint64_t i = 2; i < kMany; ++i) {
    run({.number = i});
    turn();
  }
  EXPECT_EQ(next(), std::nullopt);
  counters_.set(0, 1);
  for (uint64_t i = 1; i < kMany; ++i) expect_outcome(WorkerMessage::kEnded, i, Code::kOk);
}

TEST_F(WorkerTest, SaysThatItLivesWhileItHasSomethingToDo) {
  open_and_share();
  turn(1000);
  EXPECT_EQ(next(2000), std::nullopt);
  run({.number = 1, .waits = {{counter(0), 1}}});
  auto packet = next(3000);
  ASSERT_TRUE(packet.has_value());
  EXPECT_EQ(packet->type(), WorkerMessage::kAlive);
  EXPECT_EQ(next(3400), std::nullopt);
  packet = next(3600);
  ASSERT_TRUE(packet.has_value());
  EXPECT_EQ(packet->type(), WorkerMessage::kAlive);
}

TEST_F(WorkerTest, AStickyErrorEndsIt) {
  open_and_share();
  device_->lose_after(1, {Code::kUnavailable, "the device has fallen off"});
  run(sum_of_two(1));
  expect_end(Code::kUnavailable);
  EXPECT_NE(text_.find("fallen off"), std::string::npos) << text_;
}

TEST_F(WorkerTest, MemoryFreedByItsOwnerEndsIt) {
  open_and_share();
  ASSERT_TRUE(ranks_[1].device.free(ranks_[1].at).is_ok());
  run(sum_of_two(1));
  expect_end(Code::kUnavailable);
}

TEST_F(WorkerTest, ABatchThatHangsEndsIt) {
  open_and_share();
  run(sum_of_two(1));
  // The device has begun, and goes no further, because nobody takes its steps.
  turn(5000);
  while (worker_->has_moved()) {
    gpu_.step();
    turn(5000);
  }
  gpu_.step();
  EXPECT_TRUE(turn(5000));
  EXPECT_TRUE(turn(6000));
  EXPECT_FALSE(turn(6001) && turn(6002));
  EXPECT_EQ(worker_->why().code(), Code::kTimeout);
}

TEST_F(WorkerTest, WhoIsWaitedForHasNoDeadline) {
  open_and_share();
  WorkerOperation operation = sum_of_two(1);
  operation.waits = {{counter(0), 1}};
  run(operation);
  for (TicksMs now = 0; now < 100'000; now += 500) {
    ASSERT_TRUE(turn(now));
    gpu_.run();
  }
}

TEST_F(WorkerTest, GoesWithTheDaemon) {
  open_and_share();
  daemon_.reset();
  EXPECT_FALSE(turn());
  EXPECT_EQ(worker_->why().code(), Code::kDaemonLost);
}

TEST_F(WorkerTest, ADeviceThatIsNotThereEndsIt) {
  open(1);
  expect_end(Code::kNotFound);
  EXPECT_EQ(text_, "no such GPU");
}

TEST_F(WorkerTest, MessagesThatCannotBeEndIt) {
  open_and_share();
  Packet short_wait(WorkerMessage::kWait);
  short_wait.add(uint32_t{0});
  send(short_wait);
  expect_end(Code::kInternal);
}

TEST_F(WorkerTest, NothingComesBeforeTheDeviceIsOpen) {
  run(sum_of_two(1));
  expect_end(Code::kInternal);
}

TEST_F(WorkerTest, ACounterThatIsNotThereEndsIt) {
  open_and_share();
  run({.number = 1, .waits = {{{.memory = kCounters, .offset = SharedCounters::kBytes}, 1}}});
  expect_end(Code::kInternal);
  EXPECT_NE(text_.find("no counter"), std::string::npos) << text_;
}

// The operation uses the worker's own memory, and the host memory behind the counters.
TEST_F(WorkerTest, GoesToHostMemoryAndBackThroughItsOwn) {
  open_and_share();
  Packet scratch(WorkerMessage::kAddMemory);
  send(scratch.add(AddMemoryBody{.memory = 5, .kind = MemoryKind::kScratch, .bytes = kBytes}));
  expect_scratch(5);
  EXPECT_EQ(device_->allocated_bytes(), kBytes);
  const Place host{.memory = kCounters, .offset = 64};
  constexpr uint64_t kSome = 100;
  WorkerOperation out{.number = 1};
  out.segments = {
      {.count = kSome, .sources = {{.memory = 0}, {.memory = 1}}, .destinations = {{.memory = 5}}}};
  out.copies_after = {{.to = host, .from = {.memory = 5}, .bytes = kSome * 4}};
  run(out);
  expect_outcome(WorkerMessage::kEnded, 1, Code::kOk);
  const uint64_t two = counters_.get(8);
  float found = 0;
  std::memcpy(&found, &two, sizeof found);
  EXPECT_EQ(found, 3);
  const float sent = 7;
  std::array<float, 2> pair{sent, sent};
  uint64_t word = 0;
  std::memcpy(&word, pair.data(), sizeof word);
  for (size_t i = 0; i < kSome / 2; ++i) counters_.set(8 + i, word);
  WorkerOperation in{.number = 2, .stream = 1};
  in.batch.dtype = DType::kUInt8;
  in.copies_before = {{.to = {.memory = 5}, .from = host, .bytes = kSome * 4}};
  in.segments = {{.count = kSome * 4,
                  .partial = Place{.memory = 5},
                  .sources = {},
                  .destinations = {{.memory = 0}, {.memory = 1}}}};
  run(in);
  expect_outcome(WorkerMessage::kEnded, 2, Code::kOk);
  for (size_t i = 0; i < 2; ++i) {
    const std::vector<float> got = values(ranks_[i]);
    EXPECT_EQ(got[kSome - 1], 7);
    EXPECT_EQ(got[kSome], static_cast<float>(i + 1));
  }
  Packet removal(WorkerMessage::kRemoveMemory);
  send(removal.add(RemoveMemoryBody{.memory = 5}));
  EXPECT_EQ(next(), std::nullopt);
  EXPECT_EQ(device_->allocated_bytes(), 0u);
}

TEST_F(WorkerTest, ACopyThatCannotBeFailsAloneAndWhatComesBehindItIsNotDone) {
  open_and_share();
  const Place host{.memory = kCounters};
  WorkerOperation operation{.number = 1};
  operation.writes = {{counter(2), 1}};
  operation.copies_before = {{.to = {.memory = 0, .offset = kBytes}, .from = host, .bytes = 4}};
  operation.segments = sum_of_two(1).segments;
  run(operation);
  expect_outcome(WorkerMessage::kEnded, 1, Code::kNotFound);
  EXPECT_EQ(counters_.get(2), 1u);
  EXPECT_EQ(values(ranks_[0]), all(1));
  operation.number = 2;
  operation.copies_before = {{.to = {.memory = 0}, .from = {.memory = 1}, .bytes = 4}};
  run(operation);
  expect_outcome(WorkerMessage::kEnded, 2, Code::kNotFound);
}

TEST_F(WorkerTest, MoreOfItsOwnThanItMayHaveIsRefused) {
  open_and_share();
  Packet scratch(WorkerMessage::kAddMemory);
  send(scratch.add(
      AddMemoryBody{.memory = 5, .kind = MemoryKind::kScratch, .bytes = (1 << 20) + 1}));
  expect_outcome(WorkerMessage::kMemoryAdded, 5, Code::kResourceExhausted);
  run(sum_of_two(1));
  expect_outcome(WorkerMessage::kEnded, 1, Code::kOk);
}

TEST(MakePackets, RefusesMoreRanksThanABatchTakes) {
  WorkerOperation operation;
  operation.segments.push_back({.count = 1, .sources = std::vector<Place>(kMaxSources + 1)});
  EXPECT_EQ(make_packets(operation).status().code(), Code::kInvalidArgument);
  operation = {.writes = std::vector<CounterWrite>(kMaxCommands + 1)};
  EXPECT_EQ(make_packets(operation).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace rueda::gpu
