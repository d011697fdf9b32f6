// Allocates memory that the daemon sees: blocks in arenas, 64-byte aligned, by best fit over all
// arenas. It serves rueda_alloc and the staging of foreign memory. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "client/src/wire/arena.h"
#include "daemon/base/mutex.h"
#include "daemon/base/status.h"

namespace rueda::client {

// A new arena has at least this many bytes, and at least an eighth of what is mapped already, so
// that the number of arenas grows with the logarithm of the memory used.
inline constexpr size_t kMinArenaBytes = size_t{16} << 20;
// Arenas without a live block are kept for the next allocation, because pre-faulting is slow, until
// together they exceed this.
inline constexpr size_t kMaxIdleBytes = size_t{512} << 20;

// A place in memory, as the daemon addresses it.
struct Place {
  uint32_t arena_id = 0;
  uint64_t offset = 0;
};

struct Block {
  std::byte* data = nullptr;
  Place place;
};

class ArenaAllocator {
 public:
  // The calls that tell the daemon of arenas. They are made without the allocator's lock.
  struct Registrar {
    std::function<Result<uint32_t>(int memfd, uint64_t bytes)> add;
    std::function<Status(uint32_t arena_id)> remove;
  };

  // With kKeep the descriptors of arenas stay open, so that the allocator can rest and resume.
  enum class Descriptors { kClose, kKeep };
  explicit ArenaAllocator(Registrar registrar, Descriptors descriptors = Descriptors::kClose)
      : descriptors_(descriptors), registrar_(std::move(registrar)) {}

  // Allocates a block, which is not zeroed; bytes may be 0. If no arena has room, it creates and
  // registers one.
  Result<Block> allocate(size_t bytes);
  // Frees the block that begins at `data`, or returns kNotFound if no block begins there. With
  // kMayReturn, an arena that is left without a block is returned to the system if kMaxIdleBytes is
  // exceeded (which asks the daemon, and waits for its answer).
  enum class IfIdle { kKeep, kMayReturn };
  Status free(void* data, IfIdle if_idle);
  // Returns the size of the block that begins at data, rounded up to the alignment.
  std::optional<size_t> block_bytes(const void* data) const;

  // Finds the place of the caller's memory. Returns nullopt if it is foreign (in no arena), and
  // kInvalidArgument if it lies in an arena, but not inside one block.
  Result<std::optional<Place>> locate(const void* data, size_t bytes) const;

  // Ends registration, because the session is over: unmaps the idle arenas now, and every other one
  // as soon as its last block is freed. The registrar is not called any more.
  void retire();
  // The session is over, and another one will follow: nothing is allocated, and the registrar is
  // not called, until resume().
  void rest();
  // Hands all arenas to the daemon of the session that follows. What it refuses is foreign memory
  // from now on, and goes with its last block. Returns false if the session has ended before all
  // have been handed over: the rest is foreign memory until the next resume().
  bool resume(Registrar registrar);
  // True if no block is live.
  bool is_idle() const;
  uint64_t mapped_bytes() const;

 private:
  struct Arena {
    explicit Arena(std::unique_ptr<ArenaMemory> pages)
        : memory(std::move(pages)), space(memory->bytes()) {}
    std::unique_ptr<ArenaMemory> memory;
    FreeSpace space;
    uint32_t id = 0;
    bool is_leaving = false;  // being taken back from the daemon: gets no new blocks
    bool is_known = true;     // the daemon has it
    bool is_refused = false;  // no daemon will ever have it again
  };
  using Arenas = std::map<const std::byte*, std::unique_ptr<Arena>>;

  std::optional<Block> take(size_t bytes) RUEDA_REQUIRES(mutex_);
  Result<std::unique_ptr<Arena>> make_arena(size_t bytes);
  // Returns the arena that contains this address, or end().
  Arenas::const_iterator find(const void* data) const RUEDA_REQUIRES(mutex_);
  uint64_t idle_bytes() const RUEDA_REQUIRES(mutex_);
  Status give_back(const std::byte* base, uint32_t arena_id);

  // Unmaps the idle arenas that the daemon has refused.
  void drop_refused() RUEDA_REQUIRES(mutex_);

  enum class State { kServing, kResting, kRetired };

  const Descriptors descriptors_;
  Registrar registrar_;  // resume() changes it while nobody allocates
  mutable Mutex mutex_;
  Arenas arenas_ RUEDA_GUARDED_BY(mutex_);
  uint64_t mapped_bytes_ RUEDA_GUARDED_BY(mutex_) = 0;
  State state_ RUEDA_GUARDED_BY(mutex_) = State::kServing;
};

}  // namespace rueda::client
