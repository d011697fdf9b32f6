// Doors are threads for system calls that can sleep for as long as a stranger likes: closing a
// descriptor that came from a client, or receiving descriptors. Closing a TCP socket with SO_LINGER
// sleeps for its linger time, and closing a file of FUSE for as long as the file's server likes.
// The loops cannot wait for that.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include <sys/types.h>

#include "daemon/base/fd.h"

namespace rueda::session {

struct DoorLimits {
  int64_t stuck_ms = 1000;  // A thread that is busy for longer than this is given up.
  // The limit counts threads that are not stuck; users beyond it share one thread.
  size_t threads = 16;
  size_t stuck_of_user = 4;
  size_t stuck = 32;
};

// Each user has a thread of their own while there is work for that user, so that a user whose work
// sleeps delays nobody else. A thread that is stuck is given up and replaced; a user with several
// stuck threads is refused until one of the threads comes back. Every method is thread-safe, and
// none blocks.
class Doors {
 public:
  // Work of kMemory takes long if there is much memory to unmap, and its thread is never given up.
  enum class Purpose { kDescriptors, kMemory };
  using Work = std::function<void()>;

  explicit Doors(const DoorLimits& limits = {});
  // The destructor lets the threads go. Work that no thread has begun is dropped.
  ~Doors();
  Doors(const Doors&) = delete;
  Doors& operator=(const Doors&) = delete;

  // Returns the doors of the process, which are never destroyed.
  static Doors& of_process();

  // Runs the work on the user's thread, after the user's earlier work unless that is stuck. The
  // work, and what it holds, is destroyed on that thread.
  void run(uid_t user, Work work, Purpose purpose = Purpose::kDescriptors);
  // Returns true if so many of this user's threads are stuck, or so many of all users, that the
  // user can have no other thread.
  bool is_refused(uid_t user) const;
  // Returns the number of threads that have been given up so far.
  uint64_t abandoned() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // The threads hold the state, too.
};

// A descriptor that came from a client, or that leads to a client. It is closed at its user's door.
class ForeignFd {
 public:
  ForeignFd() = default;
  // `until_closed` is released after the descriptor has been closed.
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
