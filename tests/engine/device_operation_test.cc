#include "daemon/engine/device_operation.h"

#include <gtest/gtest.h>

#include "daemon/gpu/worker/commands.h"

namespace rueda::engine {
namespace {

core::DescriptorPtr tensor(const std::string& name, std::vector<int64_t> shape,
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

// Out of place, in memory of the rank's number; offsets tell the tickets apart.
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
  const core::Launch launch = launch_of({tensor("a", {2, 3}, as), tensor("b", {5}, as)}, 3);
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
  core::Launch launch = launch_of({tensor("a", {4}), tensor("empty", {0})}, 2);
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
  const core::Launch launch = launch_of({tensor("a", {4}, as)}, 3);
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
  for (int i = 0; i < 5000; ++i) batch.push_back(tensor("t" + std::to_string(i), {1}));
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

constexpr StagedRow kRow{.scratch = 30, .host = 31, .offset = 1024};

TEST(StagedOperation, TensorsLieOneBehindTheOtherAndOnlyTheLastAdditionDivides) {
  core::TensorDescriptor as;
  as.op = ReduceOp::kAverage;
  as.prescale = 0.5;
  as.postscale = 3;
  const core::Launch launch =
      launch_of({tensor("empty", {0}, as), tensor("a", {2, 3}, as), tensor("b", {5}, as)}, 2);
  EXPECT_EQ(staged_bytes(launch), 44u);
  const StagedOperations staged = build_staged_operations(launch, {.divisor = 6}, find, kRow);
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

TEST(StagedOperation, OnlyTheRootsNodeSendsABroadcast) {
  core::TensorDescriptor as;
  as.kind = CollectiveKind::kBroadcast;
  as.dtype = DType::kFloat64;
  const core::Launch launch = launch_of({tensor("a", {4}, as)}, 2);
  const StagedOperations here = build_staged_operations(launch, {.root = 1}, find, kRow);
  ASSERT_EQ(here.out.at(0).segments.size(), 1u);
  EXPECT_EQ(here.out[0].segments[0].count, 32u);
  EXPECT_EQ(here.out[0].segments[0].partial.value().memory, 2u);
  EXPECT_EQ(here.out[0].copies_after.at(0).bytes, 32u);
  EXPECT_EQ(here.in.at(0).segments.at(0).destinations.size(), 2u);
  const StagedOperations elsewhere = build_staged_operations(launch, {}, find, kRow);
  EXPECT_EQ(elsewhere.out.at(0).waits.size(), 2u) << "outputs are written only once they may be";
  EXPECT_TRUE(elsewhere.out[0].segments.empty());
  EXPECT_TRUE(elsewhere.out[0].copies_after.empty());
  EXPECT_EQ(elsewhere.in.at(0).copies_before.at(0).bytes, 32u);
}

TEST(StagedOperation, WhoHasJoinedHasNoPlace) {
  core::Launch launch = launch_of({tensor("a", {4}), tensor("b", {4})}, 2);
  launch.tickets[0].reset();
  launch.tickets[2].reset();
  EXPECT_EQ(staged_bytes(launch), 32u);
  const StagedOperations one = build_staged_operations(launch, {}, find, kRow);
  EXPECT_EQ(one.out.at(0).segments.at(0).sources.size(), 1u);
  EXPECT_EQ(one.in.at(0).segments.at(0).destinations.size(), 1u);
  launch.tickets.assign(4, std::nullopt);
  EXPECT_EQ(staged_bytes(launch), 0u);
  EXPECT_TRUE(build_staged_operations(launch, {}, find, kRow).out.empty());
}

TEST(StagedOperation, ALargeBatchIsCopiedInPieces) {
  std::vector<core::DescriptorPtr> batch;
  for (int i = 0; i < 5000; ++i) batch.push_back(tensor("t" + std::to_string(i), {1}));
  const StagedOperations staged = build_staged_operations(launch_of(batch, 8), {}, find, kRow);
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

}  // namespace
}  // namespace rueda::engine
