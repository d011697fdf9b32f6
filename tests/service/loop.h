// Runs the control loop of a service test on the test's own thread; blocking calls of gRPC's
// clients run beside it.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include "daemon/base/clock.h"

namespace rueda::service::testing {

class Loop {
 public:
  boost::asio::io_context& io() { return io_; }

  bool run_until(const std::function<bool()>& condition) {
    const TicksMs give_up = steady_now_ms() + 60'000;
    while (!condition()) {
      if (steady_now_ms() > give_up) return false;
      io_.run_one_for(std::chrono::milliseconds(10));
    }
    return true;
  }

  // Runs `work` on a thread of its own, and returns its result.
  template <class Work>
  auto beside(Work work) {
    auto result = std::async(std::launch::async, std::move(work));
    run_until(
        [&] { return result.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
    return result.get();
  }

 private:
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_ =
      boost::asio::make_work_guard(io_);
};

}  // namespace rueda::service::testing
