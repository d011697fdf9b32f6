// A loop gate brings the results of work at a door back to the loop, which may have gone by then.
#pragma once

#include <functional>
#include <mutex>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

namespace rueda::session {

// A gate is thread-safe.
class LoopGate {
 public:
  explicit LoopGate(boost::asio::io_context& loop) : loop_(&loop) {}

  // Posts the work to the loop. The work is dropped if the gate is shut.
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
