// Opening, joining and closing the memory of a GPU worker.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>

#include "daemon/base/shared_mapping.h"
#include "daemon/gpu/worker/worker.h"

namespace rueda::gpu {

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
  answer(make_outcome(WorkerMessage::kMemoryAdded, number, made.status()));
  return Status::ok();
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

}  // namespace rueda::gpu
