// Keeps strangers from filling the log.
#pragma once

#include <cstdint>

#include "daemon/base/clock.h"

namespace rueda::transport::tcp {

// Lets the first few lines of each second through. The limiter is not thread-safe.
class LogLimiter {
 public:
  // Returns true if a line may be logged now. Then `swallowed` is the number of lines that were
  // refused since the last one that was allowed.
  bool allow(TicksMs now_ms, uint64_t& swallowed) {
    if (now_ms - window_start_ms_ >= kWindowMs) {
      window_start_ms_ = now_ms;
      logged_ = 0;
    }
    if (logged_ == kLinesPerWindow) {
      ++swallowed_;
      return false;
    }
    ++logged_;
    swallowed = swallowed_;
    swallowed_ = 0;
    return true;
  }

 private:
  static constexpr TicksMs kWindowMs = 1000;
  static constexpr int kLinesPerWindow = 5;

  TicksMs window_start_ms_ = -kWindowMs;
  int logged_ = 0;
  uint64_t swallowed_ = 0;
};

}  // namespace rueda::transport::tcp
