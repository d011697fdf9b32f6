// How fast those may come who are not known yet: a token bucket (Tanenbaum and Wetherall, Computer
// Networks, 5th edition, section 5.4.2).
#pragma once

#include <algorithm>
#include <cmath>

#include "daemon/base/clock.h"

namespace rueda {

// Holds up to `burst` tokens, and gets `a_second` of them each second. It is full to begin with. An
// object belongs to one thread, or to who holds its mutex.
class TokenBucket {
 public:
  TokenBucket(double burst, double a_second) : burst_(burst), a_second_(a_second), tokens_(burst) {}

  // Takes so many tokens. Returns false, and takes none, if there are fewer.
  bool take(TicksUs now_us, double count = 1) {
    fill(now_us);
    if (tokens_ < count) return false;
    tokens_ -= count;
    return true;
  }
  // Returns tokens of somebody who turned out to be no stranger.
  void give_back(double count = 1) { tokens_ = std::min(burst_, tokens_ + count); }
  // Returns how long it takes until there are so many tokens, which must not be more than `burst`.
  TicksUs wait_us(TicksUs now_us, double count = 1) {
    fill(now_us);
    if (tokens_ >= count) return 0;
    return static_cast<TicksUs>(std::ceil((count - tokens_) / a_second_ * 1e6));
  }

 private:
  void fill(TicksUs now_us) {
    if (last_us_ >= 0 && now_us > last_us_) {
      const double came = static_cast<double>(now_us - last_us_) * a_second_ / 1e6;
      tokens_ = std::min(burst_, tokens_ + came);
    }
    last_us_ = std::max(last_us_, now_us);
  }

  double burst_;
  double a_second_;
  double tokens_;
  TicksUs last_us_ = -1;
};

}  // namespace rueda
