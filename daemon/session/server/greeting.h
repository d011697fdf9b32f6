// A greeting is a connection whose protocol is not known yet. It belongs to the loop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "daemon/session/server/foreign_stream.h"
#include "daemon/session/session.h"

namespace rueda::session {

class Greeting : public std::enable_shared_from_this<Greeting> {
 public:
  // kGone means that the client closed the connection without sending a byte, as a client does that
  // only looks whether somebody listens.
  enum class Protocol { kLocal, kCalls, kHttp2, kUnknown, kSilent, kGone };
  // Called once, unless the greeting is cancelled. The callback gets the connection with nothing
  // consumed.
  using OnDecided = std::function<void(Greeting&, Protocol, ForeignSocket)>;

  Greeting(boost::asio::io_context& loop, ForeignSocket connection, const Credentials& peer,
           OnDecided on_decided);

  // Looks at the first bytes, and decides on kSilent after `timeout_ms`.
  void start(int64_t timeout_ms);
  // Closes the connection; on_decided is not called any more. The call is idempotent.
  void cancel();

  const Credentials& peer() const { return peer_; }

 private:
  void wait_readable();
  void look();
  void decide(Protocol protocol);

  ForeignStream connection_;
  boost::asio::steady_timer deadline_;
  boost::asio::steady_timer retry_;
  Credentials peer_;
  OnDecided on_decided_;
  bool is_done_ = false;
};

}  // namespace rueda::session
