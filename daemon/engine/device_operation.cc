#include "daemon/engine/device_operation.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace rueda::engine {
namespace {

bool are_same(const gpu::Place& one, const gpu::Place& other) {
  return one.memory == other.memory && one.offset == other.offset;
}

gpu::WorkerOperation with_batch_of(const core::TensorDescriptor& tensor, int64_t divisor) {
  gpu::WorkerOperation operation;
  if (tensor.kind == CollectiveKind::kBroadcast) {
    // Bytes, so that they stay what they are.
    operation.batch.dtype = DType::kUInt8;
    return operation;
  }
  operation.batch.dtype = tensor.dtype;
  operation.batch.op = tensor.op;
  operation.batch.prescale = tensor.prescale;
  operation.batch.postscale = tensor.postscale;
  operation.batch.divisor = divisor;
  return operation;
}

gpu::PlacedSegment reduced(const core::LaunchTensor& tensor,
                           const std::vector<std::optional<DevicePlaces>>& ranks) {
  gpu::PlacedSegment segment{.count = static_cast<uint64_t>(tensor.elements)};
  for (const std::optional<DevicePlaces>& rank : ranks) {
    if (!rank) continue;
    segment.sources.push_back(rank->input);
    segment.destinations.push_back(rank->output);
  }
  return segment;
}

gpu::PlacedSegment broadcast(const core::LaunchTensor& tensor, size_t root,
                             const std::vector<std::optional<DevicePlaces>>& ranks) {
  gpu::PlacedSegment segment{.count = static_cast<uint64_t>(tensor.descriptor->bytes())};
  segment.partial = ranks[root]->input;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i == root && are_same(ranks[i]->output, ranks[i]->input)) continue;
    segment.destinations.push_back(ranks[i]->output);
  }
  return segment;
}

}  // namespace

std::vector<gpu::WorkerOperation> build_device_operations(const core::Launch& launch,
                                                          const DeviceLaunch& how,
                                                          const FindDevicePlaces& find) {
  const std::vector<core::LaunchTensor>& tensors = *launch.tensors;
  const size_t ranks_of_node = launch.tickets.size() / tensors.size();
  // A wait and a write for each rank, and all launches and the end besides.
  const size_t most =
      std::max<size_t>(gpu::kMaxCommands / (4 * std::max<size_t>(ranks_of_node, 1)), 1);
  std::vector<gpu::WorkerOperation> operations;
  std::vector<std::optional<DevicePlaces>> ranks(ranks_of_node);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto tickets = launch.tickets_of(i);
    bool is_anybodys = false;
    for (size_t place = 0; place < ranks_of_node; ++place) {
      ranks[place].reset();
      if (tickets[place]) ranks[place] = find(place, *tickets[place]);
      is_anybodys |= ranks[place].has_value();
    }
    if (!is_anybodys) continue;  // all have joined
    if (i % most == 0 || operations.empty()) {
      operations.push_back(with_batch_of(*tensors[i].descriptor, how.divisor));
    }
    gpu::WorkerOperation& operation = operations.back();
    for (const std::optional<DevicePlaces>& rank : ranks) {
      if (!rank) continue;
      operation.waits.push_back({rank->ready, rank->value});
      operation.writes.push_back({rank->done, rank->value});
    }
    if (tensors[i].elements == 0) continue;
    gpu::PlacedSegment segment = tensors[i].descriptor->kind == CollectiveKind::kBroadcast
                                     ? broadcast(tensors[i], how.root, ranks)
                                     : reduced(tensors[i], ranks);
    if (!segment.destinations.empty()) operation.segments.push_back(std::move(segment));
  }
  return operations;
}

}  // namespace rueda::engine
