#include "daemon/session/sigbus_guard.h"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace rueda::session {
namespace {

// A guarded range, or none if `begin` is 0. The signal handler may use nothing but slots.
struct Slot {
  // The version is odd while the slot changes. A slot that changes is never the one that the
  // handler looks for, because the range that a thread faults in stays guarded. The version keeps
  // the handler from combining the begin of one range with the bytes of the next.
  std::atomic<uint32_t> version{0};
  std::atomic<uintptr_t> begin{0};
  std::atomic<size_t> bytes{0};
  std::atomic<bool> lost{false};

  // Only one thread at a time may call this.
  void set(uintptr_t new_begin, size_t new_bytes) {
    const uint32_t before = version.load(std::memory_order_relaxed);
    version.store(before + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    begin.store(new_begin, std::memory_order_relaxed);
    bytes.store(new_bytes, std::memory_order_relaxed);
    version.store(before + 2, std::memory_order_release);
  }
  bool holds(uintptr_t address, uintptr_t& its_begin, size_t& its_bytes) const {
    const uint32_t before = version.load(std::memory_order_acquire);
    its_begin = begin.load(std::memory_order_relaxed);
    its_bytes = bytes.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    return before % 2 == 0 && version.load(std::memory_order_relaxed) == before && its_begin != 0 &&
           address >= its_begin && address - its_begin < its_bytes;
  }
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);
static_assert(std::atomic<uintptr_t>::is_always_lock_free);
static_assert(std::atomic<size_t>::is_always_lock_free);
static_assert(std::atomic<bool>::is_always_lock_free);

Slot g_slots[kMaxGuardedRanges];
// Slots from this index on were never used, which bounds the handler's search.
std::atomic<int> g_slots_used{0};
std::atomic<int> g_event_fd{-1};

// Hands out slots. The handler does not use the pool, so the pool may lock.
class SlotPool {
 public:
  // Returns -1 if all slots are taken.
  int take() {
    std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      int slot = free_.back();
      free_.pop_back();
      return slot;
    }
    int used = g_slots_used.load(std::memory_order_relaxed);
    if (used == kMaxGuardedRanges) return -1;
    g_slots_used.store(used + 1, std::memory_order_release);
    return used;
  }
  void give_back(int slot) {
    std::lock_guard lock(mutex_);
    free_.push_back(slot);
  }

 private:
  std::mutex mutex_;
  std::vector<int> free_;
};

SlotPool& slot_pool() {
  // The pool is never destroyed, because ranges may end after main().
  static auto& pool = *new SlotPool;
  return pool;
}

bool replace_lost_range(uintptr_t address) {
  int used = g_slots_used.load(std::memory_order_acquire);
  for (int i = 0; i < used; ++i) {
    Slot& slot = g_slots[i];
    uintptr_t begin = 0;
    size_t bytes = 0;
    if (!slot.holds(address, begin, bytes)) continue;
    // The whole range is replaced at once: one fault for each page would take a second for each
    // gigabyte, and the process would run out of mappings. The system call is made directly,
    // because mmap() is not among the functions that a handler may call, and sanitizers replace it
    // by their own.
    long mapped = ::syscall(SYS_mmap, begin, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    if (mapped == -1) return false;
    slot.lost.store(true, std::memory_order_release);
    uint64_t one = 1;
    [[maybe_unused]] ssize_t written =
        ::write(g_event_fd.load(std::memory_order_relaxed), &one, sizeof(one));
    return true;
  }
  return false;
}

void on_sigbus(int signal, siginfo_t* info, void*) {
  int saved_errno = errno;
  // A positive code means that the kernel raised the signal, and that the address is real.
  if (info->si_code > 0 && replace_lost_range(reinterpret_cast<uintptr_t>(info->si_addr))) {
    errno = saved_errno;
    return;
  }
  struct sigaction fallback {};
  fallback.sa_handler = SIG_DFL;
  ::sigaction(SIGBUS, &fallback, nullptr);
  // The signal is blocked until this handler returns, and then kills the process by its default
  // action.
  ::raise(signal);
}

Status do_install() {
  int fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0) {
    return Status(Code::kResourceExhausted,
                  std::string("cannot make the eventfd of the SIGBUS guard (") +
                      std::strerror(errno) + "): raise the limit of open files (LimitNOFILE)");
  }
  g_event_fd.store(fd);
  struct sigaction action {};
  action.sa_sigaction = on_sigbus;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  RUEDA_CHECK(::sigaction(SIGBUS, &action, nullptr) == 0);
  return Status::ok();
}

}  // namespace

Status install_sigbus_guard() {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (g_event_fd.load() >= 0) return Status::ok();
  return do_install();
}

int sigbus_event_fd() { return g_event_fd.load(); }

GuardedRange::GuardedRange(GuardedRange&& other) noexcept : slot_(std::exchange(other.slot_, -1)) {}

GuardedRange& GuardedRange::operator=(GuardedRange&& other) noexcept {
  std::swap(slot_, other.slot_);
  return *this;
}

GuardedRange::~GuardedRange() {
  if (slot_ < 0) return;
  g_slots[slot_].set(0, 0);
  slot_pool().give_back(slot_);
}

Result<GuardedRange> GuardedRange::guard(std::byte* begin, size_t bytes) {
  int index = slot_pool().take();
  if (index < 0) {
    return Status(
        Code::kResourceExhausted,
        "this daemon maps " + std::to_string(kMaxGuardedRanges) +
            " pieces of client memory already: free arenas, or use fewer and larger ones");
  }
  Slot& slot = g_slots[index];
  slot.lost.store(false, std::memory_order_relaxed);
  slot.set(reinterpret_cast<uintptr_t>(begin), bytes);
  return GuardedRange(index);
}

bool GuardedRange::is_lost() const {
  return slot_ >= 0 && g_slots[slot_].lost.load(std::memory_order_acquire);
}

}  // namespace rueda::session
