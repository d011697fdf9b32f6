#include "daemon/gpu/worker/worker.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

namespace rueda::gpu {
namespace {

constexpr size_t kCallsOfALine = 65536;
constexpr int kMessagesOfATurn = 64;
constexpr size_t kCounterStride = 64;  // no two streams write to one cache line
constexpr TicksMs kMaxSilenceMs = 500;

uint64_t read(uint64_t* counter) {
  return std::atomic_ref(*counter).load(std::memory_order_acquire);
}

std::optional<DType> dtype_of(uint8_t value) {
  if (value == kNoDType) return std::nullopt;
  return static_cast<DType>(value);
}

bool is_dtype(uint8_t value) { return value < kDTypeCount; }

// A batch that owns its segments.
struct Launch {
  Batch batch;
  std::vector<Segment> segments;
  std::vector<DeviceAddress> addresses;
};

}  // namespace

Worker::Worker(UniqueFd socket, OpenDevice open)
    : socket_(std::move(socket)), open_(std::move(open)) {}

Worker::~Worker() {
  for (auto& line : lines_) line.reset();
  for (const auto& [number, memory] : memories_) removed_.push_back(memory);
  put_joins_first(removed_);
  for (const Memory& memory : removed_) {
    // Of a device that is lost nothing can be given back but the mapping.
    static_cast<void>(release(memory));
  }
}

Status Worker::broken(const std::string& what) {
  return {Code::kInternal, "the daemon has told a GPU worker what cannot be: " + what};
}

bool Worker::turn(TicksMs now) {
  if (is_over_) return false;
  has_moved_ = false;
  const bool is_there = receive();
  for (auto& line : lines_) {
    if (is_over_ || !line) continue;
    make_calls(*line);
    if (!is_over_) look_at(*line, now);
  }
  if (!is_over_ && under_way_ == 0) release_removed();
  if (under_way_ > 0 && now - said_at_ >= kMaxSilenceMs && outgoing_.empty()) {
    answer(Packet(WorkerMessage::kAlive));
  }
  if (!outgoing_.empty()) said_at_ = now;
  flush();
  if (!is_there && !is_over_) stop({Code::kDaemonLost, "the daemon has closed the connection"});
  return !is_over_;
}

bool Worker::receive() {
  Packet packet;
  for (int i = 0; i < kMessagesOfATurn && !is_over_; ++i) {
    const PacketSocket::Io got = socket_.receive(packet);
    if (got == PacketSocket::Io::kWouldBlock) return true;
    if (got == PacketSocket::Io::kClosed) return false;
    has_moved_ = true;
    if (Status status = take(packet); !status.is_ok()) stop(status);
  }
  return true;
}

Status Worker::take(Packet& packet) {
  const WorkerMessage type = packet.type();
  if ((type == WorkerMessage::kOpen) != (device_ == nullptr)) {
    return broken("the device is to be opened first, and once");
  }
  switch (type) {
    case WorkerMessage::kOpen: return open(packet);
    case WorkerMessage::kAddMemory: return add_memory(packet);
    case WorkerMessage::kJoinMemory: return join_memory(packet);
    case WorkerMessage::kRemoveMemory: return remove_memory(packet);
    case WorkerMessage::kWait: return wait(packet);
    case WorkerMessage::kReduce: return reduce(packet);
    case WorkerMessage::kCopy: return copy(packet);
    case WorkerMessage::kWrite: return write(packet);
    case WorkerMessage::kEnd: return end(packet);
    default: return broken("a message of type " + std::to_string(static_cast<uint32_t>(type)));
  }
}

Status Worker::open(Packet& packet) {
  OpenBody body;
  if (!packet.take(body) || !packet.is_taken() || body.timeout_ms <= 0) return broken("an open");
  timeout_ms_ = body.timeout_ms;
  return open_device(body);
}

Status Worker::open_device(const OpenBody& wanted) {
  Result<std::unique_ptr<Device>> opened = open_(wanted);
  if (!opened.is_ok()) return opened.status();
  device_ = std::move(opened).value();
  const auto counters = device_->allocate_host(kMaxWorkerStreams * kCounterStride);
  if (!counters.is_ok()) return counters.status();
  counters_ = counters.value().data();
  ReadyBody ready;
  const std::string& name = device_->facts().name;
  std::memcpy(ready.name.data(), name.data(), std::min(name.size(), ready.name.size() - 1));
  ready.uuid = device_->facts().uuid;
  ready.has_mps = device_->facts().has_mps ? 1 : 0;
  Packet packet(WorkerMessage::kReady);
  packet.add(ready);
  answer(std::move(packet));
  return Status::ok();
}

Result<Worker::Line*> Worker::line(uint32_t stream) {
  if (stream >= kMaxWorkerStreams) return broken("a stream beyond the last");
  auto& line = lines_[stream];
  if (line) return line.get();
  Result<std::unique_ptr<Stream>> made = device_->make_stream(Priority::kHigh);
  if (!made.is_ok()) return made.status();
  line = std::make_unique<Line>();
  line->stream = std::move(made).value();
  auto* const own = reinterpret_cast<uint64_t*>(counters_ + stream * kCounterStride);
  line->begun = own;
  line->ended = own + 1;
  return line.get();
}

Status Worker::queue(Line& line, Call call) {
  if (line.calls.size() >= kCallsOfALine) return broken("more commands than one stream may have");
  line.calls.push_back(std::move(call));
  return Status::ok();
}

Result<DeviceAddress> Worker::device_address(const Place& place, uint64_t bytes) const {
  const auto found = memories_.find(place.memory);
  if (found == memories_.end() || found->second.kind == MemoryKind::kHost ||
      place.offset > found->second.bytes || bytes > found->second.bytes - place.offset) {
    return Status(Code::kNotFound, "there is no device memory " + std::to_string(place.memory) +
                                       " with " + std::to_string(bytes) + " bytes at " +
                                       std::to_string(place.offset));
  }
  return found->second.base + place.offset;
}

Result<std::byte*> Worker::host_address(const Place& place, uint64_t bytes) const {
  const auto found = memories_.find(place.memory);
  if (found == memories_.end() || found->second.kind != MemoryKind::kHost ||
      place.offset > found->second.bytes || bytes > found->second.bytes - place.offset) {
    return Status(Code::kNotFound, "there is no host memory " + std::to_string(place.memory) +
                                       " with " + std::to_string(bytes) + " bytes at " +
                                       std::to_string(place.offset));
  }
  return found->second.host + place.offset;
}

Result<uint64_t*> Worker::counter(const Place& place) const {
  const Result<std::byte*> at = host_address(place, sizeof(uint64_t));
  if (at.is_ok() && place.offset % sizeof(uint64_t) == 0) {
    return reinterpret_cast<uint64_t*>(at.value());
  }
  return Status(Code::kNotFound, "there is no counter at " + std::to_string(place.offset) +
                                     " of memory " + std::to_string(place.memory));
}

Status Worker::wait(Packet& packet) {
  WaitBody body;
  if (!packet.take(body) || !packet.is_taken()) return broken("a wait");
  const Result<Line*> found = line(body.stream);
  if (!found.is_ok()) return found.status();
  const Result<uint64_t*> at = counter(body.counter);
  if (!at.is_ok()) return broken(at.status().message());
  open_operation(*found.value());
  return queue(*found.value(), [at = at.value(), value = body.value](Stream& stream) {
    return stream.wait_value(at, value);
  });
}

void Worker::open_operation(Line& line) {
  if (!std::exchange(line.is_open, true)) ++under_way_;
}

// After its waits: only from then on it is the device that takes time.
Status Worker::begin(Line& line) {
  open_operation(line);
  if (std::exchange(line.has_begun, true)) return Status::ok();
  return queue(line, [at = line.begun, value = line.queued + 1](Stream& stream) {
    return stream.write_value(at, value);
  });
}

Status Worker::reduce(Packet& packet) {
  ReduceBody body;
  if (!packet.take(body)) return broken("a batch");
  const Result<Line*> found = line(body.stream);
  if (!found.is_ok()) return found.status();
  const bool has_dtypes =
      is_dtype(body.dtype) && (body.partial_dtype == kNoDType || is_dtype(body.partial_dtype)) &&
      (body.dst_dtype == kNoDType || is_dtype(body.dst_dtype)) && body.op < kReduceOpCount;
  if (!has_dtypes || body.segments > kMaxMessageBytes || body.sources > kMaxSources ||
      body.destinations > kMaxDestinations || body.has_partial > 1) {
    return broken("a batch of what is not known");
  }
  auto launch = std::make_shared<Launch>();
  launch->batch = {.dtype = static_cast<DType>(body.dtype),
                   .partial_dtype = dtype_of(body.partial_dtype),
                   .dst_dtype = dtype_of(body.dst_dtype),
                   .op = static_cast<ReduceOp>(body.op),
                   .prescale = body.prescale,
                   .postscale = body.postscale,
                   .divisor = body.divisor};
  const Batch& batch = launch->batch;
  const size_t partials = body.has_partial;
  const size_t places = partials + body.sources + body.destinations;
  launch->addresses.resize(places * body.segments);
  Status failed;
  for (size_t i = 0; i < body.segments; ++i) {
    Segment segment;
    if (!packet.take(segment.count)) return broken("a batch that is cut off");
    DeviceAddress* const own = launch->addresses.data() + i * places;
    for (size_t k = 0; k < places; ++k) {
      Place place;
      if (!packet.take(place)) return broken("a batch that is cut off");
      const DType dtype = k < partials                  ? batch.partial_dtype.value_or(batch.dtype)
                          : k < partials + body.sources ? batch.dtype
                                                        : batch.dst_dtype.value_or(batch.dtype);
      const uint64_t most = UINT64_MAX / element_bytes(dtype);
      const Result<DeviceAddress> at =
          device_address(place, std::min(segment.count, most) * element_bytes(dtype));
      if (at.is_ok()) own[k] = at.value();
      if (failed.is_ok()) failed = at.status();
    }
    if (partials > 0) segment.partial = own[0];
    segment.sources = {own + partials, body.sources};
    segment.destinations = {own + partials + body.sources, body.destinations};
    launch->segments.push_back(segment);
  }
  if (!packet.is_taken()) return broken("a batch that is too long");
  launch->batch.segments = launch->segments;
  Line& own = *found.value();
  if (Status status = begin(own); !status.is_ok()) return status;
  return queue_work(own, [launch, failed](Stream& stream) {
    return failed.is_ok() ? stream.reduce(launch->batch) : failed;
  });
}

Status Worker::queue_work(Line& line, Call call) {
  return queue(line, [&line, call = std::move(call)](Stream& stream) {
    if (!line.failed.is_ok()) return Status::ok();  // what has failed ends with its first error
    return call(stream);
  });
}

Status Worker::copy(Packet& packet) {
  CopyBody body;
  if (!packet.take(body) || !packet.is_taken()) return broken("a copy");
  const Result<Line*> found = line(body.stream);
  if (!found.is_ok()) return found.status();
  Line& own = *found.value();
  if (Status status = begin(own); !status.is_ok()) return status;
  const Result<std::byte*> src = host_address(body.from, body.bytes);
  if (src.is_ok()) {
    const Result<DeviceAddress> dst = device_address(body.to, body.bytes);
    return queue_work(own, [dst, src = src.value(), bytes = body.bytes](Stream& stream) {
      return dst.is_ok() ? stream.copy_to_device(dst.value(), src, bytes) : dst.status();
    });
  }
  const Result<std::byte*> dst = host_address(body.to, body.bytes);
  const Result<DeviceAddress> from = device_address(body.from, body.bytes);
  const Status failed = dst.is_ok() ? from.status() : dst.status();
  return queue_work(own, [dst, from, failed, bytes = body.bytes](Stream& stream) {
    return failed.is_ok() ? stream.copy_to_host(dst.value(), from.value(), bytes) : failed;
  });
}

Status Worker::write(Packet& packet) {
  WriteBody body;
  if (!packet.take(body)) return broken("counters to write");
  const Result<Line*> found = line(body.stream);
  if (!found.is_ok()) return found.status();
  if (Status status = begin(*found.value()); !status.is_ok()) return status;
  for (uint32_t i = 0; i < body.writes; ++i) {
    CounterWrite write;
    if (!packet.take(write)) return broken("counters that are cut off");
    const Result<uint64_t*> at = counter(write.counter);
    if (!at.is_ok()) return broken(at.status().message());
    const Status queued =
        queue(*found.value(), [at = at.value(), value = write.value](Stream& stream) {
          return stream.write_value(at, value);
        });
    if (!queued.is_ok()) return queued;
  }
  return packet.is_taken() ? Status::ok() : broken("too many counters");
}

Status Worker::end(Packet& packet) {
  EndBody body;
  if (!packet.take(body) || !packet.is_taken()) return broken("an end");
  const Result<Line*> found = line(body.stream);
  if (!found.is_ok()) return found.status();
  Line& own = *found.value();
  if (Status status = begin(own); !status.is_ok()) return status;
  own.is_open = own.has_begun = false;
  return queue(own, [&own, number = ++own.queued, operation = body.operation](Stream& stream) {
    Status status = stream.write_value(own.ended, number);
    if (status.is_ok()) own.under_way.push_back({operation, std::exchange(own.failed, {})});
    return status;
  });
}

void Worker::make_calls(Line& line) {
  while (!line.calls.empty()) {
    const Status status = line.calls.front()(*line.stream);
    if (!status.is_ok()) {
      if (Status health = device_->health(); !health.is_ok()) return stop(health);
      if (status.code() == Code::kUnavailable) return;  // the stream has much to do
      if (line.failed.is_ok()) line.failed = status;
    }
    line.calls.pop_front();
    has_moved_ = true;
  }
}

void Worker::look_at(Line& line, TicksMs now) {
  if (line.queued == line.seen_ended && line.calls.empty()) return;
  const uint64_t ended = read(line.ended);
  const uint64_t begun = read(line.begun);
  if (ended != line.seen_ended || begun != line.seen_begun || begun == ended) line.seen_at = now;
  has_moved_ = has_moved_ || ended != line.seen_ended || begun != line.seen_begun;
  for (; line.seen_ended != ended; ++line.seen_ended) {
    const UnderWay& first = line.under_way.front();
    answer(make_outcome(WorkerMessage::kEnded, first.operation, first.status));
    line.under_way.pop_front();
    --under_way_;
  }
  line.seen_begun = begun;
  // A sticky error leaves the counters as they are, and is told by whatever is called.
  if (Status health = line.stream->is_idle().status(); !health.is_ok()) return stop(health);
  if (begun != ended && now - line.seen_at > timeout_ms_) {
    stop({Code::kTimeout, "a batch that has begun on " + device_->facts().name +
                              " has not ended in " + std::to_string(timeout_ms_) +
                              " ms: the device is taken for lost"});
  }
}

void Worker::flush() {
  while (!outgoing_.empty() && socket_.send(outgoing_.front()) == PacketSocket::Io::kDone) {
    outgoing_.pop_front();
  }
}

void Worker::stop(const Status& why) {
  if (std::exchange(is_over_, true)) return;
  over_ = why;
  answer(make_outcome(WorkerMessage::kLost, 0, why));
}

}  // namespace rueda::gpu
