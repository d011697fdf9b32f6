// Memory of a fixed size, handed out in pieces that are given back in the order in which they were
// taken, or, the newest first, in the reverse order. Free memory is never scattered: the memory is
// mapped twice, side by side, so that a piece may go over its end. Whether a piece fits depends on
// the bytes in use alone, not on what happened before; nodes that hold the same agree on it. The
// class is not thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>

#include "daemon/base/status.h"

namespace rueda::engine {

class FifoMemory {
 public:
  // Every piece takes a multiple of this many bytes.
  static constexpr size_t kAlignment = 64;
  static constexpr size_t round_up(size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  // Reserves address space; a page costs memory once it is touched. The error is kResourceExhausted
  // if there is none.
  static Result<std::unique_ptr<FifoMemory>> make(size_t capacity);
  ~FifoMemory();
  FifoMemory(const FifoMemory&) = delete;
  FifoMemory& operator=(const FifoMemory&) = delete;

  size_t capacity() const { return capacity_; }
  size_t used() const { return used_; }
  // Returns whether the piece fits. A piece that is larger than the whole fits when nothing is in
  // use: it gets a mapping of its own.
  bool fits(size_t bytes) const { return used_ == 0 || used_ + round_up(bytes) <= capacity_; }
  // Takes a piece, which must fit (checked). Returns null if there is no memory for a piece larger
  // than the whole.
  std::byte* take(size_t bytes);
  // These give a piece back. There must be a piece (checked).
  void give_back_oldest();
  void give_back_newest();

 private:
  struct Piece {
    size_t bytes = 0;          // The bytes that it takes of the capacity.
    std::byte* own = nullptr;  // Its own mapping, or null.
  };

  FifoMemory(std::byte* base, size_t capacity) : base_(base), capacity_(capacity) {}
  void give_back(const Piece& piece);

  std::byte* const base_;  // It is mapped twice: [0, capacity) again at [capacity, 2 * capacity).
  const size_t capacity_;
  size_t begin_ = 0;  // The beginning of the oldest piece.
  size_t used_ = 0;
  std::deque<Piece> pieces_;
};

}  // namespace rueda::engine
