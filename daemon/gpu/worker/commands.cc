#include "daemon/gpu/worker/commands.h"

#include <algorithm>
#include <utility>

namespace rueda::gpu {
namespace {

uint8_t number_of(std::optional<DType> dtype) {
  return dtype ? static_cast<uint8_t>(*dtype) : kNoDType;
}

size_t places_of(const PlacedSegment& segment) {
  return segment.sources.size() + segment.destinations.size() + (segment.partial ? 1 : 0);
}

void add(const PlacedSegment& segment, Packet& packet) {
  packet.add(segment.count);
  if (segment.partial) packet.add(*segment.partial);
  for (const Place& place : segment.sources) packet.add(place);
  for (const Place& place : segment.destinations) packet.add(place);
}

// As many launches as it takes for each to fit into a message, and into a device's table.
Status add_launches(const WorkerOperation& operation, std::vector<Packet>& packets) {
  const std::vector<PlacedSegment>& segments = operation.segments;
  if (segments.empty()) return Status::ok();
  const PlacedSegment& first = segments.front();
  const size_t bytes = sizeof(uint64_t) + places_of(first) * sizeof(Place);
  if (first.sources.size() > kMaxSources || first.destinations.size() > kMaxDestinations) {
    return {Code::kInvalidArgument, "a GPU takes " + std::to_string(kMaxSources) + " sources and " +
                                        std::to_string(kMaxDestinations) +
                                        " destinations of a tensor on one node, not " +
                                        std::to_string(first.sources.size()) + " and " +
                                        std::to_string(first.destinations.size())};
  }
  const size_t most = (kMaxMessageBytes - sizeof(WorkerMessage) - sizeof(ReduceBody)) / bytes;
  for (size_t begin = 0; begin < segments.size(); begin += most) {
    const size_t end = std::min(segments.size(), begin + most);
    const Batch& batch = operation.batch;
    packets.emplace_back(WorkerMessage::kReduce);
    packets.back().add(ReduceBody{.stream = operation.stream,
                                  .dtype = static_cast<uint8_t>(batch.dtype),
                                  .partial_dtype = number_of(batch.partial_dtype),
                                  .dst_dtype = number_of(batch.dst_dtype),
                                  .op = static_cast<uint8_t>(batch.op),
                                  .prescale = batch.prescale,
                                  .postscale = batch.postscale,
                                  .divisor = batch.divisor,
                                  .segments = static_cast<uint32_t>(end - begin),
                                  .sources = static_cast<uint16_t>(first.sources.size()),
                                  .destinations = static_cast<uint8_t>(first.destinations.size()),
                                  .has_partial = static_cast<uint8_t>(first.partial ? 1 : 0)});
    for (size_t i = begin; i < end; ++i) {
      RUEDA_CHECK(segments[i].sources.size() == first.sources.size());
      RUEDA_CHECK(segments[i].destinations.size() == first.destinations.size());
      RUEDA_CHECK(segments[i].partial.has_value() == first.partial.has_value());
      add(segments[i], packets.back());
    }
  }
  return Status::ok();
}

}  // namespace

Result<std::vector<Packet>> make_packets(const WorkerOperation& operation) {
  if (operation.waits.size() > kMaxWrites || operation.writes.size() > kMaxWrites) {
    return Status(Code::kInvalidArgument, "an operation on a GPU has more than " +
                                              std::to_string(kMaxWrites) + " counters");
  }
  std::vector<Packet> packets;
  for (const CounterWait& wait : operation.waits) {
    packets.emplace_back(WorkerMessage::kWait);
    packets.back().add(
        WaitBody{.stream = operation.stream, .counter = wait.counter, .value = wait.value});
  }
  if (Status status = add_launches(operation, packets); !status.is_ok()) return status;
  packets.emplace_back(WorkerMessage::kEnd);
  packets.back().add(EndBody{.stream = operation.stream,
                             .writes = static_cast<uint32_t>(operation.writes.size()),
                             .operation = operation.number});
  for (const CounterWrite& write : operation.writes) packets.back().add(write);
  return packets;
}

}  // namespace rueda::gpu
