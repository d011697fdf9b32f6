// Pinned host memory for tensors whose device memory the GPU worker cannot open, because the client
// is in another container, for example. Each tensor has one block, which the worker reads and
// writes in place of the tensor; streams copy between the two.
//
// A block may be given back while streams still lag behind: its first words record what streams
// have done with it, and it is used again only when they have done all of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "client/src/device/driver.h"
#include "client/src/wire/arena.h"
#include "daemon/base/mutex.h"
#include "daemon/base/status.h"

namespace rueda::client {

// This class is thread-safe; a block belongs to whoever has taken it.
class StagedCopies {
 public:
  // The calls that tell the daemon of pinned memory.
  struct Registrar {
    // Has the GPU worker map a whole memfd, and returns the memory's id.
    std::function<Result<uint32_t>(int memfd, uint64_t bytes)> add;
    std::function<Status(uint32_t id)> remove;
  };

  // The position of a request for a block's result. Turn 0 is the first request, which has to copy
  // the result out.
  using Turn = uint32_t;
  // The most streams that may wait for one result.
  static constexpr Turn kMaxTurns = 63;

  class Block {
   public:
    uint32_t memory_id() const { return memory_id_; }
    uint64_t offset() const { return offset_; }
    Turn claim_result() { return turns_ < kMaxTurns ? turns_++ : kMaxTurns; }
    bool is_result_claimed() const { return turns_ > 0; }

   private:
    friend class StagedCopies;
    std::byte* head_ = nullptr;    // the block's control words; the data follow them
    uint64_t head_on_device_ = 0;  // the address of the words on the device
    uint32_t memory_id_ = 0;
    uint64_t offset_ = 0;  // of the data, in bytes from the start of the memory
    bool is_copied_in_ = false;
    Turn turns_ = 0;
  };

  // The driver must outlive this object. At most `max_bytes` are pinned.
  StagedCopies(DeviceDriver& driver, Registrar registrar, uint64_t max_bytes)
      : driver_(driver), registrar_(std::move(registrar)), max_bytes_(max_bytes) {}
  // Unpins the memory that no stream will touch any more; the rest stays pinned until the process
  // ends.
  ~StagedCopies();
  StagedCopies(const StagedCopies&) = delete;
  StagedCopies& operator=(const StagedCopies&) = delete;

  // Takes a block for `bytes` bytes. Returns nullopt if there is no room until other blocks have
  // been given back, and kResourceExhausted if there is never so much room. It asks the daemon if
  // more memory has to be pinned.
  Result<std::optional<Block>> take(size_t bytes);
  void give_back(const Block& block);
  // Returns the number of blocks that are taken, or that streams still use.
  size_t taken();

  // Copies from the device into the block, in the order of the stream; with RUEDA_NO_STREAM on a
  // stream of this object's, at once. The data must fit the block.
  Status copy_in(Block& block, uint64_t from, size_t bytes, void* stream);
  // Copies from the block to the device, in the order of the stream. `turn` is what claim_result()
  // returned: a later stream waits for the first one's copy. Returns kResourceExhausted if too many
  // streams wait.
  Status copy_out(const Block& block, Turn turn, uint64_t to, size_t bytes, void* stream);
  // Returns the stream that copy_in() uses for this `stream`.
  Result<void*> stream_of(void* stream);
  // Waits until the copies on this object's own stream are done.
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
  // Pins more memory. Returns false if no more may be pinned.
  Result<bool> grow(size_t bytes) RUEDA_REQUIRES(grow_mutex_);
  // Unpins arenas without blocks. Returns true if there were any.
  bool drop_idle_arenas() RUEDA_REQUIRES(grow_mutex_);
  // Frees those blocks among the ones given back that streams are done with.
  void sweep() RUEDA_REQUIRES(mutex_);
  static bool is_idle(const Block& block);
  // Keeps an arena until the process ends.
  static void keep(std::unique_ptr<Arena> arena);

  DeviceDriver& driver_;
  const Registrar registrar_;
  const uint64_t max_bytes_;
  Mutex grow_mutex_;  // held while the daemon is asked
  Mutex mutex_;
  std::vector<std::unique_ptr<Arena>> arenas_ RUEDA_GUARDED_BY(mutex_);
  uint64_t pinned_bytes_ RUEDA_GUARDED_BY(grow_mutex_) = 0;
  std::vector<Block> given_back_ RUEDA_GUARDED_BY(mutex_);
  size_t taken_ RUEDA_GUARDED_BY(mutex_) = 0;
  void* own_stream_ RUEDA_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace rueda::client
