#include "daemon/base/handler_watch.h"

#include <time.h>

namespace rueda {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSlower = 20;
#else
constexpr int kSlower = 1;
#endif

HandlerClock::Time read_clock(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

std::chrono::milliseconds in_ms(HandlerClock::Time time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time);
}

}  // namespace

constinit const std::chrono::milliseconds HandlerWatch::kReported{100 * kSlower};
constinit const std::chrono::milliseconds HandlerWatch::kEnded{1000 * kSlower};

HandlerClock::Time HandlerClock::now() const { return read_clock(CLOCK_MONOTONIC_COARSE); }

HandlerClock::Time HandlerClock::worked() const { return read_clock(CLOCK_THREAD_CPUTIME_ID); }

const HandlerClock& HandlerClock::of_system() {
  static const HandlerClock clock;
  return clock;
}

void HandlerWatch::begin_noted(const std::shared_ptr<const Cause>& cause) {
  if (is_noted_) end_noted();
  is_noted_ = true;
  if (cause_ != cause) cause_ = cause;
  began_ = clock_.now();
  if (began_ - checked_ < kTick) return;
  checked_ = began_;
  worked_ = clock_.worked();
}

bool HandlerWatch::end_noted() {
  is_noted_ = false;
  const Time passed = clock_.now() - began_;
  if (passed >= kReported) judge(passed);
  return passed > Time::zero();
}

// What the thread has worked since the clocks were looked at is the handler's, but for the time
// before the handler began.
void HandlerWatch::judge(Time passed) {
  const Time worked = clock_.worked() - worked_ - (began_ - checked_) - kTick;
  if (worked < kReported) return;
  const std::shared_ptr<const Cause> cause = cause_;
  const bool is_ended = worked >= kEnded && cause->end;
  const bool is_news = reported_.lock() != cause || began_ - reported_at_ >= kNewsEvery;
  if (is_news) {
    reported_ = cause;
    reported_at_ = began_;
  }
  on_slow_({*cause, in_ms(worked), in_ms(passed), is_news, is_ended});
  if (!is_ended) return;
  cause->end("has kept a loop of the daemon from all others for " +
             std::to_string(in_ms(worked).count()) + " ms in one go, and may do so for " +
             std::to_string(kEnded.count()) +
             " ms: give it fewer tensors at a time, and tell the daemon's developers");
}

}  // namespace rueda
