// Memory that the daemon sees: blocks in arenas, 64-byte aligned, best fit over all arenas. Serves
// rueda_alloc and the staging of foreign memory. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "client/src/wire/arena.h"
#include "daemon/base/status.h"

namespace rueda::client {

// A new arena has at least this many bytes, and at least an eighth of what is mapped already, so
// that the number of arenas grows with the logarithm of the memory used.
inline constexpr size_t kMinArenaBytes = size_t{16} << 20;
// Arenas without a live block are kept for the next allocation (pre-faulting is slow) until
// together they exceed this.
inline constexpr size_t kMaxIdleBytes = size_t{512} << 20;

// Where the daemon finds a piece of memory.
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
  // How the daemon learns of arenas. Called without the allocator's lock held.
  struct Registrar {
    std::function<Result<uint32_t>(int memfd, uint64_t bytes)> add;
    std::function<Status(uint32_t arena_id)> remove;
  };

  explicit ArenaAllocator(Registrar registrar) : registrar_(std::move(registrar)) {}

  // Not zeroed. bytes may be 0. Makes and registers an arena when none has room.
  Result<Block> allocate(size_t bytes);
  // Ends a block; data is its beginning. kNotFound if no block begins there. With kMayReturn, an
  // arena that this leaves without a block goes back to the system if kMaxIdleBytes is exceeded
  // (which asks the daemon, and waits for its answer).
  enum class IfIdle { kKeep, kMayReturn };
  Status free(void* data, IfIdle if_idle);
  // Bytes of the block that begins at data, rounded up to the alignment.
  std::optional<size_t> block_bytes(const void* data) const;

  // Nothing: the memory is foreign. kInvalidArgument: it lies in an arena, but not inside one
  // block.
  Result<std::optional<Place>> locate(const void* data, size_t bytes) const;

  // The session is over: unmaps the idle arenas now and every other one as soon as its last block
  // is freed. The registrar is not called any more.
  void retire();
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
    bool is_leaving = false;  // being taken back from the daemon: no new blocks
  };
  using Arenas = std::map<const std::byte*, std::unique_ptr<Arena>>;

  std::optional<Block> take_locked(size_t bytes);
  Result<std::unique_ptr<Arena>> make_arena(size_t bytes);
  // The arena that holds this address, or end().
  Arenas::const_iterator find_locked(const void* data) const;
  uint64_t idle_bytes_locked() const;
  Status give_back(const std::byte* base, uint32_t arena_id);

  Registrar registrar_;
  mutable std::mutex mutex_;
  Arenas arenas_;
  uint64_t mapped_bytes_ = 0;
  bool is_retired_ = false;
};

}  // namespace rueda::client
