// Limits the log lines that strangers cause to a few a second; the rest is counted.
#pragma once

#include <utility>

#include <spdlog/spdlog.h>

#include "daemon/base/clock.h"

namespace rueda::service {

// An object belongs to one loop.
class LogBudget {
 public:
  static constexpr int kMaxASecond = 5;

  template <class... Args>
  void warn(spdlog::format_string_t<Args...> format, Args&&... args) {
    const TicksMs now = steady_now_ms();
    if (now - began_ms_ >= 1'000) {
      began_ms_ = now;
      logged_ = 0;
      if (const int left_out = std::exchange(left_out_, 0); left_out > 0) {
        spdlog::warn("{} more of the kind were not logged", left_out);
      }
    }
    if (logged_ >= kMaxASecond) {
      ++left_out_;
      return;
    }
    ++logged_;
    spdlog::warn(format, std::forward<Args>(args)...);
  }

 private:
  TicksMs began_ms_ = 0;
  int logged_ = 0;
  int left_out_ = 0;
};

}  // namespace rueda::service
