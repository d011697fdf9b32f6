#include "daemon/engine/device/device_operation.h"

#include <gtest/gtest.h>

#include "daemon/gpu/worker/commands.h"

namespace rueda::engine {
namespace {

core::DescriptorPtr device_tensor(const std::string& name, std::vector<int64_t> shape,
                                  core::TensorDescriptor as = {}) {
  as.name = name;
  as.shape = std::move(shape);
  as.memory = MemorySpace::kDevice;
  return std::make_shared<core::TensorDescriptor>(std::move(as));
}

core::Launch launch_of(const std::vector<core::DescriptorPtr>& batch, size_t ranks) {
  core::Launch launch;
  std::vector<core::LaunchTensor> tensors;
  for (const core::DescriptorPtr& one : batch) {
    tensors.push_back({one, one->elements()});
    for (size_t rank = 0; rank < ranks; ++rank) {
      launch.tickets.push_back(Ticket{100 * rank + tensors.size()});
    }
  }
  launch.tensors = std::make_shared<const std::vector<core::LaunchTensor>>(std::move(tensors));
  return launch;
}

// Returns places in memory of the rank's number, input and output apart; offsets tell the tickets
// apart.
DevicePlaces find(size_t place, Ticket ticket) {
  const auto memory = static_cast<uint32_t>(place + 1);
  return {{.memory = memory, .offset = 64 * ticket.value},
          {.memory = memory, .offset = 64 * ticket.value + 32},
          {.memory = 10 + memory, .offset = 8 * ticket.value},
          {.memory = 10 + memory, .offset = 8 * ticket.value + 4096},
          ticket.value};
}

TEST(DeviceOperation, AllTensorsOfABatchAreOne) {
  core::TensorDescriptor as;
  as.dtype = DType::kFloat64;
  as.op = ReduceOp::kAverage;
  as.prescale = 0.5;
  as.postscale = 3;
  const core::Launch launch =
      launch_of({device_tensor("a", {2, 3}, as), device_tensor("b", {5}, as)}, 3);
  const auto operations = build_device_operations(launch, {.divisor = 3}, find);
  ASSERT_EQ(operations.size(), 1u);
  const gpu::WorkerOperation& operation = operations[0];
  EXPECT_EQ(operation.batch.dtype, DType::kFloat64);
  EXPECT_EQ(operation.batch.op, ReduceOp::kAverage);
  EXPECT_EQ(operation.batch.prescale, 0.5);
  EXPECT_EQ(operation.batch.postscale, 3);
  EXPECT_EQ(operation.batch.divisor, 3);
  ASSERT_EQ(operation.segments.size(), 2u);
  EXPECT_EQ(operation.segments[1].count, 5u);
  ASSERT_EQ(operation.segments[1].sources.size(), 3u);
  EXPECT_EQ(operation.segments[1].sources[2].memory, 3u);
  EXPECT_EQ(operation.segments[1].sources[2].offset, 64u * 202);
  EXPECT_EQ(operation.segments[1].destinations[2].offset, 64u * 202 + 32);
  ASSERT_EQ(operation.waits.size(), 6u);
  ASSERT_EQ(operation.writes.size(), 6u);
  EXPECT_EQ(operation.waits[5].value, 202u);
  EXPECT_EQ(operation.waits[5].counter.memory, 13u);
  EXPECT_EQ(operation.writes[5].counter.offset, 8u * 202 + 4096);
}

TEST(DeviceOperation, WhoHasJoinedGivesNothingAndEmptyTensorsAreOnlyTold) {
  core::Launch launch = launch_of({device_tensor("a", {4}), device_tensor("empty", {0})}, 2);
  launch.tickets[1].reset();
  launch.tickets[3].reset();
  const auto operations = build_device_operations(launch, {}, find);
  ASSERT_EQ(operations.size(), 1u);
  ASSERT_EQ(operations[0].segments.size(), 1u);
  EXPECT_EQ(operations[0].segments[0].sources.size(), 1u);
  EXPECT_EQ(operations[0].waits.size(), 2u);
  EXPECT_EQ(operations[0].writes.size(), 2u);
  launch.tickets.assign(4, std::nullopt);
  EXPECT_TRUE(build_device_operations(launch, {}, find).empty());
}

TEST(DeviceOperation, ABroadcastScattersTheRootsBytes) {
  core::TensorDescriptor as;
  as.kind = CollectiveKind::kBroadcast;
  as.dtype = DType::kFloat64;
  const core::Launch launch = launch_of({device_tensor("a", {4}, as)}, 3);
  for (const bool is_in_place : {false, true}) {
    const auto operations =
        build_device_operations(launch, {.root = 1}, [&](size_t place, Ticket ticket) {
          DevicePlaces places = find(place, ticket);
          if (is_in_place) places.output = places.input;
          return places;
        });
    ASSERT_EQ(operations.size(), 1u);
    EXPECT_EQ(operations[0].batch.dtype, DType::kUInt8);
    const gpu::PlacedSegment& segment = operations[0].segments.at(0);
    EXPECT_EQ(segment.count, 32u);
    EXPECT_EQ(segment.partial.value().memory, 2u);
    EXPECT_TRUE(segment.sources.empty());
    EXPECT_EQ(segment.destinations.size(), is_in_place ? 2u : 3u);
  }
}

TEST(DeviceOperation, ALargeBatchIsCutIntoWhatAWorkerTakes) {
  std::vector<core::DescriptorPtr> batch;
  for (int i = 0; i < 5000; ++i) batch.push_back(device_tensor("t" + std::to_string(i), {1}));
  const auto operations = build_device_operations(launch_of(batch, 8), {}, find);
  EXPECT_GT(operations.size(), 1u);
  size_t segments = 0;
  for (const gpu::WorkerOperation& operation : operations) {
    segments += operation.segments.size();
    EXPECT_EQ(operation.waits.size(), 8 * operation.segments.size());
    EXPECT_TRUE(gpu::make_packets(operation).is_ok());
  }
  EXPECT_EQ(segments, 5000u);
}

const StagedRow kRow{.scratch = 30, .host = 31, .offset = 1024};

std::vector<StagedRound> build(const core::Launch& launch, const DeviceLaunch& how,
                               std::vector<ElementRange> rounds = {}) {
  int64_t elements = 0;
  for (const core::LaunchTensor& tensor : *launch.tensors) elements += tensor.elements;
  if (rounds.empty()) rounds = {{0, elements}};
  return build_staged_rounds(launch, how, find, kRow, rounds);
}

TEST(StagedOperation, TensorsLieOneBehindTheOtherAndOnlyTheLastAdditionDivides) {
  core::TensorDescriptor as;
  as.op = ReduceOp::kAverage;
  as.prescale = 0.5;
  as.postscale = 3;
  const core::Launch launch =
      launch_of({device_tensor("empty", {0}, as), device_tensor("a", {2, 3}, as),
                 device_tensor("b", {5}, as)},
                2);
  EXPECT_EQ(staged_bytes(launch), 44u);
  const StagedRound staged = build(launch, {.divisor = 6}).at(0);
  ASSERT_EQ(staged.out.size(), 1u);
  ASSERT_EQ(staged.in.size(), 1u);
  const gpu::WorkerOperation& out = staged.out[0];
  EXPECT_EQ(out.batch.op, ReduceOp::kAverage);
  EXPECT_EQ(out.batch.prescale, 0.5);
  EXPECT_EQ(out.batch.postscale, 1);
  EXPECT_EQ(out.batch.divisor, 1);
  EXPECT_EQ(out.waits.size(), 6u);
  EXPECT_TRUE(out.writes.empty());
  ASSERT_EQ(out.segments.size(), 2u);
  EXPECT_EQ(out.segments[1].sources.size(), 2u);
  ASSERT_EQ(out.segments[1].destinations.size(), 1u);
  EXPECT_EQ(out.segments[1].destinations[0].memory, 30u);
  EXPECT_EQ(out.segments[1].destinations[0].offset, 1024u + 24);
  EXPECT_TRUE(out.copies_before.empty());
  ASSERT_EQ(out.copies_after.size(), 1u);
  EXPECT_EQ(out.copies_after[0].to.memory, 31u);
  EXPECT_EQ(out.copies_after[0].from.memory, 30u);
  EXPECT_EQ(out.copies_after[0].from.offset, 1024u);
  EXPECT_EQ(out.copies_after[0].bytes, 44u);
  const gpu::WorkerOperation& in = staged.in[0];
  EXPECT_NE(in.stream, out.stream);
  EXPECT_EQ(in.batch.dtype, DType::kUInt8);
  EXPECT_TRUE(in.waits.empty());
  EXPECT_EQ(in.writes.size(), 6u);
  ASSERT_EQ(in.copies_before.size(), 1u);
  EXPECT_EQ(in.copies_before[0].to.memory, 30u);
  EXPECT_EQ(in.copies_before[0].bytes, 44u);
  ASSERT_EQ(in.segments.size(), 2u);
  EXPECT_EQ(in.segments[1].count, 20u);
  EXPECT_EQ(in.segments[1].partial.value().offset, 1024u + 24);
  EXPECT_EQ(in.segments[1].destinations.size(), 2u);
}

// The rest of each round is added to what comes, and is not needed on the host.
TEST(StagedOperation, OnlyWhatIsSentIsCopiedOut) {
  const core::Launch launch = launch_of({device_tensor("a", {6}), device_tensor("b", {10})}, 1);
  const std::vector<ElementRange> rounds{{0, 8}, {8, 16}};
  const std::vector<ElementRange> sent{{4, 8}, {12, 16}};
  const auto staged = build_staged_rounds(launch, {}, find, kRow, rounds, sent);
  ASSERT_EQ(staged.size(), 2u);
  for (size_t round = 0; round < 2; ++round) {
    const std::vector<gpu::PlacedCopy>& out = staged[round].out.at(0).copies_after;
    ASSERT_EQ(out.size(), 1u);
    EXPECT_EQ(out[0].to.offset, 1024u + 16 + 32 * round);
    EXPECT_EQ(out[0].from.offset, out[0].to.offset);
    EXPECT_EQ(out[0].bytes, 16u);
    const std::vector<gpu::PlacedCopy>& in = staged[round].in.at(0).copies_before;
    ASSERT_EQ(in.size(), 1u);
    EXPECT_EQ(in[0].to.offset, 1024u + 32 * round);
    EXPECT_EQ(in[0].bytes, 32u) << "what comes back is all of it";
  }
}

TEST(StagedOperation, OnlyTheLastAdditionDividesOnTheGpuToo) {
  core::TensorDescriptor as;
  as.op = ReduceOp::kAverage;
  as.prescale = 0.5;
  as.postscale = 3;
  as.wire_dtype = WireDType::kBFloat16;
  const core::Launch launch =
      launch_of({device_tensor("a", {6}, as), device_tensor("b", {10}, as)}, 1);
  for (const bool is_final : {false, true}) {
    const gpu::WorkerOperation made = build_addition(launch, {.divisor = 6}, kRow, {5, 9},
                                                     {.memory = 40, .offset = 512}, is_final);
    EXPECT_EQ(made.batch.prescale, 1) << "is in scratch memory";
    EXPECT_EQ(made.batch.postscale, is_final ? 3 : 1);
    EXPECT_EQ(made.batch.divisor, is_final ? 6 : 1);
    EXPECT_EQ(made.batch.dtype, DType::kFloat32);
    EXPECT_EQ(made.batch.partial_dtype, DType::kBFloat16);
    EXPECT_EQ(made.batch.dst_dtype, DType::kBFloat16);
    ASSERT_EQ(made.segments.size(), 1u);
    const gpu::PlacedSegment& segment = made.segments[0];
    EXPECT_EQ(segment.count, 4u);
    EXPECT_EQ(segment.partial.value().memory, 40u);
    EXPECT_EQ(segment.sources.at(0).memory, 30u);
    EXPECT_EQ(segment.sources[0].offset, 1024u + 20);
    EXPECT_EQ(segment.destinations.at(0).offset, 512u);
    EXPECT_TRUE(made.waits.empty() && made.writes.empty());
  }
}

TEST(StagedOperation, AnExchangeAddsUpWhatNodesSendInTheTypeInWhichTheySendIt) {
  core::TensorDescriptor as;
  as.op = ReduceOp::kAverage;
  as.prescale = 0.5;
  as.postscale = 3;
  as.wire_dtype = WireDType::kFloat16;
  const core::Launch launch = launch_of({device_tensor("a", {6}, as)}, 1);
  const std::vector<gpu::Place> addends{{.memory = 40, .offset = 512},
                                        {.memory = 40, .offset = 64}};
  for (const bool is_final : {false, true}) {
    const gpu::WorkerOperation made =
        build_addition_of(launch, {.divisor = 6}, addends, 4, addends[1], is_final);
    EXPECT_EQ(made.batch.prescale, 1) << "is in what nodes send";
    EXPECT_EQ(made.batch.postscale, is_final ? 3 : 1);
    EXPECT_EQ(made.batch.divisor, is_final ? 6 : 1);
    EXPECT_EQ(made.batch.dtype, DType::kFloat16);
    EXPECT_FALSE(made.batch.partial_dtype || made.batch.dst_dtype);
    ASSERT_EQ(made.segments.size(), 1u);
    const gpu::PlacedSegment& segment = made.segments[0];
    EXPECT_EQ(segment.count, 4u);
    EXPECT_EQ(segment.partial.value().offset, 512u);
    ASSERT_EQ(segment.sources.size(), 1u);
    EXPECT_EQ(segment.sources[0].offset, 64u);
    EXPECT_EQ(segment.destinations.at(0).offset, 64u);
    EXPECT_TRUE(made.waits.empty() && made.writes.empty());
  }
}

TEST(StagedOperation, OnlyTheRootsNodeSendsABroadcast) {
  core::TensorDescriptor as;
  as.kind = CollectiveKind::kBroadcast;
  as.dtype = DType::kFloat64;
  const core::Launch launch = launch_of({device_tensor("a", {4}, as)}, 2);
  const StagedRound here = build(launch, {.root = 1}).at(0);
  ASSERT_EQ(here.out.at(0).segments.size(), 1u);
  EXPECT_EQ(here.out[0].segments[0].count, 32u);
  EXPECT_EQ(here.out[0].segments[0].partial.value().memory, 2u);
  EXPECT_EQ(here.out[0].copies_after.at(0).bytes, 32u);
  EXPECT_EQ(here.in.at(0).segments.at(0).destinations.size(), 2u);
  const StagedRound elsewhere = build(launch, {}).at(0);
  EXPECT_EQ(elsewhere.out.at(0).waits.size(), 2u) << "outputs are written only once they may be";
  EXPECT_TRUE(elsewhere.out[0].segments.empty());
  EXPECT_TRUE(elsewhere.out[0].copies_after.empty());
  EXPECT_EQ(elsewhere.in.at(0).copies_before.at(0).bytes, 32u);
}

TEST(StagedOperation, WhoHasJoinedHasNoPlace) {
  core::Launch launch = launch_of({device_tensor("a", {4}), device_tensor("b", {4})}, 2);
  launch.tickets[0].reset();
  launch.tickets[2].reset();
  EXPECT_EQ(staged_bytes(launch), 32u);
  const StagedRound one = build(launch, {}).at(0);
  EXPECT_EQ(one.out.at(0).segments.at(0).sources.size(), 1u);
  EXPECT_EQ(one.in.at(0).segments.at(0).destinations.size(), 1u);
  launch.tickets.assign(4, std::nullopt);
  EXPECT_EQ(staged_bytes(launch), 0u);
  EXPECT_TRUE(build(launch, {}).at(0).out.empty());
}

TEST(StagedOperation, ALargeBatchIsCopiedInPieces) {
  std::vector<core::DescriptorPtr> batch;
  for (int i = 0; i < 5000; ++i) batch.push_back(device_tensor("t" + std::to_string(i), {1}));
  const StagedRound staged = build(launch_of(batch, 8), {}).at(0);
  ASSERT_GT(staged.out.size(), 1u);
  ASSERT_EQ(staged.in.size(), staged.out.size());
  uint64_t next = kRow.offset;
  for (size_t i = 0; i < staged.out.size(); ++i) {
    EXPECT_TRUE(gpu::make_packets(staged.out[i]).is_ok());
    EXPECT_TRUE(gpu::make_packets(staged.in[i]).is_ok());
    EXPECT_EQ(staged.out[i].copies_after.at(0).from.offset, next);
    EXPECT_EQ(staged.in[i].copies_before.at(0).to.offset, next);
    next += staged.in[i].copies_before[0].bytes;
  }
  EXPECT_EQ(next, kRow.offset + 20000);
}

uint64_t bytes_of(const std::vector<gpu::WorkerOperation>& operations) {
  uint64_t bytes = 0;
  for (const gpu::WorkerOperation& operation : operations) {
    for (const auto* copies : {&operation.copies_before, &operation.copies_after}) {
      for (const gpu::PlacedCopy& copy : *copies) bytes += copy.bytes;
    }
  }
  return bytes;
}

TEST(StagedOperation, ATensorMayLieInSeveralRounds) {
  const core::Launch launch = launch_of(
      {device_tensor("a", {100}), device_tensor("empty", {0}), device_tensor("b", {200})}, 2);
  const auto rounds = build(launch, {}, {{0, 64}, {64, 192}, {192, 300}});
  ASSERT_EQ(rounds.size(), 3u);
  size_t waits = 0;
  for (const gpu::WorkerOperation& out : rounds[0].out) waits += out.waits.size();
  EXPECT_EQ(waits, 6u) << "nothing sets out before all of it is there";
  uint64_t next = kRow.offset;
  for (const StagedRound& round : rounds) {
    ASSERT_EQ(round.out.size(), 1u);
    ASSERT_EQ(round.in.size(), 1u);
    EXPECT_EQ(round.out[0].copies_after.at(0).from.offset, next);
    EXPECT_EQ(round.in[0].copies_before.at(0).to.offset, next);
    EXPECT_EQ(bytes_of(round.out), bytes_of(round.in));
    next += bytes_of(round.in);
  }
  EXPECT_EQ(next, kRow.offset + 1200);
  EXPECT_TRUE(rounds[1].out[0].waits.empty());
  // The end of `a` is in the second round, and so is `empty`.
  EXPECT_TRUE(rounds[0].in[0].writes.empty());
  EXPECT_EQ(rounds[1].in[0].writes.size(), 4u);
  EXPECT_EQ(rounds[2].in[0].writes.size(), 2u);
  // The segments are elements 64 to 100 of `a`, and 0 to 92 of `b`.
  const std::vector<gpu::PlacedSegment>& segments = rounds[1].out[0].segments;
  ASSERT_EQ(segments.size(), 2u);
  EXPECT_EQ(segments[0].count, 36u);
  EXPECT_EQ(segments[0].sources[1].offset, 64u * 101 + 64 * 4);
  EXPECT_EQ(segments[0].destinations[0].offset, kRow.offset + 64 * 4);
  EXPECT_EQ(segments[1].count, 92u);
  EXPECT_EQ(segments[1].sources[1].offset, 64u * 103);
  EXPECT_EQ(rounds[2].in[0].segments[0].destinations[1].offset, 64u * 103 + 32 + 92 * 4);
}

TEST(StagedOperation, ARoundOfWhoHasJoinedIsEmpty) {
  core::Launch launch = launch_of({device_tensor("a", {64}), device_tensor("b", {64})}, 1);
  launch.tickets[1].reset();
  const auto rounds = build(launch, {}, {{0, 64}, {64, 128}});
  EXPECT_EQ(bytes_of(rounds.at(0).out), 256u);
  EXPECT_TRUE(rounds.at(1).out.empty());
  EXPECT_TRUE(rounds.at(1).in.empty());
}

TEST(StagedOperation, RoundsOfABroadcastWaitForAllOutputs) {
  core::TensorDescriptor as;
  as.kind = CollectiveKind::kBroadcast;
  as.dtype = DType::kFloat64;
  const core::Launch launch = launch_of({device_tensor("a", {128}, as)}, 2);
  const auto elsewhere = build(launch, {}, {{0, 64}, {64, 128}});
  EXPECT_EQ(elsewhere.at(0).out.at(0).waits.size(), 2u);
  EXPECT_EQ(bytes_of(elsewhere[0].out), 0u);
  EXPECT_EQ(bytes_of(elsewhere[1].in), 512u);
  const auto here = build(launch, {.root = 1}, {{0, 64}, {64, 128}});
  EXPECT_EQ(here.at(1).out.at(0).segments.at(0).partial.value().offset, 64u * 101 + 512);
}

TEST(StagedOperation, ALargeBatchInRoundsIsWhatAWorkerTakes) {
  std::vector<core::DescriptorPtr> batch;
  for (int i = 0; i < 5000; ++i) batch.push_back(device_tensor("t" + std::to_string(i), {1}));
  const auto rounds = build(launch_of(batch, 8), {}, {{0, 2560}, {2560, 5000}});
  size_t waits = 0;
  size_t writes = 0;
  for (const StagedRound& round : rounds) {
    for (const auto* operations : {&round.out, &round.in}) {
      for (const gpu::WorkerOperation& operation : *operations) {
        EXPECT_TRUE(gpu::make_packets(operation).is_ok());
        waits += operation.waits.size();
        writes += operation.writes.size();
      }
    }
  }
  EXPECT_EQ(waits, 40000u);
  EXPECT_EQ(writes, 40000u);
}

constexpr NcclPlace kAcross{.communicator = 5, .stream = 3, .root = 1};

std::vector<gpu::WorkerOperation> build_across(const core::Launch& launch,
                                               const DeviceLaunch& how) {
  return build_across_operations(launch, how, find, kRow, kAcross);
}

TEST(AcrossOperation, ABatchGoesInOnePieceAndWhatComesOfItToAll) {
  core::TensorDescriptor as;
  as.op = ReduceOp::kAverage;
  as.prescale = 0.5;
  as.postscale = 3;
  const auto operations =
      build_across(launch_of({device_tensor("empty", {0}, as), device_tensor("a", {2, 3}, as),
                              device_tensor("b", {5}, as)},
                             2),
                   {.divisor = 6});
  ASSERT_EQ(operations.size(), 2u);
  const gpu::WorkerOperation& out = operations[0];
  EXPECT_EQ(out.stream, 3u);
  EXPECT_FALSE(out.across.has_value());
  EXPECT_EQ(out.waits.size(), 6u);
  EXPECT_TRUE(out.writes.empty());
  EXPECT_EQ(out.batch.prescale, 0.5);
  EXPECT_EQ(out.batch.postscale, 1);
  EXPECT_EQ(out.batch.divisor, 1);
  ASSERT_EQ(out.segments.size(), 2u);
  EXPECT_EQ(out.segments[1].sources.size(), 2u);
  EXPECT_EQ(out.segments[1].destinations.at(0).offset, 1024u + 24);
  const gpu::WorkerOperation& in = operations[1];
  EXPECT_EQ(in.stream, 3u);
  ASSERT_TRUE(in.across.has_value());
  EXPECT_EQ(in.across->communicator, 5u);
  EXPECT_EQ(in.across->at.memory, 30u);
  EXPECT_EQ(in.across->at.offset, 1024u);
  EXPECT_EQ(in.across->count, 11u);
  EXPECT_EQ(in.across->dtype, DType::kFloat32);
  EXPECT_EQ(in.across->op, ReduceOp::kSum);
  EXPECT_FALSE(in.across->root.has_value());
  EXPECT_EQ(in.batch.prescale, 1);
  EXPECT_EQ(in.batch.postscale, 3);
  EXPECT_EQ(in.batch.divisor, 6);
  EXPECT_EQ(in.writes.size(), 6u);
  ASSERT_EQ(in.segments.size(), 2u);
  EXPECT_EQ(in.segments[1].partial.value().offset, 1024u + 24);
  EXPECT_EQ(in.segments[1].destinations.size(), 2u);
}

TEST(AcrossOperation, WhatIsRoundedLiesRoundedInScratchMemory) {
  core::TensorDescriptor as;
  as.wire_dtype = WireDType::kBFloat16;
  const auto operations = build_across(
      launch_of({device_tensor("a", {6}, as), device_tensor("b", {5}, as)}, 1), {.divisor = 2});
  ASSERT_EQ(operations.size(), 2u);
  EXPECT_EQ(operations[0].batch.dst_dtype, DType::kBFloat16);
  EXPECT_EQ(operations[0].segments.at(1).destinations.at(0).offset, 1024u + 12);
  EXPECT_EQ(operations[1].across->dtype, DType::kBFloat16);
  EXPECT_EQ(operations[1].batch.dtype, DType::kFloat32);
  EXPECT_EQ(operations[1].batch.partial_dtype, DType::kBFloat16);
  EXPECT_FALSE(operations[1].batch.dst_dtype.has_value());
}

TEST(AcrossOperation, TruthIsANumberThatIsOneOrNone) {
  const std::vector<std::pair<ReduceOp, ReduceOp>> ops{{ReduceOp::kSum, ReduceOp::kMax},
                                                       {ReduceOp::kMax, ReduceOp::kMax},
                                                       {ReduceOp::kMin, ReduceOp::kMin},
                                                       {ReduceOp::kProduct, ReduceOp::kMin}};
  for (const auto& [op, across] : ops) {
    core::TensorDescriptor as;
    as.dtype = DType::kBool;
    as.op = op;
    const auto operations = build_across(launch_of({device_tensor("a", {6}, as)}, 1), {});
    EXPECT_EQ(operations.at(1).across->dtype, DType::kUInt8);
    EXPECT_EQ(operations[1].across->op, across) << to_string(op);
  }
}

TEST(AcrossOperation, AComplexNumberIsTwoNumbers) {
  for (const auto& [complex, real] :
       {std::pair{DType::kComplex64, DType::kFloat32}, {DType::kComplex128, DType::kFloat64}}) {
    core::TensorDescriptor as;
    as.dtype = complex;
    as.op = ReduceOp::kAverage;
    const auto operations = build_across(launch_of({device_tensor("a", {6}, as)}, 1), {});
    EXPECT_EQ(operations.at(1).across->dtype, real);
    EXPECT_EQ(operations[1].across->count, 12u);
    EXPECT_EQ(operations[1].across->op, ReduceOp::kSum);
    EXPECT_EQ(operations[0].batch.dtype, complex);
    EXPECT_EQ(operations[0].segments.at(0).count, 6u);
  }
}

TEST(AcrossOperation, ABroadcastComesFromTheRootsNode) {
  core::TensorDescriptor as;
  as.kind = CollectiveKind::kBroadcast;
  as.dtype = DType::kFloat64;
  const core::Launch launch = launch_of({device_tensor("a", {4}, as)}, 2);
  const auto here = build_across(launch, {.root = 1});
  EXPECT_EQ(here.at(0).segments.at(0).partial.value().memory, 2u);
  EXPECT_EQ(here.at(1).across->root, 1);
  EXPECT_EQ(here[1].across->count, 32u);
  EXPECT_EQ(here[1].across->dtype, DType::kUInt8);
  const auto elsewhere = build_across(launch, {});
  EXPECT_TRUE(elsewhere.at(0).segments.empty());
  EXPECT_EQ(elsewhere[0].waits.size(), 2u) << "outputs are written only once they may be";
  EXPECT_EQ(elsewhere.at(1).across->root, 1);
  EXPECT_EQ(elsewhere[1].segments.at(0).destinations.size(), 2u);
}

TEST(AcrossOperation, OfALargeBatchTheFirstPartThatComesBackWaitsForAll) {
  std::vector<core::DescriptorPtr> batch;
  for (int i = 0; i < 5000; ++i) batch.push_back(device_tensor("t" + std::to_string(i), {1}));
  const auto operations = build_across(launch_of(batch, 8), {});
  ASSERT_GT(operations.size(), 2u);
  for (size_t i = 0; i < operations.size(); ++i) {
    EXPECT_EQ(operations[i].across.has_value(), i == operations.size() / 2) << i;
    EXPECT_TRUE(gpu::make_packets(operations[i]).is_ok());
  }
}

}  // namespace
}  // namespace rueda::engine
