// One arena: a memfd that this process creates, seals and pre-faults, and that the daemon maps too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"

namespace rueda::client {

// Sizes of arenas are rounded up to whole pages.
inline constexpr size_t kPageBytes = 4096;

inline constexpr size_t kBlockAlignmentBytes = 64;

// The memory of an arena. The destructor unmaps it.
class ArenaMemory {
 public:
  // Creates an arena; `bytes` is a multiple of 4096. Every page is touched, so that running out of
  // memory shows here.
  static Result<std::unique_ptr<ArenaMemory>> create(size_t bytes);
  ~ArenaMemory();
  ArenaMemory(const ArenaMemory&) = delete;
  ArenaMemory& operator=(const ArenaMemory&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  int fd() const { return memfd_.get(); }
  // Closes the descriptor, which is needed only until the daemon has it. The mapping stays.
  void close_descriptor() { memfd_.reset(); }

 private:
  ArenaMemory(UniqueFd memfd, std::byte* data, size_t bytes)
      : memfd_(std::move(memfd)), data_(data), bytes_(bytes) {}

  UniqueFd memfd_;
  std::byte* data_;
  size_t bytes_;
};

// Knows which pieces of [0, bytes) are free: allocation is by best fit, and neighbours merge when
// freed. Offsets and sizes are multiples of kBlockAlignmentBytes. The class does not touch memory.
class FreeSpace {
 public:
  explicit FreeSpace(size_t bytes);
  // Returns the size of the smallest free piece that holds `bytes`, or nullopt if none does.
  std::optional<size_t> best_fit(size_t bytes) const;
  // Takes the piece that best_fit measured, and returns its offset.
  size_t take(size_t bytes);
  // Frees a live piece. Returns false if no live piece begins there.
  bool give(size_t offset);
  // Returns true if [offset, offset + bytes) lies inside one live piece.
  bool is_live(size_t offset, size_t bytes) const;
  std::optional<size_t> live_bytes(size_t offset) const;
  bool is_idle() const { return live_.empty(); }

 private:
  void insert_free(size_t offset, size_t bytes);
  void erase_free(std::map<size_t, size_t>::iterator piece);

  std::map<size_t, size_t> live_;                // offset to bytes
  std::map<size_t, size_t> free_by_offset_;      // offset to bytes
  std::set<std::pair<size_t, size_t>> by_size_;  // (bytes, offset)
};

}  // namespace rueda::client
