// Watches for the end of a process.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <poll.h>

#include "daemon/base/fd.h"

namespace rueda {

// Tells on its loop, once, that a process has ended. A loop may report a descriptor as ready that
// is not (what made it so is over by the time its handler runs, or was another descriptor's with
// the same number), so the descriptor is looked at before anything is told: whoever took a process
// that lives for one that has ended would wait for it for ever.
class ExitWatch {
 public:
  explicit ExitWatch(boost::asio::io_context& loop) : pidfd_(loop) {}

  // Watches the process of the pidfd, which this object closes. `handler` is called once, unless
  // close() comes first; the caller keeps what it refers to.
  template <class Handler>
  void start(UniqueFd pidfd, Handler handler) {
    pidfd_.assign(pidfd.release());
    wait(std::move(handler));
  }
  bool is_open() const { return pidfd_.is_open(); }
  void close() {
    boost::system::error_code ignored;
    pidfd_.close(ignored);
  }

 private:
  template <class Handler>
  void wait(Handler handler) {
    pidfd_.async_wait(
        boost::asio::posix::descriptor_base::wait_read,
        [this, handler = std::move(handler)](const boost::system::error_code& error) mutable {
          if (error) return;
          pollfd ended{.fd = pidfd_.native_handle(), .events = POLLIN, .revents = 0};
          if (::poll(&ended, 1, 0) == 1) return handler();
          wait(std::move(handler));
        });
  }

  boost::asio::posix::stream_descriptor pidfd_;
};

}  // namespace rueda
