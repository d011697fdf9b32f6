#include "daemon/engine/device_operation.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace rueda::engine {
namespace {

// What comes back from other nodes does not wait for what is to go there.
constexpr uint32_t kStreamBack = 1;

using Ranks = std::vector<std::optional<DevicePlaces>>;

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

gpu::PlacedSegment reduced(const core::LaunchTensor& tensor, const Ranks& ranks) {
  gpu::PlacedSegment segment{.count = static_cast<uint64_t>(tensor.elements)};
  for (const std::optional<DevicePlaces>& rank : ranks) {
    if (!rank) continue;
    segment.sources.push_back(rank->input);
    segment.destinations.push_back(rank->output);
  }
  return segment;
}

// Calls visit(tensor, its ranks, whether another operation is to begin with it) for each tensor of
// which some rank of the node has something.
template <class Visit>
void for_each_tensor(const core::Launch& launch, const FindDevicePlaces& find, Visit visit) {
  const std::vector<core::LaunchTensor>& tensors = *launch.tensors;
  const size_t ranks_of_node = launch.tickets.size() / tensors.size();
  // A wait and a write for each rank, and all launches and the end besides.
  const size_t most =
      std::max<size_t>(gpu::kMaxCommands / (4 * std::max<size_t>(ranks_of_node, 1)), 1);
  Ranks ranks(ranks_of_node);
  size_t visited = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto tickets = launch.tickets_of(i);
    bool is_anybodys = false;
    for (size_t place = 0; place < ranks_of_node; ++place) {
      ranks[place].reset();
      if (tickets[place]) ranks[place] = find(place, *tickets[place]);
      is_anybodys |= ranks[place].has_value();
    }
    if (is_anybodys) visit(tensors[i], ranks, visited++ % most == 0);
  }
}

void add_waits(const Ranks& ranks, gpu::WorkerOperation& operation) {
  for (const auto& rank : ranks) {
    if (rank) operation.waits.push_back({rank->ready, rank->value});
  }
}

void add_writes(const Ranks& ranks, gpu::WorkerOperation& operation) {
  for (const auto& rank : ranks) {
    if (rank) operation.writes.push_back({rank->done, rank->value});
  }
}

// Bytes from one place to the output of every rank, but for where they are already.
gpu::PlacedSegment spread(const core::LaunchTensor& tensor, gpu::Place from, const Ranks& ranks) {
  gpu::PlacedSegment segment{.count = static_cast<uint64_t>(tensor.descriptor->bytes()),
                             .partial = from};
  for (const auto& rank : ranks) {
    if (rank && !are_same(rank->output, from)) segment.destinations.push_back(rank->output);
  }
  return segment;
}

}  // namespace

std::vector<gpu::WorkerOperation> build_device_operations(const core::Launch& launch,
                                                          const DeviceLaunch& how,
                                                          const FindDevicePlaces& find) {
  std::vector<gpu::WorkerOperation> operations;
  for_each_tensor(launch, find, [&](const auto& tensor, const Ranks& ranks, bool begins) {
    if (begins) operations.push_back(with_batch_of(*tensor.descriptor, how.divisor));
    gpu::WorkerOperation& operation = operations.back();
    add_waits(ranks, operation);
    add_writes(ranks, operation);
    if (tensor.elements == 0) return;
    gpu::PlacedSegment segment = tensor.descriptor->kind == CollectiveKind::kBroadcast
                                     ? spread(tensor, ranks[*how.root]->input, ranks)
                                     : reduced(tensor, ranks);
    if (!segment.destinations.empty()) operation.segments.push_back(std::move(segment));
  });
  return operations;
}

uint64_t staged_bytes(const core::Launch& launch) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < launch.tensors->size(); ++i) {
    const auto tickets = launch.tickets_of(i);
    const bool is_anybodys = std::any_of(tickets.begin(), tickets.end(),
                                         [](const auto& ticket) { return ticket.has_value(); });
    if (is_anybodys) bytes += static_cast<uint64_t>((*launch.tensors)[i].descriptor->bytes());
  }
  return bytes;
}

StagedOperations build_staged_operations(const core::Launch& launch, const DeviceLaunch& how,
                                         const FindDevicePlaces& find, const StagedRow& row) {
  StagedOperations staged;
  uint64_t offset = row.offset;
  for_each_tensor(launch, find, [&](const auto& tensor, const Ranks& ranks, bool begins) {
    const bool is_broadcast = tensor.descriptor->kind == CollectiveKind::kBroadcast;
    const auto bytes = static_cast<uint64_t>(tensor.descriptor->bytes());
    const gpu::Place scratch{.memory = row.scratch, .offset = offset};
    const gpu::Place host{.memory = row.host, .offset = offset};
    if (begins) {
      staged.out.push_back(with_batch_of(*tensor.descriptor, 1));
      staged.out.back().batch.postscale = 1;
      staged.in.emplace_back().stream = kStreamBack;
      staged.in.back().batch.dtype = DType::kUInt8;
    }
    gpu::WorkerOperation& out = staged.out.back();
    gpu::WorkerOperation& in = staged.in.back();
    add_waits(ranks, out);
    add_writes(ranks, in);
    if (bytes == 0) return;
    offset += bytes;
    if (in.copies_before.empty()) {
      out.copies_after.push_back({.to = host, .from = scratch});
      in.copies_before.push_back({.to = scratch, .from = host});
    }
    in.copies_before.back().bytes += bytes;
    in.segments.push_back(spread(tensor, scratch, ranks));
    if (is_broadcast && !how.root) return;  // what is sent is another node's
    out.copies_after.back().bytes += bytes;
    gpu::PlacedSegment segment{.count = is_broadcast ? bytes : static_cast<uint64_t>(tensor.elements)};
    if (is_broadcast) {
      segment.partial = ranks[*how.root]->input;
    } else {
      segment.sources = reduced(tensor, ranks).sources;
    }
    segment.destinations = {scratch};
    out.segments.push_back(std::move(segment));
  });
  for (gpu::WorkerOperation& out : staged.out) {
    std::erase_if(out.copies_after, [](const gpu::PlacedCopy& copy) { return copy.bytes == 0; });
  }
  return staged;
}

}  // namespace rueda::engine
