// Serves calls over connections of the unix socket: their frames are those of wire.h, and all that
// comes in them is hostile until it has been checked.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "daemon/base/fd.h"
#include "daemon/local/call.h"
#include "daemon/security/policy.h"

namespace rueda::local {

struct Options {
  // A frame that has begun, and an answer that is to be taken, may take so long.
  std::chrono::milliseconds frame_timeout{30'000};
  // A connection may be without a call for so long.
  std::chrono::milliseconds idle_timeout{60'000};
  // What stop() waits for the ends of calls.
  std::chrono::milliseconds stop_timeout{1'000};
  // A stream ends when more than this waits for its client.
  size_t max_stream_bytes = size_t{16} << 20;
  // A connection is not read from while more than this of its replies waits to be taken.
  size_t max_reply_bytes = size_t{256} << 10;
  // What all connections of a principal hold of long requests that come in, and of replies that
  // wait to be taken: beyond that they wait for each other.
  size_t max_principal_bytes = size_t{16} << 20;
};

// A server belongs to a loop. It may be destroyed there, or once that has ended.
class Server {
 public:
  explicit Server(boost::asio::io_context& loop, const Options& options = {});
  // Closes what is open.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Serves the action, which must be one that a Method stands for. Must be called before the first
  // connection comes.
  void serve(security::Action action, Service service);
  // Sets what is told of clients that are refused something, on the loop: the caller, and why.
  // Must be called before the first connection comes.
  using Refused = std::function<void(const security::Caller&, const std::string& why)>;
  void set_on_refused(Refused refused);

  // Takes over a connection, from any thread. The socket must be the daemon's own: what reads and
  // closes it must not sleep (session::Relay).
  void adopt(UniqueFd socket, security::Caller caller);
  // Refuses further calls, waits a while for those that are under way, breaks off the others, and
  // calls `done`, on the loop. Any thread may call this, once; what is posted to the loop from then
  // on is dropped.
  void stop(std::function<void()> done);

 private:
  class Impl;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace rueda::local
