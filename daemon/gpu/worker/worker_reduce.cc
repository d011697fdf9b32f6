// The launches of a GPU worker: reading a batch, and sharing it out among GPUs.
#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "daemon/gpu/worker/parts.h"
#include "daemon/gpu/worker/worker.h"

namespace rueda::gpu {
namespace {

std::optional<DType> dtype_of(uint8_t value) {
  if (value == kNoDType) return std::nullopt;
  return static_cast<DType>(value);
}

bool is_dtype(uint8_t value) { return value < kDTypeCount; }

bool is_known(const ReduceBody& body) {
  const bool has_dtypes =
      is_dtype(body.dtype) && (body.partial_dtype == kNoDType || is_dtype(body.partial_dtype)) &&
      (body.dst_dtype == kNoDType || is_dtype(body.dst_dtype)) && body.op < kReduceOpCount;
  return has_dtypes && body.segments <= kMaxMessageBytes && body.sources <= kMaxSources &&
         body.destinations <= kMaxDestinations && body.has_partial <= 1;
}

}  // namespace

// A batch that has been read, with places in memory that is open.
struct Worker::Received {
  Batch batch;  // without its segments
  size_t partials = 0;
  size_t sources = 0;
  size_t destinations = 0;
  std::vector<uint64_t> counts;  // indexed by segment
  std::vector<Target> targets;   // for each segment: the partial, the sources, the destinations
  Status failed;                 // the first error of a place

  size_t places() const { return partials + sources + destinations; }
  // Returns the size of an element at the k-th place of a segment.
  uint64_t size_at(size_t k) const {
    return element_bytes(k < partials             ? batch.partial_dtype.value_or(batch.dtype)
                         : k < partials + sources ? batch.dtype
                                                  : batch.dst_dtype.value_or(batch.dtype));
  }
};

// A batch that owns its segments, with addresses on one GPU.
struct Worker::Launch {
  Batch batch;
  std::vector<Segment> segments;
  std::vector<DeviceAddress> addresses;
};

Result<Worker::Received> Worker::take_batch(const ReduceBody& body, Packet& packet) const {
  Received received{.batch = {.dtype = static_cast<DType>(body.dtype),
                              .partial_dtype = dtype_of(body.partial_dtype),
                              .dst_dtype = dtype_of(body.dst_dtype),
                              .op = static_cast<ReduceOp>(body.op),
                              .prescale = body.prescale,
                              .postscale = body.postscale,
                              .divisor = body.divisor},
                    .partials = body.has_partial,
                    .sources = body.sources,
                    .destinations = body.destinations};
  for (size_t i = 0; i < body.segments; ++i) {
    uint64_t count = 0;
    if (!packet.take(count)) return broken("a batch that is cut off");
    received.counts.push_back(count);
    for (size_t k = 0; k < received.places(); ++k) {
      Place place;
      if (!packet.take(place)) return broken("a batch that is cut off");
      const uint64_t size = received.size_at(k);
      const Result<Target> target = device_memory(place, std::min(count, UINT64_MAX / size) * size);
      received.targets.push_back(target.is_ok() ? target.value() : Target{});
      if (received.failed.is_ok()) received.failed = target.status();
    }
  }
  if (!packet.is_taken()) return broken("a batch that is too long");
  return received;
}

Status Worker::reduce(Packet& packet) {
  ReduceBody body;
  if (!packet.take(body)) return broken("a batch");
  const Result<Line*> found = line(body.stream);
  if (!found.is_ok()) return found.status();
  if (!is_known(body)) return broken("a batch of what is not known");
  const Result<Received> received = take_batch(body, packet);
  if (!received.is_ok()) return received.status();
  Line& own = *found.value();
  if (Status status = begin(own); !status.is_ok()) return status;
  if (const Status& failed = received.value().failed; !failed.is_ok()) {
    return queue_work(own, [failed](Stream&) { return failed; });
  }
  return queue_parts(own, share_out(received.value()));
}

// Returns the GPUs whose memory the batch uses. Scratch memory of the first GPU, which holds data
// on their way between nodes, can be reached only by that GPU.
std::vector<size_t> Worker::gpus_of(const Received& received) const {
  std::set<size_t> gpus;
  for (const Target& target : received.targets) {
    if (!devices_.is_reached_by_all(target.memory)) return {0};
    gpus.insert(devices_.owner_of(target.memory));
  }
  if (gpus.empty()) return {0};
  return {gpus.begin(), gpus.end()};
}

std::vector<Worker::Part> Worker::share_out(const Received& received) const {
  const std::vector<size_t> gpus = gpus_of(received);
  uint64_t bytes = 0;
  for (const uint64_t count : received.counts) bytes += count * element_bytes(received.batch.dtype);
  const auto cut = cut_into_parts(received.counts, parts_of(bytes, gpus.size()));
  const size_t places = received.places();
  std::vector<Part> parts;
  for (size_t i = 0; i < cut.size(); ++i) {
    if (cut[i].empty() && i > 0) continue;
    const size_t gpu = gpus[i];
    auto launch = std::make_shared<Launch>();
    launch->batch = received.batch;
    launch->addresses.reserve(places * cut[i].size());
    for (const SegmentPart& piece : cut[i]) {
      const Target* const targets = received.targets.data() + piece.segment * places;
      DeviceAddress* const own = launch->addresses.data() + launch->addresses.size();
      for (size_t k = 0; k < places; ++k) {
        launch->addresses.push_back(devices_.address(targets[k].memory, gpu) + targets[k].offset +
                                    piece.begin * received.size_at(k));
      }
      Segment segment{.count = piece.end - piece.begin};
      if (received.partials > 0) segment.partial = own[0];
      segment.sources = {own + received.partials, received.sources};
      segment.destinations = {own + received.partials + received.sources, received.destinations};
      launch->segments.push_back(segment);
    }
    launch->batch.segments = launch->segments;
    parts.push_back({gpu, std::move(launch)});
  }
  return parts;
}

// The other GPUs begin when the first device has come so far, and it goes on when all of them have
// done their part: work before and after a launch is the first device's alone.
Status Worker::queue_parts(Line& line, const std::vector<Part>& parts) {
  const auto do_part = [&line](const Part& part) {
    return queue_work(line,
                      [launch = part.launch](Stream& own) { return own.reduce(launch->batch); });
  };
  if (parts.size() == 1 && parts[0].gpu == 0) return do_part(parts[0]);
  const uint64_t number = ++line.launches;
  Status status = queue(line, [&line, number](Stream& own) {
    Status written = own.write_value(line.shared_out, number);
    if (written.is_ok()) line.told = number;
    return written;
  });
  std::vector<Track*> others;
  for (const Part& part : parts) {
    if (!status.is_ok()) return status;
    if (part.gpu == 0) {
      status = do_part(part);
      continue;
    }
    others.push_back(line.tracks[part.gpu].get());
    status = queue_part(line, *others.back(), number, part);
  }
  for (Track* const other : others) {
    if (!status.is_ok()) return status;
    status = queue(line, [other, number](Stream& own) {
      if (other->told < number) return Status(Code::kUnavailable, "another GPU is yet to be told");
      return own.wait_value(other->done, number);
    });
  }
  return status;
}

// The GPU gets its part only after the first device has got its own: before that, an error could be
// that of an earlier operation.
Status Worker::queue_part(Line& line, Track& track, uint64_t number, const Part& part) {
  Status status = queue(track, [&line, number](Stream& own) {
    if (line.told < number) return Status(Code::kUnavailable, "the first GPU is yet to be told");
    return own.wait_value(line.shared_out, number);
  });
  if (!status.is_ok()) return status;
  status = queue(track, [&line, launch = part.launch](Stream& own) {
    return line.failed.is_ok() ? own.reduce(launch->batch) : Status::ok();
  });
  if (!status.is_ok()) return status;
  return queue(track, [&track, number](Stream& own) {
    Status written = own.write_value(track.done, number);
    if (written.is_ok()) track.told = number;
    return written;
  });
}

}  // namespace rueda::gpu
