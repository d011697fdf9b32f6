// The unix socket to the node's daemon: messages of client/abi/rueda_abi.h and the descriptors
// that come with them. Not thread-safe; Session locks around it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "client/abi/rueda_abi.h"
#include "client/src/wire/unique_fd.h"
#include "daemon/base/clock.h"
#include "daemon/base/status.h"

namespace rueda::client {

struct Message {
  uint16_t type = 0;
  std::string body;
};

class Connection {
 public:
  // path may be "@name" for an abstract socket. The error names the path and how to start a daemon.
  static Result<std::unique_ptr<Connection>> connect(const std::string& path, int64_t timeout_ms);

  int fd() const { return socket_.get(); }

  // Blocks until the kernel has taken it all. descriptor -1: none; it stays the caller's.
  Status send(uint16_t type, const void* body, size_t body_bytes, int descriptor = -1);

  // Reads what has arrived, without blocking, into messages(). An error means that nothing more
  // will come: kDaemonLost at the end of the stream, kVersion or kInternal when the bytes make no
  // sense. What came before it lies in messages() all the same.
  Status receive();
  std::deque<Message>& messages() { return messages_; }
  // Waits for the next message. kTimeout if it does not come before the deadline.
  Result<Message> wait_message(TicksMs deadline_ms);

  // Descriptors received since the last call.
  std::vector<UniqueFd> take_descriptors() { return std::exchange(descriptors_, {}); }

  // Wakes whoever polls the socket; nothing goes through it any more.
  void shut_down();
  // In a forked child: gives up the child's copy of the socket, so that the daemon sees the
  // parent's end when it comes. Async-signal-safe.
  void close_in_child() { ::close(socket_.get()); }

 private:
  explicit Connection(UniqueFd socket) : socket_(std::move(socket)) {}
  Status parse();

  UniqueFd socket_;
  std::string inbox_;  // bytes of messages that are not complete yet
  std::deque<Message> messages_;
  std::vector<UniqueFd> descriptors_;
};

}  // namespace rueda::client
