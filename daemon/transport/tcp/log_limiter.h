// Keeps what strangers do from filling the log.
#pragma once

#include <cstdint>

#include "daemon/base/clock.h"

namespace rueda::transport::tcp {

// Lets the first few lines of each second through. Not thread-safe.
class LogLimiter {
 public:
  // Whether a line may be logged now. `swallowed` is how many were not since the last one that was.
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
