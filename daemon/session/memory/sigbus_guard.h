// The guard keeps a client's vanishing memory from killing the daemon. A mapping of a memfd raises
// SIGBUS if its page cannot be had: the memory cgroup is full, the memory is broken, or the file
// has shrunk. The guard's handler replaces the whole range by anonymous zeroes, so that the thread
// that touched it goes on (with worthless data), and marks the range; its session is then failed.
#pragma once

#include <cstddef>

#include "daemon/base/status.h"

namespace rueda::session {

// Installs the process's SIGBUS handler. Idempotent and thread-safe. A fault outside every guarded
// range keeps its default action: the process dies with a core.
Status install_sigbus_guard();

// Returns a nonblocking eventfd that becomes readable when a range has been lost. The guard owns it
// and never closes it. Returns -1 before install_sigbus_guard.
int sigbus_event_fd();

// Guards [begin, begin + bytes) for as long as this object lives. Any thread may make, ask and
// destroy it; destroy it before the range is unmapped.
class GuardedRange {
 public:
  GuardedRange() = default;
  GuardedRange(GuardedRange&& other) noexcept;
  GuardedRange& operator=(GuardedRange&& other) noexcept;
  ~GuardedRange();

  // Returns RESOURCE_EXHAUSTED if kMaxGuardedRanges are guarded already.
  static Result<GuardedRange> guard(std::byte* begin, size_t bytes);

  // Returns true if the range's memory has been lost: its content is then worthless.
  bool is_lost() const;

 private:
  explicit GuardedRange(int slot) : slot_(slot) {}
  int slot_ = -1;
};

inline constexpr int kMaxGuardedRanges = 16384;

}  // namespace rueda::session
