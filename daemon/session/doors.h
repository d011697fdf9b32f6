// Threads for what can sleep as long as a stranger likes: to close a descriptor that came from one,
// or to receive some. A TCP socket with SO_LINGER sleeps for its linger time when it is closed, and
// a file of FUSE for as long as its server likes; the loops cannot wait for that.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include <sys/types.h>

#include "daemon/base/fd.h"

namespace rueda::session {

struct DoorLimits {
  int64_t stuck_ms = 1000;  // after so much a thread is given up
  size_t threads = 16;      // that are not stuck; users beyond share one
  size_t stuck_of_user = 4;
  size_t stuck = 32;
};

// Each user has a thread while there is something to do, so that one who sleeps is in nobody else's
// way. A thread that is stuck is given up and replaced; a user with several of them is refused
// until one comes back. Every method is thread-safe, and none blocks.
class Doors {
 public:
  // kMemory takes long where there is much of it, and is never given up.
  enum class Purpose { kDescriptors, kMemory };
  using Work = std::function<void()>;

  explicit Doors(const DoorLimits& limits = {});
  // Lets go of the threads; what they have not begun is dropped.
  ~Doors();
  Doors(const Doors&) = delete;
  Doors& operator=(const Doors&) = delete;

  // Those of the process, which are never destroyed.
  static Doors& of_process();

  // After what this user was given before, as long as that is not stuck. The work, and what it
  // holds, ends on the thread.
  void run(uid_t user, Work work, Purpose purpose = Purpose::kDescriptors);
  // So many threads are stuck that no more can be spent on this user.
  bool is_refused(uid_t user) const;
  // Threads that were given up so far.
  uint64_t abandoned() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // the threads hold it, too
};

// A descriptor that came from a client, or leads to one. It is closed at its user's door.
class ForeignFd {
 public:
  ForeignFd() = default;
  // `until_closed` is let go of when it has been closed.
  ForeignFd(UniqueFd fd, uid_t user, std::shared_ptr<void> until_closed = {})
      : fd_(std::move(fd)), user_(user), until_closed_(std::move(until_closed)) {}
  ForeignFd(ForeignFd&&) noexcept = default;
  ForeignFd& operator=(ForeignFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::move(other.fd_);
      user_ = other.user_;
      until_closed_ = std::move(other.until_closed_);
    }
    return *this;
  }
  ~ForeignFd() { reset(); }

  int get() const { return fd_.get(); }
  bool is_open() const { return fd_.is_open(); }
  void reset() noexcept;

 private:
  UniqueFd fd_;
  uid_t user_ = 0;
  std::shared_ptr<void> until_closed_;
};

}  // namespace rueda::session
