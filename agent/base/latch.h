// Waits until gRPC has finished with a call.
#pragma once

#include "daemon/base/mutex.h"

namespace rueda::agent {

// A call's channel must not be destroyed on the thread that runs the call's last callback: the last
// channel of a process joins that very thread. So the owner of a call cancels it, waits on this
// latch for the callback, and destroys everything itself. Both hold the latch by a shared pointer,
// because the callback may still be leaving set() when the owner goes on.
class DoneLatch {
 public:
  void set() {
    const MutexLock lock(mutex_);
    is_set_ = true;
    changed_.notify_all();
  }
  void wait() {
    MutexLock lock(mutex_);
    while (!is_set_) changed_.wait(lock);
  }

 private:
  Mutex mutex_;
  Condition changed_;
  bool is_set_ RUEDA_GUARDED_BY(mutex_) = false;
};

}  // namespace rueda::agent
