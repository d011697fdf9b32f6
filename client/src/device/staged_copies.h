// Pinned host memory through which tensors go whose device memory the GPU worker cannot open: of a
// client in another container, for example. A tensor has one block, which the worker reads and
// writes where the tensor would be; streams copy between the two.
//
// Whoever gives a block back need not wait for streams that are behind: each block says in its
// first words what streams have done with it, and is used again when all of that has come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "client/src/device/driver.h"
#include "client/src/wire/arena.h"
#include "daemon/base/status.h"

namespace rueda::client {

// Thread-safe; a block belongs to whoever has taken it.
class StagedCopies {
 public:
  // How the daemon is told.
  struct Registrar {
    // The GPU worker maps a memfd, whole: the memory's id.
    std::function<Result<uint32_t>(int memfd, uint64_t bytes)> add;
    std::function<Status(uint32_t id)> remove;
  };

  // Of a result: 0 for whoever is to copy it out, because nobody has asked before.
  using Turn = uint32_t;
  // More streams do not wait for one result.
  static constexpr Turn kMostTurns = 63;

  class Block {
   public:
    uint32_t memory_id() const { return memory_id_; }
    uint64_t offset() const { return offset_; }
    Turn claim_result() { return turns_ < kMostTurns ? turns_++ : kMostTurns; }
    bool is_result_claimed() const { return turns_ > 0; }

   private:
    friend class StagedCopies;
    std::byte* head_ = nullptr;    // the words; the data are behind
    uint64_t head_on_device_ = 0;  // where streams have it
    uint32_t memory_id_ = 0;
    uint64_t offset_ = 0;  // of the data
    bool is_copied_in_ = false;
    Turn turns_ = 0;
  };

  // The driver outlives it. At most `most_bytes` are pinned.
  StagedCopies(DeviceDriver& driver, Registrar registrar, uint64_t most_bytes)
      : driver_(driver), registrar_(std::move(registrar)), most_bytes_(most_bytes) {}
  // What no stream has to do with any more is unpinned; the rest stays, for good.
  ~StagedCopies();
  StagedCopies(const StagedCopies&) = delete;
  StagedCopies& operator=(const StagedCopies&) = delete;

  // Nothing: not before others have been given back. kResourceExhausted: there is never so much.
  // Asks the daemon when more memory is to be pinned.
  Result<std::optional<Block>> take(size_t bytes);
  void give_back(const Block& block);
  // Blocks that are taken, or that streams are still at.
  size_t taken();

  // In the order of the stream; RUEDA_NO_STREAM: of one of ours, at once. The block has room.
  Status copy_in(Block& block, uint64_t from, size_t bytes, void* stream);
  // Likewise, by the turn that claim_result() gave: a later stream waits for the first one's copy.
  // kResourceExhausted: there are too many.
  Status copy_out(const Block& block, Turn turn, uint64_t to, size_t bytes, void* stream);
  // The stream on which a copy in was asked for.
  Result<void*> stream_of(void* stream);
  // Until the copies on our stream are done.
  Status finish();

 private:
  struct Arena {
    Arena(std::unique_ptr<ArenaMemory> pages, uint64_t at_on_device)
        : memory(std::move(pages)), space(memory->bytes()), on_device(at_on_device) {}
    std::unique_ptr<ArenaMemory> memory;
    FreeSpace space;
    const uint64_t on_device;
    uint32_t id = 0;
  };

  std::optional<Block> take_there(size_t bytes);
  // False: there may be no more.
  Result<bool> grow(size_t bytes);
  // Whether any was.
  bool drop_idle_arenas();
  // Of blocks that were given back, those that streams are done with.
  void sweep_locked();
  static bool is_idle(const Block& block);
  // For good.
  static void keep(std::unique_ptr<Arena> arena);

  DeviceDriver& driver_;
  const Registrar registrar_;
  const uint64_t most_bytes_;
  std::mutex grow_mutex_;  // held while the daemon is asked
  std::mutex mutex_;
  std::vector<std::unique_ptr<Arena>> arenas_;
  uint64_t pinned_bytes_ = 0;
  std::vector<Block> given_back_;
  size_t taken_ = 0;
  void* own_stream_ = nullptr;
};

}  // namespace rueda::client
