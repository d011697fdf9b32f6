// Waits for what is about to happen without going to sleep. To be woken costs tens of microseconds,
// most of all in a virtual machine; an operation on 4 KiB takes five. The core is offered to others
// all the time, and a thread that gets it back late stops asking for a while: beside busy processes
// each offer would cost a time slice. One thread at a time may use an object.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include <sched.h>

namespace rueda {

// Operations up to this many bytes are waited for in this way.
inline constexpr size_t kSmallBytes = 128 << 10;

// The clock, the yielding and the sleeping that YieldingWait uses; tests replace them.
struct YieldingMachine {
  using Clock = std::chrono::steady_clock;
  Clock::time_point now() { return Clock::now(); }
  void yield() { ::sched_yield(); }
};

template <class Machine = YieldingMachine>
class BasicYieldingWait {
 public:
  using Clock = std::chrono::steady_clock;
  // A wait without sleep is worth while for this long.
  static constexpr std::chrono::microseconds kPatience{100};
  // Others want the core if it comes back after this.
  static constexpr std::chrono::microseconds kCrowded{500};
  // After that, so many waits are left out; each time twice as many, up to kMaxLeftOut.
  static constexpr uint32_t kFewestLeftOut = 64;
  static constexpr uint32_t kMaxLeftOut = 4096;

  explicit BasicYieldingWait(Machine machine = {}) : machine_(machine) {}

  // Asks happened() until it returns true, for kPatience at most. Returns false if it did not in
  // that time, or if this wait is left out; the caller then sleeps.
  template <class Happened>
  bool until(Happened happened) {
    if (left_out_ > 0) {
      --left_out_;
      return false;
    }
    const Clock::time_point end = machine_.now() + kPatience;
    while (true) {
      if (happened()) {
        be_calm();
        return true;
      }
      const Clock::time_point before = machine_.now();
      if (before >= end) break;
      machine_.yield();
      if (machine_.now() - before > kCrowded) {
        leave_out();
        return happened();
      }
    }
    be_calm();
    return false;
  }

 private:
  // The crowd is forgotten after as many calm waits as would be left out next.
  void be_calm() {
    if (++calm_ >= next_left_out_) next_left_out_ = kFewestLeftOut;
  }
  void leave_out() {
    left_out_ = next_left_out_;
    next_left_out_ = next_left_out_ < kMaxLeftOut ? next_left_out_ * 2 : kMaxLeftOut;
    calm_ = 0;
  }

  [[no_unique_address]] Machine machine_;
  uint32_t left_out_ = 0;
  uint32_t next_left_out_ = kFewestLeftOut;
  uint32_t calm_ = 0;
};

using YieldingWait = BasicYieldingWait<>;

}  // namespace rueda
