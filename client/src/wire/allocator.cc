#include "client/src/wire/allocator.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <vector>

#include "daemon/base/mutex.h"

namespace rueda::client {
namespace {

constexpr size_t kMaxBlockBytes = size_t{1} << 40;

// Returns whether the daemon has answered, and will not have the memory. Another error says that
// the session is over.
bool is_refusal(const Status& status) {
  return status.code() == Code::kInvalidArgument || status.code() == Code::kResourceExhausted;
}

constexpr size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

Result<Block> ArenaAllocator::allocate(size_t bytes) {
  if (bytes > kMaxBlockBytes) {
    return Status{Code::kResourceExhausted, "an allocation of " + std::to_string(bytes) +
                                                " bytes is beyond the limit of 1 TiB"};
  }
  bytes = round_up(std::max<size_t>(bytes, 1), kBlockAlignmentBytes);
  {
    const MutexLock lock(mutex_);
    if (state_ != State::kServing) return Status{Code::kShutDown, "Rueda has been shut down"};
    if (std::optional<Block> block = take(bytes)) return *block;
  }
  // Pre-faulting takes long, so it is done without the lock. Another thread may create an arena
  // meanwhile.
  Result<std::unique_ptr<Arena>> made = make_arena(bytes);
  if (!made.is_ok()) return made.status();
  std::unique_ptr<Arena> arena = std::move(made).value();
  Block block{.data = arena->memory->data(), .place = {.arena_id = arena->id, .offset = 0}};
  arena->space.take(bytes);
  const MutexLock lock(mutex_);
  mapped_bytes_ += arena->memory->bytes();
  const std::byte* base = block.data;
  arenas_.emplace(base, std::move(arena));
  return block;
}

std::optional<Block> ArenaAllocator::take(size_t bytes) {
  Arena* best = nullptr;
  size_t best_bytes = std::numeric_limits<size_t>::max();
  for (auto& [base, arena] : arenas_) {
    if (arena->is_leaving || !arena->is_known) continue;
    std::optional<size_t> piece_bytes = arena->space.best_fit(bytes);
    if (!piece_bytes || *piece_bytes >= best_bytes) continue;
    best = arena.get();
    best_bytes = *piece_bytes;
  }
  if (best == nullptr) return std::nullopt;
  size_t offset = best->space.take(bytes);
  return Block{.data = best->memory->data() + offset,
               .place = {.arena_id = best->id, .offset = offset}};
}

Result<std::unique_ptr<ArenaAllocator::Arena>> ArenaAllocator::make_arena(size_t bytes) {
  size_t wanted = std::max<size_t>({bytes, kMinArenaBytes, mapped_bytes() / 8});
  auto memory = ArenaMemory::create(round_up(wanted, kPageBytes));
  if (!memory.is_ok()) return memory.status();
  auto arena = std::make_unique<Arena>(std::move(memory).value());
  Result<uint32_t> id = registrar_.add(arena->memory->fd(), arena->memory->bytes());
  if (!id.is_ok()) return id.status();
  arena->id = id.value();
  if (descriptors_ == Descriptors::kClose) arena->memory->close_descriptor();
  return arena;
}

ArenaAllocator::Arenas::const_iterator ArenaAllocator::find(const void* data) const {
  auto address = static_cast<const std::byte*>(data);
  auto after = arenas_.upper_bound(address);
  if (after == arenas_.begin()) return arenas_.end();
  auto arena = std::prev(after);
  if (address >= arena->first + arena->second->memory->bytes()) return arenas_.end();
  return arena;
}

uint64_t ArenaAllocator::idle_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [base, arena] : arenas_) {
    if (arena->space.is_idle()) bytes += arena->memory->bytes();
  }
  return bytes;
}

Status ArenaAllocator::free(void* data, IfIdle if_idle) {
  const std::byte* base = nullptr;
  uint32_t arena_id = 0;
  {
    const MutexLock lock(mutex_);
    auto found = find(data);
    if (found == arenas_.end() ||
        !found->second->space.give(static_cast<const std::byte*>(data) - found->first)) {
      return {Code::kNotFound, "the pointer is not one that rueda_alloc returned"};
    }
    Arena& arena = *found->second;
    if (!arena.space.is_idle() || arena.is_leaving) return Status::ok();
    if (state_ == State::kRetired || arena.is_refused) {
      mapped_bytes_ -= arena.memory->bytes();
      arenas_.erase(found);
      return Status::ok();
    }
    if (if_idle == IfIdle::kKeep || idle_bytes() <= kMaxIdleBytes) return Status::ok();
    // There is no daemon to be asked.
    if (state_ == State::kResting || !arena.is_known) return Status::ok();
    arena.is_leaving = true;
    base = found->first;
    arena_id = arena.id;
  }
  return give_back(base, arena_id);
}

Status ArenaAllocator::give_back(const std::byte* base, uint32_t arena_id) {
  bool is_removed = registrar_.remove(arena_id).is_ok();
  const MutexLock lock(mutex_);
  auto found = arenas_.find(base);
  // If the daemon refuses, because it may still be reading, the arena is kept as it was: idle.
  found->second->is_leaving = false;
  if (!is_removed) return Status::ok();
  mapped_bytes_ -= found->second->memory->bytes();
  arenas_.erase(found);
  return Status::ok();
}

std::optional<size_t> ArenaAllocator::block_bytes(const void* data) const {
  const MutexLock lock(mutex_);
  auto found = find(data);
  if (found == arenas_.end()) return std::nullopt;
  return found->second->space.live_bytes(static_cast<const std::byte*>(data) - found->first);
}

Result<std::optional<Place>> ArenaAllocator::locate(const void* data, size_t bytes) const {
  const MutexLock lock(mutex_);
  auto found = find(data);
  if (found == arenas_.end() || !found->second->is_known) return std::optional<Place>();
  size_t offset = static_cast<const std::byte*>(data) - found->first;
  if (!found->second->space.is_live(offset, bytes)) {
    return Status{Code::kInvalidArgument,
                  "the tensor's memory is not inside one live block of rueda_alloc; was it freed, "
                  "or is the shape too large for it?"};
  }
  return std::optional<Place>({.arena_id = found->second->id, .offset = offset});
}

void ArenaAllocator::rest() {
  const MutexLock lock(mutex_);
  state_ = State::kResting;
}

bool ArenaAllocator::resume(Registrar registrar) {
  registrar_ = std::move(registrar);
  std::vector<Arena*> arenas;
  {
    const MutexLock lock(mutex_);
    for (auto& [base, arena] : arenas_) {
      if (arena->is_refused) continue;
      arena->is_leaving = true;  // Whoever frees its last block leaves it here.
      arenas.push_back(arena.get());
    }
  }
  bool has_all = true;
  for (Arena* const arena : arenas) {
    const Result<uint32_t> id = registrar_.add(arena->memory->fd(), arena->memory->bytes());
    const MutexLock lock(mutex_);
    arena->is_leaving = false;
    arena->is_known = id.is_ok();
    arena->is_refused = is_refusal(id.status());
    arena->id = id.is_ok() ? id.value() : 0;
    has_all &= arena->is_known || arena->is_refused;
  }
  const MutexLock lock(mutex_);
  drop_refused();
  state_ = State::kServing;
  return has_all;
}

void ArenaAllocator::drop_refused() {
  std::erase_if(arenas_, [this](const auto& entry) RUEDA_REQUIRES(mutex_) {
    if (!entry.second->is_refused || !entry.second->space.is_idle()) return false;
    mapped_bytes_ -= entry.second->memory->bytes();
    return true;
  });
}

void ArenaAllocator::retire() {
  const MutexLock lock(mutex_);
  state_ = State::kRetired;
  std::erase_if(arenas_, [this](const auto& entry) RUEDA_REQUIRES(mutex_) {
    if (!entry.second->space.is_idle()) return false;
    mapped_bytes_ -= entry.second->memory->bytes();
    return true;
  });
}

bool ArenaAllocator::is_idle() const {
  const MutexLock lock(mutex_);
  return std::all_of(arenas_.begin(), arenas_.end(),
                     [](const auto& entry) { return entry.second->space.is_idle(); });
}

uint64_t ArenaAllocator::mapped_bytes() const {
  const MutexLock lock(mutex_);
  return mapped_bytes_;
}

}  // namespace rueda::client
