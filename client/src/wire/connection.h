// The unix socket to the node's daemon: messages of client/abi/rueda_abi.h, and the descriptors
// that come with them. Not thread-safe: Session calls it under its lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "client/abi/rueda_abi.h"
#include "daemon/base/clock.h"
#include "daemon/base/fd.h"
#include "daemon/base/status.h"

namespace rueda::client {

struct Message {
  uint16_t type = 0;
  std::string body;
};

class Connection {
 public:
  // Connects; a path "@name" is an abstract socket. An error names the path, and how to start a
  // daemon.
  static Result<std::unique_ptr<Connection>> connect(const std::string& path, int64_t timeout_ms);

  int fd() const { return socket_.get(); }

  // Sends a message, and blocks until the kernel has taken all of it. The caller keeps
  // `descriptor`; -1 means that none is sent.
  Status send(uint16_t type, const void* body, size_t body_bytes, int descriptor = -1);

  // Reads the bytes that have arrived, without blocking, into messages(). An error means that
  // nothing more will come: kDaemonLost at the end of the stream, kVersion or kInternal when the
  // bytes make no sense. Messages that came before the error are in messages() all the same.
  Status receive();
  std::deque<Message>& messages() { return messages_; }
  // Waits for the next message. Returns kTimeout if it does not come before the deadline.
  Result<Message> wait_message(TicksMs deadline_ms);

  // Returns the descriptors received since the last call.
  std::vector<UniqueFd> take_descriptors() { return std::exchange(descriptors_, {}); }

  // Wakes a thread that polls the socket; no bytes pass the socket any more.
  void shut_down();
  // Closes a forked child's copy of the socket, so that the daemon notices when the parent closes
  // its own. Async-signal-safe.
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
