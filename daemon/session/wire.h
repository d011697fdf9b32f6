// Messages of client/abi/rueda_abi.h over a stream socket, without blocking.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <deque>
#include <optional>
#include <type_traits>
#include <vector>

#include <sys/socket.h>
#include <sys/types.h>

#include "client/abi/rueda_abi.h"
#include "daemon/base/check.h"
#include "daemon/base/fd.h"
#include "daemon/base/status.h"
#include "daemon/session/doors.h"

namespace rueda::session {

// Copies the next bytes of a client's socket and leaves them there; none: there is nothing now, or
// errno says what is wrong. Reading as many, and no more, then brings no descriptor unless
// `has_descriptors`.
std::optional<size_t> peek_without_descriptors(int socket, std::byte* to, size_t bytes,
                                               bool& has_descriptors);

// Bytes of the body that a client's message of this type has; -1 for a type that no client sends.
int client_body_bytes(uint16_t type);

// Reads one message at a time, never past its end, so that descriptors belong to the message whose
// bytes they came with. To receive descriptors may sleep (doors.h), and so is not done on a loop.
class MessageReader {
 public:
  // Of a socket of this user's.
  explicit MessageReader(uid_t user) : user_(user) {}

  enum class Read {
    kMessage,      // type(), body_as(), descriptors() are valid until the next read()
    kWouldBlock,   // nothing more for now; call again when the socket is readable
    kDescriptors,  // there are some, with the next bytes or soon: call receive(), at the door
    kClosed,       // end of the stream, or a connection error
    kBroken,       // error() says how; nothing more can be read
  };
  // Never sleeps. The socket is to have SO_OOBINLINE (ForeignStream sets it).
  Read read(int socket);
  // Goes on with the same message, and takes what descriptors come with it. May sleep.
  Read receive(int socket);

  uint16_t type() const { return header_.type; }
  // Body must be the struct that belongs to type(); its size has been checked.
  template <class Body>
  Body body_as() const {
    static_assert(std::is_trivially_copyable_v<Body>);
    RUEDA_CHECK(sizeof(Body) == header_.body_bytes);
    Body body;
    std::memcpy(&body, body_.data(), sizeof(body));
    return body;
  }
  // What came with the message. Whatever is left here is closed by the next read().
  std::vector<ForeignFd>& descriptors() { return descriptors_; }
  // Code VERSION when the client speaks another version, else INVALID_ARGUMENT.
  const Status& error() const { return error_; }

 private:
  Read go_on(int socket, bool takes_descriptors);
  Read fill(int socket, std::byte* to, size_t wanted_bytes, bool takes_descriptors);
  void take_descriptors(msghdr& message);
  Status check_header() const;

  rueda_abi_header header_{};
  std::array<std::byte, RUEDA_ABI_MAX_BODY_BYTES> body_;
  size_t have_bytes_ = 0;  // of the header, then of the body
  bool in_body_ = false;
  bool is_complete_ = false;
  uid_t user_ = 0;
  std::vector<ForeignFd> descriptors_;
  Status error_;
};

// Queues messages that the socket does not take at once.
class MessageWriter {
 public:
  // The descriptors are closed once they have been sent.
  void add(uint16_t type, const void* body, size_t body_bytes,
           std::vector<UniqueFd> descriptors = {});
  // As add, but before everything that waits; nothing may have been flushed since it was added.
  void add_first(uint16_t type, const void* body, size_t body_bytes,
                 std::vector<UniqueFd> descriptors = {});

  enum class Flush { kDone, kWouldBlock, kFailed };
  Flush flush(int socket);

  size_t queued_bytes() const { return queued_bytes_; }

 private:
  struct Outgoing {
    std::vector<std::byte> bytes;
    size_t sent_bytes = 0;
    std::vector<UniqueFd> descriptors;
  };
  Outgoing make(uint16_t type, const void* body, size_t body_bytes,
                std::vector<UniqueFd> descriptors);

  std::deque<Outgoing> queue_;
  size_t queued_bytes_ = 0;
};

}  // namespace rueda::session
