#include "daemon/engine/device/device_operation.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace rueda::engine {
namespace {

// Values that come back from other nodes have a stream of their own, so that they do not wait for
// values that have to go there.
constexpr uint32_t kStreamBack = 1;
// Additions do not wait either. The streams of NcclSets are in between.
constexpr uint32_t kStreamAdding = 2 + gpu::kMaxCommunicators;

using Ranks = std::vector<std::optional<DevicePlaces>>;

bool are_same(const gpu::Place& one, const gpu::Place& other) {
  return one.memory == other.memory && one.offset == other.offset;
}

gpu::WorkerOperation with_batch_of(const core::TensorDescriptor& tensor, int64_t divisor,
                                   double headroom) {
  gpu::WorkerOperation operation;
  if (tensor.kind == CollectiveKind::kBroadcast) {
    // The elements are copied as bytes, so that they stay what they are.
    operation.batch.dtype = DType::kUInt8;
    return operation;
  }
  operation.batch.dtype = tensor.dtype;
  operation.batch.op = tensor.op;
  operation.batch.prescale = tensor.prescale / headroom;
  operation.batch.postscale = tensor.postscale * headroom;
  operation.batch.divisor = divisor;
  return operation;
}

gpu::Place moved(gpu::Place place, int64_t bytes) {
  place.offset += static_cast<uint64_t>(bytes);
  return place;
}

// Calls visit(tensor, the number of its first element in the batch, its ranks) for each tensor of
// which some rank of the node has something.
template <class Visit>
void for_each_tensor(const core::Launch& launch, const FindDevicePlaces& find, Visit visit) {
  const std::vector<core::LaunchTensor>& tensors = *launch.tensors;
  Ranks ranks(launch.tickets.size() / tensors.size());
  int64_t first = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto tickets = launch.tickets_of(i);
    bool is_anybodys = false;
    for (size_t place = 0; place < ranks.size(); ++place) {
      ranks[place].reset();
      if (tickets[place]) ranks[place] = find(place, *tickets[place]);
      is_anybodys |= ranks[place].has_value();
    }
    if (is_anybodys) visit(tensors[i], first, ranks);
    first += tensors[i].elements;
  }
}

// Returns how many tensors an operation of the worker may have: it takes a wait and a write for
// each rank, and all launches and the end besides.
size_t max_tensors(const core::Launch& launch) {
  const size_t ranks = launch.tickets.size() / launch.tensors->size();
  return std::max<size_t>(gpu::kMaxCommands / (4 * std::max<size_t>(ranks, 1)), 1);
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

// A part of one tensor's elements.
struct TensorPart {
  int64_t elements = 0;
  int64_t bytes = 0;
  int64_t offset = 0;  // It is in bytes.
};

void add_inputs(const TensorPart& part, const Ranks& ranks, gpu::PlacedSegment& segment) {
  for (const auto& rank : ranks) {
    if (rank) segment.sources.push_back(moved(rank->input, part.offset));
  }
}

// Returns a segment that copies bytes from one place to the output of every rank, but for those
// that have them already.
gpu::PlacedSegment spread(const TensorPart& part, gpu::Place from, const Ranks& ranks) {
  gpu::PlacedSegment segment{.count = static_cast<uint64_t>(part.bytes), .partial = from};
  for (const auto& rank : ranks) {
    if (!rank) continue;
    const gpu::Place to = moved(rank->output, part.offset);
    if (!are_same(to, from)) segment.destinations.push_back(to);
  }
  return segment;
}

}  // namespace

std::vector<gpu::WorkerOperation> build_device_operations(const core::Launch& launch,
                                                          const DeviceLaunch& how,
                                                          const FindDevicePlaces& find) {
  std::vector<gpu::WorkerOperation> operations;
  const size_t most = max_tensors(launch);
  size_t visited = 0;
  for_each_tensor(launch, find, [&](const auto& tensor, int64_t, const Ranks& ranks) {
    if (visited++ % most == 0) {
      operations.push_back(with_batch_of(*tensor.descriptor, how.divisor, how.headroom));
    }
    gpu::WorkerOperation& operation = operations.back();
    add_waits(ranks, operation);
    add_writes(ranks, operation);
    if (tensor.elements == 0) return;
    const TensorPart whole{tensor.elements, tensor.descriptor->bytes(), 0};
    gpu::PlacedSegment segment{.count = static_cast<uint64_t>(tensor.elements)};
    if (tensor.descriptor->kind == CollectiveKind::kBroadcast) {
      segment = spread(whole, ranks[*how.root]->input, ranks);
    } else {
      add_inputs(whole, ranks, segment);
      for (const auto& rank : ranks) {
        if (rank) segment.destinations.push_back(rank->output);
      }
    }
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

namespace {

// Makes the operations of a batch's rounds, tensor by tensor.
class RoundsBuilder {
 public:
  RoundsBuilder(const core::Launch& launch, const DeviceLaunch& how, const StagedRow& row,
                std::span<const ElementRange> rounds, std::span<const ElementRange> sent)
      : how_(how),
        row_(row),
        rounds_(rounds),
        sent_(sent),
        most_(max_tensors(launch)),
        offset_(row.offset),
        tensors_(rounds.size()),
        staged_(rounds.size()) {}

  void add(const core::LaunchTensor& tensor, int64_t first, const Ranks& ranks) {
    const core::TensorDescriptor& descriptor = *tensor.descriptor;
    const int64_t end = first + tensor.elements;
    const auto size = static_cast<int64_t>(element_bytes(descriptor.dtype));
    while (round_ + 1 < rounds_.size() && rounds_[round_].end <= first) ++round_;
    Open open = operations_of(0, descriptor);
    add_waits(ranks, *open.out);
    for (size_t round = round_;; ++round) {
      if (round > 0) open = operations_of(round, descriptor);
      const int64_t begin = std::max(first, rounds_[round].begin);
      const int64_t part = std::min(end, rounds_[round].end) - begin;
      if (part > 0) {
        add_part(descriptor, {part, part * size, (begin - first) * size}, ranks, open);
        add_sent(descriptor, first, round, begin, begin + part, open);
      }
      if (end <= rounds_[round].end) break;
    }
    add_writes(ranks, *open.in);
    offset_ += static_cast<uint64_t>(tensor.elements * size);
  }

  std::vector<StagedRound> take() {
    for (StagedRound& round : staged_) {
      std::erase_if(round.in, [](const gpu::WorkerOperation& in) {
        return in.segments.empty() && in.writes.empty();
      });
    }
    return std::move(staged_);
  }

 private:
  struct Open {
    gpu::WorkerOperation* out;
    gpu::WorkerOperation* in;
  };

  // Returns the round's operations for one more tensor.
  Open operations_of(size_t round, const core::TensorDescriptor& descriptor) {
    StagedRound& own = staged_[round];
    if (tensors_[round]++ % most_ == 0) {
      own.out.push_back(with_batch_of(descriptor, 1, how_.headroom));
      own.out.back().batch.postscale = 1;
      own.in.emplace_back().stream = kStreamBack;
      own.in.back().batch.dtype = DType::kUInt8;
    }
    return {&own.out.back(), &own.in.back()};
  }

  void add_part(const core::TensorDescriptor& descriptor, const TensorPart& part,
                const Ranks& ranks, const Open& open) {
    const bool is_broadcast = descriptor.kind == CollectiveKind::kBroadcast;
    const uint64_t at = offset_ + static_cast<uint64_t>(part.offset);
    const auto bytes = static_cast<uint64_t>(part.bytes);
    const gpu::Place scratch{.memory = row_.scratch, .offset = at};
    const gpu::Place host{.memory = row_.host, .offset = at};
    if (open.in->copies_before.empty()) {
      open.in->copies_before.push_back({.to = scratch, .from = host});
    }
    open.in->copies_before.back().bytes += bytes;
    open.in->segments.push_back(spread(part, scratch, ranks));
    if (is_broadcast && !how_.root) return;  // Another node sends the values.
    gpu::PlacedSegment segment{
        .count = static_cast<uint64_t>(is_broadcast ? part.bytes : part.elements)};
    if (is_broadcast) {
      segment.partial = moved(ranks[*how_.root]->input, part.offset);
    } else {
      add_inputs(part, ranks, segment);
    }
    segment.destinations = {scratch};
    open.out->segments.push_back(std::move(segment));
  }

  // Adds, of the elements from `begin` to `end` of a tensor whose first one is `first`, those that
  // leave this node.
  void add_sent(const core::TensorDescriptor& descriptor, int64_t first, size_t round,
                int64_t begin, int64_t end, const Open& open) {
    if (descriptor.kind == CollectiveKind::kBroadcast && !how_.root) return;
    if (!sent_.empty()) {
      begin = std::max(begin, sent_[round].begin);
      end = std::min(end, sent_[round].end);
      if (begin >= end) return;
    }
    const auto size = static_cast<int64_t>(element_bytes(descriptor.dtype));
    const uint64_t at = offset_ + static_cast<uint64_t>((begin - first) * size);
    if (open.out->copies_after.empty()) {
      open.out->copies_after.push_back({.to = {.memory = row_.host, .offset = at},
                                        .from = {.memory = row_.scratch, .offset = at}});
    }
    open.out->copies_after.back().bytes += static_cast<uint64_t>((end - begin) * size);
  }

  const DeviceLaunch& how_;
  const StagedRow& row_;
  const std::span<const ElementRange> rounds_;
  const std::span<const ElementRange> sent_;
  const size_t most_;
  uint64_t offset_;              // The place of the next tensor.
  size_t round_ = 0;             // The round in which it begins.
  std::vector<size_t> tensors_;  // By round: how many tensors it has.
  std::vector<StagedRound> staged_;
};

}  // namespace

std::vector<StagedRound> build_staged_rounds(const core::Launch& launch, const DeviceLaunch& how,
                                             const FindDevicePlaces& find, const StagedRow& row,
                                             std::span<const ElementRange> rounds,
                                             std::span<const ElementRange> sent) {
  RoundsBuilder builder(launch, how, row, rounds, sent);
  for_each_tensor(launch, find, [&](const auto& tensor, int64_t first, const Ranks& ranks) {
    builder.add(tensor, first, ranks);
  });
  return builder.take();
}

namespace {

gpu::WorkerOperation addition_of(const core::TensorDescriptor& tensor, const DeviceLaunch& how,
                                 bool is_final) {
  gpu::WorkerOperation operation = with_batch_of(tensor, is_final ? how.divisor : 1, how.headroom);
  operation.stream = kStreamAdding;
  operation.batch.prescale = 1;
  if (!is_final) operation.batch.postscale = 1;
  return operation;
}

}  // namespace

gpu::WorkerOperation build_addition(const core::Launch& launch, const DeviceLaunch& how,
                                    const StagedRow& row, ElementRange part,
                                    const gpu::Place& chunk, bool is_final) {
  const core::TensorDescriptor& first = *launch.tensors->front().descriptor;
  gpu::WorkerOperation operation = addition_of(first, how, is_final);
  if (first.wire_dtype != WireDType::kSame) {
    const DType wire = dtype_on_wire(first.dtype, first.wire_dtype);
    operation.batch.partial_dtype = operation.batch.dst_dtype = wire;
  }
  const auto size = static_cast<int64_t>(element_bytes(first.dtype));
  operation.segments.push_back(
      {.count = static_cast<uint64_t>(part.count()),
       .partial = chunk,
       .sources = {moved({.memory = row.scratch, .offset = row.offset}, part.begin * size)},
       .destinations = {chunk}});
  return operation;
}

gpu::WorkerOperation build_addition_of(const core::Launch& launch, const DeviceLaunch& how,
                                       std::span<const gpu::Place> addends, int64_t elements,
                                       const gpu::Place& sum, bool is_final) {
  const core::TensorDescriptor& first = *launch.tensors->front().descriptor;
  gpu::WorkerOperation operation = addition_of(first, how, is_final);
  operation.batch.dtype = dtype_on_wire(first.dtype, first.wire_dtype);
  operation.segments.push_back({.count = static_cast<uint64_t>(elements),
                                .partial = addends.front(),
                                .sources = {addends.begin() + 1, addends.end()},
                                .destinations = {sum}});
  return operation;
}

namespace {

// Returns the type of the numbers that NCCL reduces, of values that travel as `dtype`.
DType dtype_across(DType dtype) {
  return dtype == DType::kBool ? DType::kUInt8 : component_dtype(dtype);
}

// Returns the operator that NCCL applies. bool values are numbers that are 0 or 1, and must stay
// so: the greatest stands for a sum, and the least for a product.
ReduceOp op_across(const core::TensorDescriptor& tensor) {
  if (tensor.dtype == DType::kBool) {
    const bool is_or = tensor.op == ReduceOp::kSum || tensor.op == ReduceOp::kMax;
    return is_or ? ReduceOp::kMax : ReduceOp::kMin;
  }
  return tensor.op == ReduceOp::kAverage ? ReduceOp::kSum : tensor.op;
}

}  // namespace

std::vector<gpu::WorkerOperation> build_across_operations(const core::Launch& launch,
                                                          const DeviceLaunch& how,
                                                          const FindDevicePlaces& find,
                                                          const StagedRow& row,
                                                          const NcclPlace& across) {
  const core::TensorDescriptor& first = *launch.tensors->front().descriptor;
  const bool is_broadcast = first.kind == CollectiveKind::kBroadcast;
  const DType dtype = is_broadcast ? DType::kUInt8 : dtype_on_wire(first.dtype, first.wire_dtype);
  const gpu::Place scratch{.memory = row.scratch, .offset = row.offset};
  std::vector<gpu::WorkerOperation> out;
  std::vector<gpu::WorkerOperation> in;
  const size_t most = max_tensors(launch);
  size_t visited = 0;
  int64_t elements = 0;
  for_each_tensor(launch, find, [&](const auto& tensor, int64_t, const Ranks& ranks) {
    const core::TensorDescriptor& descriptor = *tensor.descriptor;
    if (visited++ % most == 0) {
      out.push_back(with_batch_of(descriptor, 1, how.headroom));
      out.back().batch.postscale = 1;
      in.push_back(with_batch_of(descriptor, how.divisor, how.headroom));
      in.back().batch.prescale = 1;
      out.back().stream = in.back().stream = across.stream;
      if (descriptor.wire_dtype != WireDType::kSame) {
        out.back().batch.dst_dtype = in.back().batch.partial_dtype = dtype;
      }
    }
    add_waits(ranks, out.back());
    add_writes(ranks, in.back());
    if (tensor.elements == 0) return;
    const gpu::Place at = moved(scratch, elements * static_cast<int64_t>(element_bytes(dtype)));
    const int64_t count = is_broadcast ? descriptor.bytes() : tensor.elements;
    elements += count;
    gpu::PlacedSegment given{.count = static_cast<uint64_t>(count), .destinations = {at}};
    if (!is_broadcast) {
      add_inputs({.elements = count}, ranks, given);
    } else if (how.root) {
      given.partial = ranks[*how.root]->input;
    }
    if (given.partial || !given.sources.empty()) out.back().segments.push_back(std::move(given));
    gpu::PlacedSegment got{.count = static_cast<uint64_t>(count), .partial = at};
    for (const auto& rank : ranks) {
      if (rank) got.destinations.push_back(rank->output);
    }
    in.back().segments.push_back(std::move(got));
  });
  if (elements > 0) {
    in.front().across = {.communicator = across.communicator,
                         .at = scratch,
                         .count = static_cast<uint64_t>(elements) * components_of(dtype),
                         .dtype = dtype_across(dtype),
                         .op = is_broadcast ? ReduceOp::kSum : op_across(first)};
    if (is_broadcast) in.front().across->root = across.root;
  }
  for (gpu::WorkerOperation& operation : in) out.push_back(std::move(operation));
  return out;
}

}  // namespace rueda::engine
