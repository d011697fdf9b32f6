#include "daemon/gpu/worker/commands.h"

#include <algorithm>
#include <span>
#include <utility>

namespace rueda::gpu {
namespace {

uint8_t number_of(std::optional<DType> dtype) {
  return dtype ? static_cast<uint8_t>(*dtype) : kNoDType;
}

bool are_alike(const PlacedSegment& one, const PlacedSegment& other) {
  return one.sources.size() == other.sources.size() &&
         one.destinations.size() == other.destinations.size() &&
         one.partial.has_value() == other.partial.has_value();
}

size_t bytes_of(const PlacedSegment& segment) {
  const size_t places =
      segment.sources.size() + segment.destinations.size() + (segment.partial ? 1 : 0);
  return sizeof(segment.count) + places * sizeof(Place);
}

void add(const PlacedSegment& segment, Packet& packet) {
  packet.add(segment.count);
  if (segment.partial) packet.add(*segment.partial);
  for (const Place& place : segment.sources) packet.add(place);
  for (const Place& place : segment.destinations) packet.add(place);
}

Packet make_launch(const WorkerOperation& operation, std::span<const PlacedSegment> segments) {
  const Batch& batch = operation.batch;
  const PlacedSegment& first = segments.front();
  Packet packet(WorkerMessage::kReduce);
  packet.add(ReduceBody{.stream = operation.stream,
                        .dtype = static_cast<uint8_t>(batch.dtype),
                        .partial_dtype = number_of(batch.partial_dtype),
                        .dst_dtype = number_of(batch.dst_dtype),
                        .op = static_cast<uint8_t>(batch.op),
                        .prescale = batch.prescale,
                        .postscale = batch.postscale,
                        .divisor = batch.divisor,
                        .segments = static_cast<uint32_t>(segments.size()),
                        .sources = static_cast<uint16_t>(first.sources.size()),
                        .destinations = static_cast<uint8_t>(first.destinations.size()),
                        .has_partial = static_cast<uint8_t>(first.partial ? 1 : 0)});
  for (const PlacedSegment& segment : segments) add(segment, packet);
  return packet;
}

// Adds launches. Each has as many alike segments as fit into a message.
Status add_launches(const WorkerOperation& operation, std::vector<Packet>& packets) {
  const std::span<const PlacedSegment> all = operation.segments;
  for (size_t begin = 0; begin < all.size();) {
    const PlacedSegment& first = all[begin];
    if (first.sources.size() > kMaxSources || first.destinations.size() > kMaxDestinations) {
      return {Code::kInvalidArgument, "a GPU takes " + std::to_string(kMaxSources) +
                                          " sources and " + std::to_string(kMaxDestinations) +
                                          " destinations of a tensor on one node, not " +
                                          std::to_string(first.sources.size()) + " and " +
                                          std::to_string(first.destinations.size())};
    }
    const size_t most =
        (kMaxMessageBytes - sizeof(WorkerMessage) - sizeof(ReduceBody)) / bytes_of(first);
    size_t end = begin + 1;
    while (end < all.size() && end - begin < most && are_alike(first, all[end])) ++end;
    packets.push_back(make_launch(operation, all.subspan(begin, end - begin)));
    begin = end;
  }
  return Status::ok();
}

void add_copies(const WorkerOperation& operation, const std::vector<PlacedCopy>& copies,
                std::vector<Packet>& packets) {
  for (const PlacedCopy& copy : copies) {
    packets.emplace_back(WorkerMessage::kCopy);
    packets.back().add(CopyBody{
        .stream = operation.stream, .to = copy.to, .from = copy.from, .bytes = copy.bytes});
  }
}

void add_across(const WorkerOperation& operation, std::vector<Packet>& packets) {
  if (!operation.across) return;
  const PlacedAcross& across = *operation.across;
  packets.emplace_back(WorkerMessage::kAcross);
  packets.back().add(AcrossBody{.stream = operation.stream,
                                .communicator = across.communicator,
                                .at = across.at,
                                .count = across.count,
                                .root = across.root.value_or(-1),
                                .dtype = static_cast<uint8_t>(across.dtype),
                                .op = static_cast<uint8_t>(across.op)});
}

void add_writes(const WorkerOperation& operation, std::vector<Packet>& packets) {
  constexpr size_t kMost =
      (kMaxMessageBytes - sizeof(WorkerMessage) - sizeof(WriteBody)) / sizeof(CounterWrite);
  const std::vector<CounterWrite>& all = operation.writes;
  for (size_t begin = 0; begin < all.size(); begin += kMost) {
    const size_t end = std::min(all.size(), begin + kMost);
    packets.emplace_back(WorkerMessage::kWrite);
    packets.back().add(
        WriteBody{.stream = operation.stream, .writes = static_cast<uint32_t>(end - begin)});
    for (size_t i = begin; i < end; ++i) packets.back().add(all[i]);
  }
}

}  // namespace

Result<std::vector<Packet>> make_packets(const WorkerOperation& operation) {
  std::vector<Packet> packets;
  for (const CounterWait& wait : operation.waits) {
    packets.emplace_back(WorkerMessage::kWait);
    packets.back().add(
        WaitBody{.stream = operation.stream, .counter = wait.counter, .value = wait.value});
  }
  add_copies(operation, operation.copies_before, packets);
  add_across(operation, packets);
  if (Status status = add_launches(operation, packets); !status.is_ok()) return status;
  add_copies(operation, operation.copies_after, packets);
  if (packets.size() + operation.writes.size() > kMaxCommands) {
    return Status(Code::kInvalidArgument, "an operation on a GPU has more than " +
                                              std::to_string(kMaxCommands) +
                                              " commands: lower the fusion threshold");
  }
  add_writes(operation, packets);
  packets.emplace_back(WorkerMessage::kEnd);
  packets.back().add(EndBody{.stream = operation.stream, .operation = operation.number});
  return packets;
}

}  // namespace rueda::gpu
