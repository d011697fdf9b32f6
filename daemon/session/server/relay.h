// A relay passes bytes between a client's connection and the server of calls. That does not get the
// connection itself, because it would receive any descriptors that the client sends, and close the
// connection, and both can sleep (doors.h). A relay belongs to the loop.
#pragma once

#include <functional>
#include <memory>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "daemon/session/server/foreign_stream.h"
#include "daemon/session/session.h"

namespace rueda::session {

class Relay : public std::enable_shared_from_this<Relay> {
 public:
  // Called once, unless the relay is ended by close(). A status that is not ok means that the
  // client has broken the rules.
  using OnEnd = std::function<void(Relay&, const Status&)>;

  Relay(boost::asio::io_context& loop, ForeignSocket client, const Credentials& peer, OnEnd on_end);

  // Returns the descriptor that is to be served in place of the client's. It is not open if no
  // socket pair could be made.
  UniqueFd start();
  // Passes on what has been answered, as far as the client takes it without waiting, and closes
  // both connections. The callback is not called.
  void close();
  const Credentials& peer() const { return peer_; }

 private:
  enum class Way { kIn, kOut };
  // Passes on the bytes that are there, and waits for more.
  void pass(Way way);
  void wait(Way way, ForeignStream::Wait what);
  void pass_last_answers();
  void end(const Status& why);

  ForeignStream client_;
  boost::asio::posix::stream_descriptor served_;
  const Credentials peer_;
  OnEnd on_end_;
  bool is_over_[2] = {false, false};  // By way: true once no more bytes come.
};

}  // namespace rueda::session
