// Runs a loop. While small operations come and go it looks for the next event by yielding the core
// instead of sleeping; at all other times it sleeps, and costs nothing (invariant I6).
#pragma once

#include <functional>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "daemon/base/handler_watch.h"
#include "daemon/base/no_exception.h"
#include "daemon/base/poll_source.h"
#include "daemon/base/soon.h"
#include "daemon/base/yielding_wait.h"

namespace rueda::engine {

// Logs an exception.
void report_exception(const char* what);

// Logs a slow handler, whose cause is either news or about to be ended.
void report_slow(const char* loop, const SlowHandler& slow);

// Gets what a handler of the loop has thrown. Must not throw.
using ExceptionHandler = std::function<void(const char* what)>;

class BusyPollLoop {
 public:
  // `io` and `clock` outlive the object.
  explicit BusyPollLoop(boost::asio::io_context& io,
                        const HandlerClock& clock = HandlerClock::of_system())
      : io_(io), soon_(io), handlers_(clock) {}

  boost::asio::io_context& io() { return io_; }
  // Makes the loop look at `watched` while it is awake. Must be called before run(); `watched` must
  // outlive the loop's run.
  void watch(PollSource& watched) { watched_ = &watched; }

  // Sets what is called, on the loop, when a handler has thrown whose owner has not caught it, so
  // that nobody knows whose it was. Must be called before run().
  void on_exception(ExceptionHandler handler) { on_exception_ = std::move(handler); }

  // Sets what hears, on the loop, of handlers that have kept it for long. Must be called before
  // run(); `handler` must not throw.
  void on_slow(std::function<void(const SlowHandler&)> handler) {
    handlers_.on_slow(std::move(handler));
  }

  // Keeps the loop awake. Is called from a handler of the loop: something that takes microseconds
  // is under way, or the next of its kind is expected.
  void stay_awake() { stay_awake_ = true; }

  // Runs the loop until it is stopped or has no work left.
  void run() {
    const HandlerWatch::Use watches(handlers_);
    const Soon::Use does_soon(soon_);
    bool is_over = false;
    while (!is_over) {
      // Handlers that serve a job or a process catch their own exceptions: this is for the rest.
      without_exception(
          [&] {
            if (soon_.is_empty() || io_.stopped()) {
              is_over = io_.run_one() == 0;
            } else {
              io_.poll_one();  // There was more to do soon than is done in one go.
            }
            handlers_.end();
            run_soon();
            while (stay_awake_ && !io_.stopped()) yield_for_next();
          },
          [this](const char* what) { on_exception_(what); });
      handlers_.end();
    }
  }

 private:
  // The kernel is asked for news after so many looks in a row that found something.
  static constexpr int kMostUnasked = 8;
  // So much of what handlers have left for the end of their turn is done in one go.
  static constexpr int kMostSoon = 64;

  void yield_for_next() {
    if (watched_ != nullptr) watched_->watch();
    while (std::exchange(stay_awake_, false) && wait_.until([this] { return go_on(); })) {
    }
    if (watched_ != nullptr) watched_->rest();
  }
  bool go_on() {
    bool has_found = watched_ != nullptr && watched_->look();
    const bool took_time = handlers_.end();
    has_found |= run_soon();
    // Asking the kernel is a system call, and a rank that has submitted is seldom alone.
    if (has_found && !took_time && ++unasked_ < kMostUnasked) return true;
    unasked_ = 0;
    // Handlers may go on for ever, each by posting the next, and who does not ring waits to be
    // looked at. So there is another look after each handler that took its time.
    while (io_.poll_one() > 0) {
      has_found = true;
      if (handlers_.end()) break;
    }
    has_found |= run_soon();
    return has_found;
  }
  // Does what handlers have left for the end of their turn. Returns whether there was anything.
  bool run_soon() {
    int ran = 0;
    while (ran < kMostSoon && soon_.run_one()) {
      ++ran;
      if (handlers_.end()) break;
    }
    return ran > 0;
  }

  boost::asio::io_context& io_;
  Soon soon_;
  PollSource* watched_ = nullptr;
  ExceptionHandler on_exception_ = report_exception;
  YieldingWait wait_;
  HandlerWatch handlers_;
  int unasked_ = 0;  // Looks since the kernel was asked for news.
  bool stay_awake_ = false;
};

}  // namespace rueda::engine
