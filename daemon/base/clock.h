// The time, as numbers. Core is told the time by its caller; only engine and main read a real
// clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace rueda {

// Milliseconds on a clock that only moves forward; its zero means nothing.
using TicksMs = int64_t;

// Microseconds on the same clock.
using TicksUs = int64_t;

constexpr TicksUs to_us(TicksMs ms) { return ms * 1000; }
// Returns the last full millisecond that has begun at this time, which is not negative.
constexpr TicksMs to_ms(TicksUs us) { return us / 1000; }

inline TicksMs steady_now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline TicksUs steady_now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline int64_t steady_now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline double steady_now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace rueda
