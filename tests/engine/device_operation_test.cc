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

}  // namespace
}  // namespace rueda::engine
