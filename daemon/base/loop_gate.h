// A loop gate is the only way from other threads to a loop that may have gone by then: from doors
// to the loop of sessions, from whoever answers a call to the loop of calls, and from the threads
// of calls to the launcher's loop.
#pragma once

#include <functional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "daemon/base/mutex.h"

namespace rueda {

// A gate is thread-safe. Whoever posts shares the gate with the loop's owner, because some who
// post outlive the loop.
class LoopGate {
 public:
  explicit LoopGate(boost::asio::io_context& loop) : loop_(&loop) {}

  // Posts `work` to the loop. The work is dropped if the gate is closed.
  void post(std::function<void()> work) {
    const MutexLock lock(mutex_);
    if (loop_ != nullptr) boost::asio::post(*loop_, std::move(work));
  }
  // Closes the gate. Must be called before the loop, or anything that its handlers refer to, is
  // destroyed.
  void close() {
    const MutexLock lock(mutex_);
    loop_ = nullptr;
  }

 private:
  Mutex mutex_;
  boost::asio::io_context* loop_ RUEDA_GUARDED_BY(mutex_);
};

}  // namespace rueda
