// One range of memory that the SIGBUS guard knows (sigbus_guard.h). Its handler interrupts threads
// anywhere, so it may not lock: it reads slots while another thread changes them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rueda::session {

class GuardSlot {
 public:
  struct Range {
    uintptr_t begin = 0;
    size_t bytes = 0;  // 0 means that there is no range
  };

  // Guards the range, whose memory counts as not lost; Range{} guards nothing. Only one thread at a
  // time may call this for a slot.
  void set(Range range) {
    is_lost_.store(false, std::memory_order_relaxed);
    const uint32_t before = version_.load(std::memory_order_relaxed);
    version_.store(before + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    begin_.store(range.begin, std::memory_order_relaxed);
    bytes_.store(range.bytes, std::memory_order_relaxed);
    version_.store(before + 2, std::memory_order_release);
  }

  // Returns the slot's range if the address is in it, else Range{}. Any thread may call this, and
  // so may a signal handler. It never combines the begin of one range with the bytes of the next: a
  // slot that changes meanwhile counts as one that does not have the address, which is right,
  // because a range that some thread touches stays guarded.
  Range range_with(uintptr_t address) const {
    const uint32_t before = version_.load(std::memory_order_acquire);
    const Range range{begin_.load(std::memory_order_relaxed),
                      bytes_.load(std::memory_order_relaxed)};
    std::atomic_thread_fence(std::memory_order_acquire);
    const bool is_whole = before % 2 == 0 && version_.load(std::memory_order_relaxed) == before;
    const bool has_address = address >= range.begin && address - range.begin < range.bytes;
    return is_whole && has_address ? range : Range{};
  }

  void lose() { is_lost_.store(true, std::memory_order_release); }
  bool is_lost() const { return is_lost_.load(std::memory_order_acquire); }

 private:
  static_assert(std::atomic<uint32_t>::is_always_lock_free);
  static_assert(std::atomic<uintptr_t>::is_always_lock_free);
  static_assert(std::atomic<size_t>::is_always_lock_free);
  static_assert(std::atomic<bool>::is_always_lock_free);

  std::atomic<uint32_t> version_{0};  // It is odd while the slot changes.
  std::atomic<uintptr_t> begin_{0};
  std::atomic<size_t> bytes_{0};
  std::atomic<bool> is_lost_{false};
};

}  // namespace rueda::session
