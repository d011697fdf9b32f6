// Waits until gRPC has finished with a call.
#pragma once

#include <condition_variable>
#include <mutex>

namespace rueda::agent {

// A call's channel must not be destroyed on the thread that runs the call's last callback: the last
// channel of a process joins that very thread. So the owner of a call cancels it, waits on this
// latch for the callback, and destroys everything itself. Both hold the latch by a shared pointer,
// because the callback may still be leaving set() when the owner goes on.
class DoneLatch {
 public:
  void set() {
    const std::lock_guard lock(mutex_);
    is_set_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_set_ = false;
};

}  // namespace rueda::agent
