// Runs a loop. While small operations come and go it looks for the next event by yielding the core
// instead of sleeping; at all other times it sleeps, and costs nothing (invariant I6).
#pragma once

#include <functional>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "daemon/base/handler_watch.h"
#include "daemon/base/no_exception.h"
#include "daemon/base/poll_source.h"
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
      : io_(io), handlers_(clock) {}

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
    bool is_over = false;
    while (!is_over) {
      // Handlers that serve a job or a process catch their own exceptions: this is for the rest.
      without_exception(
          [&] {
            is_over = io_.run_one() == 0;
            handlers_.end();
            while (stay_awake_ && !io_.stopped()) yield_for_next();
          },
          [this](const char* what) { on_exception_(what); });
      handlers_.end();
    }
  }

 private:
  void yield_for_next() {
    if (watched_ != nullptr) watched_->watch();
    while (std::exchange(stay_awake_, false) && wait_.until([this] { return go_on(); })) {
    }
    if (watched_ != nullptr) watched_->rest();
  }
  bool go_on() {
    bool has_found = watched_ != nullptr && watched_->look();
    handlers_.end();
    // Handlers may go on for ever, each by posting the next, and who does not ring waits to be
    // looked at. So there is another look after each handler that took its time.
    while (io_.poll_one() > 0) {
      has_found = true;
      if (handlers_.end()) break;
    }
    return has_found;
  }

  boost::asio::io_context& io_;
  PollSource* watched_ = nullptr;
  ExceptionHandler on_exception_ = report_exception;
  YieldingWait wait_;
  HandlerWatch handlers_;
  bool stay_awake_ = false;
};

}  // namespace rueda::engine
