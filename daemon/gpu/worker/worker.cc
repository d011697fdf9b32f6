#include "daemon/gpu/worker/worker.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>

#include "daemon/base/os/shared_mapping.h"
#include "daemon/gpu/worker/parts.h"

namespace rueda::gpu {
namespace {

constexpr size_t kCallsOfALine = 65536;
constexpr int kMessagesOfATurn = 64;
// It keeps counters of different streams in different cache lines.
constexpr size_t kCounterStride = 64;
constexpr TicksMs kMaxSilenceMs = 500;

uint64_t read(uint64_t* counter) {
  return std::atomic_ref(*counter).load(std::memory_order_acquire);
}

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
    if (!line.failed.is_ok()) return Status::ok();  // An operation ends with its first error.
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
      if (status.code() == Code::kUnavailable) return has_made;  // The stream has much queued.
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

// --- Communicators: from the first device to those of other nodes --------------------------------

Status Worker::make_id(Packet& packet) {
  CommunicatorBody body;
  if (!packet.take(body) || !packet.is_taken()) return broken("a communicator to be made");
  const Result<CommunicatorId> id = devices_.at(0).make_communicator_id();
  Packet reply(WorkerMessage::kIdMade);
  reply.add(id.is_ok() ? id.value() : CommunicatorId{});
  add_outcome(reply, body.communicator, id.status());
  answer(std::move(reply));
  return Status::ok();
}

Status Worker::connect(Packet& packet) {
  ConnectBody body;
  if (!packet.take(body) || !packet.is_taken() || body.size < 1 || body.rank < 0 ||
      body.rank >= body.size || members_.contains(body.communicator)) {
    return broken("a communicator to be connected");
  }
  if (members_.size() >= kMaxCommunicators) {
    return broken("more than " + std::to_string(kMaxCommunicators) + " communicators");
  }
  auto made = devices_.at(0).connect(body.id, body.rank, body.size);
  Member& member = members_[body.communicator];
  member.failed = made.status();
  // The code must not be kUnavailable, because calls that return it are made again.
  if (member.failed.code() == Code::kUnavailable) {
    member.failed = {Code::kNotFound, member.failed.message()};
  }
  if (made.is_ok()) member.communicator = std::move(made).value();
  member.size = body.size;
  member.timeout_ms = body.timeout_ms;
  return Status::ok();
}

Status Worker::disconnect(Packet& packet) {
  CommunicatorBody body;
  if (!packet.take(body) || !packet.is_taken() || members_.erase(body.communicator) == 0) {
    return broken("a communicator to be left");
  }
  return Status::ok();
}

Status Worker::across(Packet& packet) {
  AcrossBody body;
  if (!packet.take(body) || !packet.is_taken() || body.dtype >= kDTypeCount ||
      body.op >= kElementwiseOpCount) {
    return broken("what is to go across");
  }
  const auto dtype = static_cast<DType>(body.dtype);
  const auto found = members_.find(body.communicator);
  if (found == members_.end() || body.root >= found->second.size) {
    return broken("a communicator that is not there");
  }
  const Member& member = found->second;
  const Result<Line*> line_there = line(body.stream);
  if (!line_there.is_ok()) return line_there.status();
  Line& own = *line_there.value();
  own.goes_across = true;
  if (Status status = begin(own); !status.is_ok()) return status;
  const uint64_t size = element_bytes(dtype);
  const uint64_t bytes = std::min(body.count, UINT64_MAX / size) * size;
  const Result<DeviceAddress> at = device_address(body.at, bytes);
  const Status failed = member.failed.is_ok() ? at.status() : member.failed;
  if (!failed.is_ok()) return queue_work(own, [failed](Stream&) { return failed; });
  return queue_work(own, [communicator = member.communicator.get(), at = at.value(), body, bytes,
                          dtype](Stream& stream) {
    if (body.root >= 0) return communicator->broadcast(stream, at, bytes, body.root);
    return communicator->all_reduce(stream, at, body.count, dtype, static_cast<ReduceOp>(body.op));
  });
}

// Work on a stream may never end once a communicator has failed.
void Worker::look_at_communicators(TicksMs now) {
  for (auto& [number, member] : members_) {
    if (is_over_ || !member.communicator) continue;
    const Status health = member.communicator->health();
    if (health.is_ok()) {
      has_moved_ = has_moved_ || !member.is_there;
      member.is_there = true;
    } else if (health.code() != Code::kUnavailable) {
      stop(health);
    } else if (!member.since) {
      member.since = now;
    } else if (!member.is_there && now - *member.since > member.timeout_ms) {
      stop({Code::kTimeout, "the GPUs of " + std::to_string(member.size) +
                                " nodes have not found each other in " +
                                std::to_string(member.timeout_ms) + " ms: " + health.message()});
    }
  }
}

// --- Memory: what is opened, joined and closed ---------------------------------------------------

Status Worker::add_memory(Packet& packet) {
  AddMemoryBody body;
  if (!packet.take(body) || !packet.is_taken() || body.kind > MemoryKind::kMapped ||
      body.kind == MemoryKind::kJoined) {
    return broken("memory that is added");
  }
  if (memories_.contains(body.memory)) return broken("memory that is there already");
  const Result<Memory> made = make(body, packet.fd.get());
  // Memory that is yet to be closed may be in the way: the same allocation, which cannot be opened
  // twice, or a freed one whose addresses the new memory has.
  if (made.status().code() == Code::kPermission && !removed_.empty()) {
    to_be_added_.push_back({body, std::move(packet.fd), made.status(), now_});
    return Status::ok();
  }
  return answer_memory(body.memory, made);
}

Status Worker::answer_memory(uint32_t number, const Result<Memory>& made) {
  if (made.is_ok()) {
    memories_.emplace(number, made.value());
    for (const Devices::MemoryId piece : made.value().pieces) ++joined_[piece];
  }
  if (Status health = devices_.health(); !health.is_ok()) return health;
  if (made.is_ok() && made.value().kind == MemoryKind::kScratch) say_exported(number, made.value());
  answer(make_outcome(WorkerMessage::kMemoryAdded, number, made.status()));
  return Status::ok();
}

void Worker::say_exported(uint32_t number, const Memory& scratch) {
  Result<DmaBuf> exported = devices_.export_dma_buf(scratch.id);
  Packet packet(WorkerMessage::kExported);
  ExportedBody body;
  if (exported.is_ok()) {
    body = {.offset = exported.value().offset, .bytes = exported.value().bytes};
    packet.fd = std::move(exported.value().fd);
  }
  packet.add(body);
  add_outcome(packet, number, exported.status());
  answer(std::move(packet));
}

Status Worker::check_room() const {
  if (memories_.size() + removed_.size() < kMaxWorkerMemories) return Status::ok();
  return {Code::kResourceExhausted,
          "a GPU worker has " + std::to_string(kMaxWorkerMemories) +
              " pieces of memory open, and takes no more: let the allocator have fewer and larger "
              "ones"};
}

Status Worker::join_memory(Packet& packet) {
  JoinMemoryBody body;
  if (!packet.take(body) || body.pieces > kMaxMessageBytes / sizeof(uint32_t)) {
    return broken("memory that is joined");
  }
  std::vector<uint32_t> numbers(body.pieces);
  if (!packet.take_bytes(numbers.data(), numbers.size() * sizeof(uint32_t)) || !packet.is_taken() ||
      memories_.contains(body.memory)) {
    return broken("memory that is joined");
  }
  return answer_memory(body.memory, make_joined(numbers));
}

Result<Worker::Memory> Worker::make_joined(std::span<const uint32_t> numbers) {
  if (Status status = check_room(); !status.is_ok()) return status;
  Memory joined{.kind = MemoryKind::kJoined};
  for (const uint32_t number : numbers) {
    const auto found = memories_.find(number);
    if (found == memories_.end() || found->second.kind != MemoryKind::kFd) {
      return Status(Code::kInvalidArgument, "there is no memory " + std::to_string(number) +
                                                " that came by a descriptor, to be joined");
    }
    joined.pieces.push_back(found->second.id);
    joined.bytes += found->second.bytes;
  }
  const Result<Devices::MemoryId> id = devices_.join(joined.pieces);
  if (!id.is_ok()) return id.status();
  joined.id = id.value();
  return joined;
}

Result<Worker::Memory> Worker::make(const AddMemoryBody& wanted, int fd) {
  if (Status status = check_room(); !status.is_ok()) return status;
  if (wanted.kind == MemoryKind::kHost || wanted.kind == MemoryKind::kMapped) {
    return map_host(wanted, fd);
  }
  if (wanted.kind == MemoryKind::kScratch) {
    const Result<Devices::MemoryId> id = devices_.allocate(wanted.bytes);
    if (!id.is_ok()) return id.status();
    return Memory{.kind = wanted.kind, .id = id.value(), .bytes = wanted.bytes};
  }
  MemoryHandle handle{.ipc = wanted.ipc, .bytes = wanted.bytes};
  if (wanted.kind == MemoryKind::kFd) {
    handle.sharing = Sharing::kFd;
    handle.fd = fd;
    if (fd < 0) return Status(Code::kInvalidArgument, "device memory came without its descriptor");
  }
  const size_t open = devices_.count();
  const Result<size_t> gpu = devices_.find_or_open(wanted.uuid);
  if (!gpu.is_ok()) return cannot_open(gpu.status());
  if (devices_.count() > open) {
    if (Status status = make_streams(gpu.value()); !status.is_ok()) {
      stop(status);
      return status;
    }
    say_ready(devices_.at(gpu.value()).facts());
  }
  const Result<Devices::MemoryId> id = devices_.import_memory(gpu.value(), handle);
  if (!id.is_ok()) return cannot_open(id.status());
  return Memory{.kind = wanted.kind, .id = id.value(), .bytes = wanted.bytes, .ipc = wanted.ipc};
}

// Returns kPermission for memory that may well exist, but that this process cannot open, because
// drivers have many codes for that. A lack of memory and a lost device keep their codes.
Status Worker::cannot_open(const Status& why) {
  if (why.code() == Code::kResourceExhausted || why.code() == Code::kUnavailable) return why;
  if (why.code() == Code::kPermission) return why;
  return {Code::kPermission, "the GPU worker cannot open this device memory: " + why.message()};
}

Result<Worker::Memory> Worker::map_host(const AddMemoryBody& wanted, int fd) {
  const uint64_t bytes = wanted.bytes;
  struct stat facts {};
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (fd < 0 || seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(fd, &facts) != 0 ||
      bytes == 0 || static_cast<uint64_t>(facts.st_size) < bytes) {
    return Status(Code::kInvalidArgument,
                  "memory to be pinned is no memfd of its size that is sealed against shrinking");
  }
  std::byte* const host = map_shared(fd, bytes);
  if (host == nullptr) {
    return Status(Code::kResourceExhausted,
                  std::string("memory cannot be mapped: ") + std::strerror(errno));
  }
  Memory memory{.kind = wanted.kind, .host = host, .bytes = bytes};
  Status status;
  if (wanted.kind == MemoryKind::kHost) {
    status = devices_.at(0).register_host({host, bytes});
  } else {
    const Result<Devices::MemoryId> id = devices_.map_host({host, bytes});
    status = id.status();
    if (id.is_ok()) memory.id = id.value();
  }
  if (status.is_ok()) return memory;
  unmap_guarded(host, bytes);
  return status;
}

Status Worker::remove_memory(Packet& packet) {
  RemoveMemoryBody body;
  if (!packet.take(body) || !packet.is_taken()) return broken("memory that is removed");
  const auto found = memories_.find(body.memory);
  if (found == memories_.end()) return broken("memory is removed that is not there");
  removed_.push_back(found->second);
  memories_.erase(found);
  return Status::ok();
}

bool Worker::is_joined(const Memory& memory) const {
  return memory.kind == MemoryKind::kFd && joined_.contains(memory.id);
}

Status Worker::release(const Memory& memory) {
  for (const Devices::MemoryId piece : memory.pieces) {
    const auto found = joined_.find(piece);
    if (--found->second == 0) joined_.erase(found);
  }
  Status status;
  if (memory.kind != MemoryKind::kHost) status = devices_.close(memory.id);
  if (memory.host == nullptr) return status;
  if (memory.kind == MemoryKind::kHost) status = devices_.at(0).unregister_host(memory.host);
  unmap_guarded(memory.host, memory.bytes);
  return status;
}

void Worker::release_removed() {
  std::vector<Memory> removed = std::exchange(removed_, {});
  put_joins_first(removed);
  for (Memory& memory : removed) {
    if (is_joined(memory)) {
      removed_.push_back(std::move(memory));
    } else if (Status status = release(memory); !status.is_ok()) {
      return stop(status);
    }
  }
  for (const ToBeAdded& next : std::exchange(to_be_added_, {})) {
    const Status status = answer_memory(next.wanted.memory, make(next.wanted, next.fd.get()));
    if (!status.is_ok()) return stop(status);
  }
}

void Worker::give_up_adding() {
  constexpr TicksMs kPatienceMs = 5'000;
  std::erase_if(to_be_added_, [this](const ToBeAdded& next) {
    if (now_ - next.since < kPatienceMs) return false;
    answer(make_outcome(WorkerMessage::kMemoryAdded, next.wanted.memory, next.why));
    return true;
  });
}

void Worker::put_joins_first(std::vector<Memory>& memories) {
  std::stable_partition(memories.begin(), memories.end(),
                        [](const Memory& memory) { return memory.kind == MemoryKind::kJoined; });
}

// --- Launches: what a batch consists of, and which GPU does what ---------------------------------

// A batch that has been read, with places in memory that is open.
struct Worker::Received {
  Batch batch;  // It has no segments.
  size_t partials = 0;
  size_t sources = 0;
  size_t destinations = 0;
  std::vector<uint64_t> counts;  // The index is the segment.
  std::vector<Target> targets;   // For each segment: the partial, the sources, the destinations.
  Status failed;                 // The first error of a place.

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
