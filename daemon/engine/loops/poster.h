// The narrow door through which threads that are not loops (gRPC's) reach a loop. It has a unit of
// its own because service/ is built without ThreadSanitizer (docs/testing.md), and the sanitizer
// must see this hand-over.
#pragma once

#include <functional>

#include <boost/asio/io_context.hpp>

namespace rueda::engine {

class LoopPoster {
 public:
  explicit LoopPoster(boost::asio::io_context& loop) : loop_(loop) {}
  // Posts the work to the loop. Thread-safe. The work is dropped if the loop never runs again.
  void post(std::function<void()> work) const;

 private:
  boost::asio::io_context& loop_;
};

}  // namespace rueda::engine
