// How work at a door comes back to its loop, which may be gone by then.
#pragma once

#include <functional>
#include <mutex>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

namespace rueda::session {

// Thread-safe.
class LoopGate {
 public:
  explicit LoopGate(boost::asio::io_context& loop) : loop_(&loop) {}

  // Dropped once it is shut.
  void post(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    if (loop_ != nullptr) boost::asio::post(*loop_, std::move(work));
  }
  void shut() {
    const std::lock_guard lock(mutex_);
    loop_ = nullptr;
  }

 private:
  std::mutex mutex_;
  boost::asio::io_context* loop_;
};

}  // namespace rueda::session
