// The loop's view of a client's socket. The loop waits for data and peeks at it, and never receives
// from the socket or closes it, because both can sleep (doors.h).
#pragma once

#include <memory>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <sys/socket.h>

#include "daemon/session/users/doors.h"

namespace rueda::session {

// Work at a door holds the socket, too, so that the descriptor's number cannot be reused before
// that work has ended.
using ForeignSocket = std::shared_ptr<ForeignFd>;

class ForeignStream {
 public:
  using Wait = boost::asio::posix::stream_descriptor::wait_type;

  ForeignStream(boost::asio::io_context& loop, ForeignSocket socket)
      : waits_(loop), socket_(std::move(socket)) {
    // An out-of-band byte, and the descriptors that come with it, would be invisible to a peek
    // without SO_OOBINLINE, and would be freed by the next read that passes the byte.
    const int on = 1;
    ::setsockopt(socket_->get(), SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on));
    waits_.assign(socket_->get());
  }
  ForeignStream(const ForeignStream&) = delete;
  ForeignStream& operator=(const ForeignStream&) = delete;
  ~ForeignStream() { release(); }

  bool is_open() const { return socket_ != nullptr; }
  int fd() const { return socket_->get(); }
  const ForeignSocket& socket() const { return socket_; }
  template <class Handler>
  void async_wait(Wait what, Handler&& handler) {
    waits_.async_wait(what, std::forward<Handler>(handler));
  }
  // Shuts the connection down, so that the other side sees its end at once; the descriptor is
  // closed at the door. The call is idempotent.
  void close() {
    if (is_open()) ::shutdown(fd(), SHUT_RDWR);
    release();
  }
  // Ends all waits and returns the socket. The call is idempotent.
  ForeignSocket release() {
    if (waits_.is_open()) waits_.release();
    return std::exchange(socket_, nullptr);
  }

 private:
  boost::asio::posix::stream_descriptor waits_;
  ForeignSocket socket_;
};

}  // namespace rueda::session
