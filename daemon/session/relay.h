// Stands between a connection of a client's and gRPC, which would receive whatever descriptors come
// (doors.h), and does not tell when a connection has gone. Belongs to the loop.
#pragma once

#include <functional>
#include <memory>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "daemon/session/foreign_stream.h"
#include "daemon/session/session.h"

namespace rueda::session {

class Relay : public std::enable_shared_from_this<Relay> {
 public:
  // Called once, unless closed by close(); not ok: the client has broken the rules.
  using OnEnd = std::function<void(Relay&, const Status&)>;

  Relay(boost::asio::io_context& loop, ForeignSocket client, const Credentials& peer, OnEnd on_end);

  // The descriptor to be served in place of the client's; not open: none could be made.
  UniqueFd start();
  // What has been answered is passed on, as far as the client takes it.
  void close();
  const Credentials& peer() const { return peer_; }

 private:
  enum class Way { kIn, kOut };
  // Passes on what there is, and waits for more.
  void pass(Way way);
  void wait(Way way, ForeignStream::Wait what);
  void end(const Status& why);

  ForeignStream client_;
  boost::asio::posix::stream_descriptor served_;
  const Credentials peer_;
  OnEnd on_end_;
  bool is_over_[2] = {false, false};  // by way: nothing more comes
};

}  // namespace rueda::session
