#include "daemon/gpu/worker/worker.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

namespace rueda::gpu {
namespace {

constexpr size_t kCallsOfALine = 65536;
constexpr int kMessagesOfATurn = 64;
// keeps counters of different streams in different cache lines
constexpr size_t kCounterStride = 64;
constexpr TicksMs kMaxSilenceMs = 500;

uint64_t read(uint64_t* counter) {
  return std::atomic_ref(*counter).load(std::memory_order_acquire);
}

}  // namespace

Worker::Worker(UniqueFd socket, OpenDevice open)
    : socket_(std::move(socket)), devices_(std::move(open)) {}

Worker::~Worker() {
  members_.clear();
  for (auto& line : lines_) line.reset();
  for (const auto& [number, memory] : memories_) removed_.push_back(memory);
  put_joins_first(removed_);
  for (const Memory& memory : removed_) {
    // On a lost device only the mapping can be released.
    static_cast<void>(release(memory));
  }
}

Status Worker::broken(const std::string& what) {
  return {Code::kInternal, "the daemon has told a GPU worker what cannot be: " + what};
}

bool Worker::turn(TicksMs now) {
  if (is_over_) return false;
  has_moved_ = false;
  now_ = now;
  const bool is_there = receive();
  for (auto& line : lines_) {
    if (is_over_ || !line) break;
    make_calls(*line);
    if (!is_over_) look_at(*line, now);
  }
  if (!is_over_ && under_way_ > 0) look_at_communicators(now);
  if (!is_over_ && under_way_ == 0) release_removed();
  if (!is_over_ && !to_be_added_.empty()) give_up_adding();
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
  if ((type == WorkerMessage::kOpen) == devices_.is_open()) {
    return broken("the device is to be opened first, and once");
  }
  switch (type) {
    case WorkerMessage::kOpen: return open(packet);
    case WorkerMessage::kAddMemory: return add_memory(packet);
    case WorkerMessage::kJoinMemory: return join_memory(packet);
    case WorkerMessage::kMakeId: return make_id(packet);
    case WorkerMessage::kConnect: return connect(packet);
    case WorkerMessage::kDisconnect: return disconnect(packet);
    case WorkerMessage::kAcross: return across(packet);
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
  const Status opened = devices_.open(wanted, kMaxWorkerStreams * Devices::kMost * kCounterStride);
  if (!opened.is_ok()) return opened;
  if (Status status = make_streams(0); !status.is_ok()) return status;
  say_ready(devices_.at(0).facts());
  return Status::ok();
}

Status Worker::make_streams(size_t gpu) {
  for (uint32_t stream = 0; stream < kMaxWorkerStreams; ++stream) {
    auto& line = lines_[stream];
    if (!line) {
      line = std::make_unique<Line>();
      line->begun = word(stream, 0, 0);
      line->ended = word(stream, 0, 1);
      line->shared_out = word(stream, 0, 2);
    }
    Result<std::unique_ptr<Stream>> made = devices_.at(gpu).make_stream(Priority::kLow);
    if (!made.is_ok()) return made.status();
    line->tracks.push_back(
        std::make_unique<Track>(Track{std::move(made).value(), {}, word(stream, gpu, 0)}));
  }
  return Status::ok();
}

void Worker::say_ready(const DeviceFacts& facts) {
  ReadyBody ready;
  std::memcpy(ready.name.data(), facts.name.data(),
              std::min(facts.name.size(), ready.name.size() - 1));
  ready.uuid = facts.uuid;
  ready.has_mps = facts.has_mps ? 1 : 0;
  Packet packet(WorkerMessage::kReady);
  answer(std::move(packet.add(ready)));
}

// The words are in memory that all GPUs have pinned.
uint64_t* Worker::word(uint32_t stream, size_t gpu, size_t index) const {
  const size_t row = stream * Devices::kMost + gpu;
  return reinterpret_cast<uint64_t*>(devices_.host() + row * kCounterStride) + index;
}

Result<Worker::Line*> Worker::line(uint32_t stream) {
  if (stream >= kMaxWorkerStreams) return broken("a stream beyond the last");
  return lines_[stream].get();
}

Status Worker::queue(Track& track, Call call) {
  if (track.calls.size() >= kCallsOfALine) return broken("more commands than one stream may have");
  track.calls.push_back(std::move(call));
  return Status::ok();
}

Result<Worker::Target> Worker::device_memory(const Place& place, uint64_t bytes) const {
  const auto found = memories_.find(place.memory);
  if (found == memories_.end() || found->second.kind == MemoryKind::kHost ||
      place.offset > found->second.bytes || bytes > found->second.bytes - place.offset) {
    return Status(Code::kNotFound, "there is no device memory " + std::to_string(place.memory) +
                                       " with " + std::to_string(bytes) + " bytes at " +
                                       std::to_string(place.offset));
  }
  return Target{found->second.id, place.offset};
}

Result<DeviceAddress> Worker::device_address(const Place& place, uint64_t bytes) const {
  const Result<Target> found = device_memory(place, bytes);
  if (!found.is_ok()) return found.status();
  return devices_.address(found.value().memory, 0) + found.value().offset;
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
    // If the counter has its value, everything written before it is visible to all later launches.
    const bool is_reached = static_cast<int64_t>(read(at) - value) >= 0;
    return is_reached ? Status::ok() : stream.wait_value(at, value);
  });
}

void Worker::open_operation(Line& line) {
  if (!std::exchange(line.is_open, true)) ++under_way_;
}

// Marks the beginning of an operation behind its waits: only from there on the device takes time.
Status Worker::begin(Line& line) {
  open_operation(line);
  if (std::exchange(line.has_begun, true)) return Status::ok();
  return queue(line, [at = line.begun, value = line.queued + 1](Stream& stream) {
    return stream.write_value(at, value);
  });
}

Status Worker::queue_work(Line& line, Call call) {
  return queue(line, [&line, call = std::move(call)](Stream& stream) {
    if (!line.failed.is_ok()) return Status::ok();  // an operation ends with its first error
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
  std::vector<CounterValue> writes;
  for (uint32_t i = 0; i < body.writes; ++i) {
    CounterWrite write;
    if (!packet.take(write)) return broken("counters that are cut off");
    const Result<uint64_t*> at = counter(write.counter);
    if (!at.is_ok()) return broken(at.status().message());
    writes.push_back({at.value(), write.value});
  }
  if (!packet.is_taken()) return broken("too many counters");
  return queue(*found.value(), [writes = std::move(writes)](Stream& stream) {
    return stream.write_values(writes);
  });
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

// A call of one GPU may be what the next call of another has waited for.
void Worker::make_calls(Line& line) {
  bool has_made = true;
  while (has_made && !is_over_) {
    has_made = false;
    for (size_t gpu = 0; gpu < line.tracks.size() && !is_over_; ++gpu) {
      has_made |= make_calls_of(line, gpu);
    }
    has_moved_ |= has_made;
  }
}

bool Worker::make_calls_of(Line& line, size_t gpu) {
  Track& track = *line.tracks[gpu];
  bool has_made = false;
  while (!track.calls.empty()) {
    const Status status = track.calls.front()(*track.stream);
    if (!status.is_ok()) {
      if (Status health = devices_.at(gpu).health(); !health.is_ok()) {
        stop(health);
        return has_made;
      }
      if (status.code() == Code::kUnavailable) return has_made;  // the stream has much queued
      if (line.failed.is_ok()) line.failed = status;
    }
    track.calls.pop_front();
    has_made = true;
  }
  return has_made;
}

// Returns the name of a GPU whose part of a shared launch is not done, or else the name of the
// first.
std::string Worker::late_gpu(const Line& line) {
  const auto name = [this](size_t gpu) {
    const DeviceFacts& facts = devices_.at(gpu).facts();
    return facts.name + " (GPU " + std::to_string(facts.ordinal) + ')';
  };
  for (size_t gpu = 1; gpu < line.tracks.size(); ++gpu) {
    if (read(line.tracks[gpu]->done) < line.tracks[gpu]->told) return name(gpu);
  }
  return name(0);
}

void Worker::look_at(Line& line, TicksMs now) {
  if (line.queued == line.seen_ended && line.tracks[0]->calls.empty()) return;
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
  // A sticky error leaves the counters as they are, and is returned by any call.
  for (const auto& track : line.tracks) {
    if (Status health = track->stream->is_idle().status(); !health.is_ok()) return stop(health);
  }
  if (begun != ended && !line.goes_across && now - line.seen_at > timeout_ms_) {
    stop({Code::kTimeout, "a batch that has begun on " + late_gpu(line) + " has not ended in " +
                              std::to_string(timeout_ms_) + " ms: the device is taken for lost"});
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
