// Runs a loop. While small operations come and go it looks for the next event by yielding the core
// instead of sleeping; at all other times it sleeps, and costs nothing (invariant I6).
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>

#include "daemon/base/yielding_wait.h"

namespace rueda::engine {

class AwakeLoop {
 public:
  // `io` outlives the object.
  explicit AwakeLoop(boost::asio::io_context& io) : io_(io) {}

  // From a handler of the loop: something that takes microseconds is under way, or the next of its
  // kind is to be expected.
  void stay_awake() { stay_awake_ = true; }

  // Until the loop is stopped or has no work left.
  void run() {
    while (io_.run_one() > 0) {
      while (std::exchange(stay_awake_, false) && wait_.until([this] { return io_.poll() > 0; })) {
      }
    }
  }

 private:
  boost::asio::io_context& io_;
  YieldingWait wait_;
  bool stay_awake_ = false;
};

}  // namespace rueda::engine
