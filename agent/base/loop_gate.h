// The only way from gRPC's threads to the launcher's loop.
#pragma once

#include <functional>
#include <mutex>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

namespace rueda::agent {

// Thread-safe. The callbacks that gRPC holds share the gate with the loop's owner, because some of
// them outlive the loop.
class LoopGate {
 public:
  explicit LoopGate(boost::asio::io_context& loop) : loop_(&loop) {}

  // Runs `work` on the loop, or never if the gate is closed.
  void post(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    if (loop_ != nullptr) boost::asio::post(*loop_, std::move(work));
  }
  // Closes the gate. Must be called before the loop, or anything its handlers refer to, is
  // destroyed.
  void close() {
    const std::lock_guard lock(mutex_);
    loop_ = nullptr;
  }

 private:
  std::mutex mutex_;
  boost::asio::io_context* loop_;
};

}  // namespace rueda::agent
