// Watches over the handlers of a loop: work that is done for somebody in one go must not keep the
// loop from others for long. What counts is the time that the thread has worked, so that a process
// that was stopped, or did not get a CPU, accuses nobody.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace rueda {

// A cause is whoever a handler works for.
struct Cause {
  std::string name;  // For people, such as `job train of user 1000`.
  // Ends whoever it is, for this reason: a sentence without its subject, `has kept ...`. May be
  // empty. It is called on the watch's thread, between handlers, and must not throw.
  std::function<void(const std::string& why)> end = {};
};

// A handler that worked for too long in one go.
struct SlowHandler {
  const Cause& cause;
  std::chrono::milliseconds worked;
  std::chrono::milliseconds passed;  // With the time in which the thread did not run.
  bool is_news;                      // The cause was not reported in the last seconds.
  bool is_ended;                     // The cause is about to be ended.
};

// The clocks of a HandlerWatch; tests replace them.
class HandlerClock {
 public:
  using Time = std::chrono::nanoseconds;
  virtual ~HandlerClock() = default;
  // Returns a steady time that is exact to some milliseconds, which costs a few nanoseconds to ask.
  virtual Time now() const;
  // Returns how long this thread has run. It costs a system call.
  virtual Time worked() const;
  static const HandlerClock& of_system();
};

// One thread uses an object.
class HandlerWatch {
 public:
  using Time = HandlerClock::Time;
  // A handler that works for longer is reported: 100 ms, and 20 times that with a sanitizer. What
  // is built without one beside it must see the same, so the value is in the source.
  static const std::chrono::milliseconds kReported;
  // One that works for longer ends whoever it works for: ten times that.
  static const std::chrono::milliseconds kEnded;
  // Who was reported is not news again for this long.
  static constexpr std::chrono::seconds kNewsEvery{10};

  // `clock` outlives the object.
  explicit HandlerWatch(const HandlerClock& clock = HandlerClock::of_system()) : clock_(clock) {}

  // Sets what hears of slow handlers. It must not throw.
  void on_slow(std::function<void(const SlowHandler&)> handler) { on_slow_ = std::move(handler); }

  // Makes a watch that of the calling thread, for as long as the object lives.
  class Use {
   public:
    explicit Use(HandlerWatch& watch) : before_(std::exchange(of_thread_, &watch)) {}
    ~Use() { of_thread_ = before_; }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    HandlerWatch* const before_;
  };

  // The handler that runs on this thread works for this cause from here on. The call does nothing
  // on a thread without a watch, and costs nanoseconds on one that has a watch. `cause` may be
  // null.
  static void note(const std::shared_ptr<const Cause>& cause) {
    if (of_thread_ != nullptr && cause != nullptr) of_thread_->begin(cause);
  }

  // A handler has returned. Returns whether it is known to have taken a millisecond or more.
  bool end() { return is_noted_ && end_noted(); }

 private:
  void begin(const std::shared_ptr<const Cause>& cause) {
    if (!is_noted_ || cause_ != cause) begin_noted(cause);
  }
  void begin_noted(const std::shared_ptr<const Cause>& cause);
  bool end_noted();
  void judge(Time passed);

  // How far apart two answers of the clock may be though no time has passed, and how old what is
  // known of the thread's work may be.
  static constexpr std::chrono::milliseconds kTick{10};

  static inline constinit thread_local HandlerWatch* of_thread_ = nullptr;

  const HandlerClock& clock_;
  std::function<void(const SlowHandler&)> on_slow_ = [](const SlowHandler&) {};
  bool is_noted_ = false;
  std::shared_ptr<const Cause> cause_;
  Time began_{0};
  // What the clocks said at some time in the last kTick before began_.
  Time checked_{-Time(kNewsEvery)};
  Time worked_{0};
  std::weak_ptr<const Cause> reported_;
  Time reported_at_{0};
};

}  // namespace rueda
