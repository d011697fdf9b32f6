// Doors are threads for system calls that can sleep for as long as a stranger likes: closing a
// descriptor that came from a client, or receiving descriptors. Closing a TCP socket with SO_LINGER
// sleeps for its linger time, and closing a file of FUSE for as long as the file's server likes.
// The loops cannot wait for that.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "daemon/base/fd.h"
#include "daemon/base/principal.h"

namespace rueda::session {

struct DoorLimits {
  int64_t stuck_ms = 1000;  // A thread that is busy for longer than this is given up.
  // The limit counts threads that are not stuck; principals beyond it share one thread.
  size_t threads = 16;
  size_t stuck_of_principal = 4;
  size_t stuck = 32;
};

// Each principal has a thread of its own while there is work for it, so that one whose work sleeps
// delays nobody else. A thread that is stuck is given up and replaced; a principal with several
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

  // Runs the work on the principal's thread, after earlier work for the principal unless that is
  // stuck. The work, and what it holds, is destroyed on that thread.
  void run(const Principal& principal, Work work, Purpose purpose = Purpose::kDescriptors);
  // Returns true if so many of this principal's threads are stuck, or so many of all, that the
  // principal can have no other thread.
  bool is_refused(const Principal& principal) const;
  // Returns the number of threads that have been given up so far.
  uint64_t abandoned() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // The threads hold the state, too.
};

// A descriptor that came from a client, or that leads to a client. It is closed at its principal's
// door.
class ForeignFd {
 public:
  ForeignFd() = default;
  // `until_closed` is released after the descriptor has been closed.
  ForeignFd(UniqueFd fd, Principal principal, std::shared_ptr<void> until_closed = {})
      : fd_(std::move(fd)),
        principal_(std::move(principal)),
        until_closed_(std::move(until_closed)) {}
  ForeignFd(ForeignFd&&) noexcept = default;
  ForeignFd& operator=(ForeignFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::move(other.fd_);
      principal_ = std::move(other.principal_);
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
  Principal principal_;
  std::shared_ptr<void> until_closed_;
};

}  // namespace rueda::session
