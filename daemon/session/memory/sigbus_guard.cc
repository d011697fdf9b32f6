#include "daemon/session/memory/sigbus_guard.h"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/base/mutex.h"
#include "daemon/session/memory/guard_slot.h"

namespace rueda::session {
namespace {

GuardSlot g_slots[kMaxGuardedRanges];
// Slots from this index on were never used, which bounds the handler's search.
std::atomic<int> g_slots_used{0};
std::atomic<int> g_event_fd{-1};

// Hands out slots. The handler does not use the pool, so the pool may lock.
class SlotPool {
 public:
  // Returns -1 if all slots are taken.
  int take() {
    const MutexLock lock(mutex_);
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
    const MutexLock lock(mutex_);
    free_.push_back(slot);
  }

 private:
  Mutex mutex_;
  std::vector<int> free_ RUEDA_GUARDED_BY(mutex_);
};

SlotPool& slot_pool() {
  // The pool is never destroyed, because ranges may end after main().
  static auto& pool = *new SlotPool;
  return pool;
}

bool replace_lost_range(uintptr_t address) {
  int used = g_slots_used.load(std::memory_order_acquire);
  for (int i = 0; i < used; ++i) {
    GuardSlot& slot = g_slots[i];
    const GuardSlot::Range range = slot.range_with(address);
    if (range.bytes == 0) continue;
    // The whole range is replaced at once: one fault for each page would take a second for each
    // gigabyte, and the process would run out of mappings. The system call is made directly,
    // because mmap() is not among the functions that a handler may call, and sanitizers replace it
    // by their own.
    long mapped = ::syscall(SYS_mmap, range.begin, range.bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    if (mapped == -1) return false;
    slot.lose();
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
  static Mutex mutex;
  const MutexLock lock(mutex);
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
  g_slots[slot_].set({});
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
  GuardSlot& slot = g_slots[index];
  slot.set({reinterpret_cast<uintptr_t>(begin), bytes});
  return GuardedRange(index);
}

bool GuardedRange::is_lost() const { return slot_ >= 0 && g_slots[slot_].is_lost(); }

}  // namespace rueda::session
