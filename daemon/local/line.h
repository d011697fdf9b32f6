// A line of calls that are answered one after the other, with a rest behind each: what they ask for
// takes time of the control loop, of which they get a part, however many ask.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "daemon/base/lifetime.h"

namespace rueda::local {

// Principals take turns: one with many calls delays another's by one call at a time. Everything
// here belongs to one loop.
class Line {
 public:
  explicit Line(boost::asio::io_context& loop) : rest_(loop) {}

  // Calls `begin` when it is this call's turn, which may be at once; done() must be called then.
  // `key` stands for the call.
  void enter(const std::string& principal, const void* key, std::function<void()> begin);
  // A call that waits goes away. The call does nothing if it does not wait.
  void leave(const std::string& principal, const void* key);
  // The call whose turn it is has been answered: the next one begins after a rest, of a second at
  // most.
  void done(std::chrono::nanoseconds rest);

 private:
  struct Waiting {
    const void* key;
    std::function<void()> begin;
  };

  void take_next();

  boost::asio::steady_timer rest_;
  bool is_taken_ = false;  // Somebody has a turn, or the rest behind it lasts.
  // Principals without calls are in neither.
  std::map<std::string, std::deque<Waiting>> waiting_;
  std::deque<std::string> order_;
  Lifetime lifetime_;
};

}  // namespace rueda::local
