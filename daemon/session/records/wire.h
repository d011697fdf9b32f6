// Reads and writes messages of client/abi/rueda_abi.h over a stream socket, without blocking.
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
#include "daemon/session/users/doors.h"

namespace rueda::session {

// Copies the next bytes of a client's socket and leaves them in the socket. Returns their number, 0
// at the end of the stream, or nullopt with the error in errno; EAGAIN means that there is nothing
// now. A read of as many bytes, and no more, then brings no descriptors unless `has_descriptors` is
// true.
std::optional<size_t> peek_without_descriptors(int socket, std::byte* to, size_t bytes,
                                               bool& has_descriptors);

// Returns the body's bytes of a message that a client sends; -1 for a type that no client sends.
int client_body_bytes(uint16_t type);

// Reads one message at a time, never past its end, so that descriptors belong to the message whose
// bytes they came with. Receiving descriptors may sleep (doors.h), and is therefore not done on a
// loop.
class MessageReader {
 public:
  // The socket that is read leads to a process of this principal.
  explicit MessageReader(Principal principal) : principal_(std::move(principal)) {}

  enum class Read {
    kMessage,     // type(), body_as() and descriptors() are valid until the next read().
    kWouldBlock,  // There is nothing more for now; call again when the socket is readable.
    // Descriptors come with the next bytes or soon after: call receive(), at the door.
    kDescriptors,
    kClosed,  // The stream has ended, or the connection has failed.
    kBroken,  // error() says what is wrong; nothing more can be read.
  };
  // Never sleeps. The socket must have SO_OOBINLINE, which ForeignStream sets.
  Read read(int socket);
  // Continues with the same message, and takes the descriptors that come with it. The call may
  // sleep.
  Read receive(int socket);

  uint16_t type() const { return header_.type; }
  // `Body` must be the struct that belongs to type(); the size of the body has been checked.
  template <class Body>
  Body body_as() const {
    static_assert(std::is_trivially_copyable_v<Body>);
    RUEDA_CHECK(sizeof(Body) == header_.body_bytes);
    Body body;
    std::memcpy(&body, body_.data(), sizeof(body));
    return body;
  }
  // The descriptors that came with the message. The next read() closes the ones that the caller
  // leaves here.
  std::vector<ForeignFd>& descriptors() { return descriptors_; }
  // The code is VERSION if the client speaks another version, else INVALID_ARGUMENT.
  const Status& error() const { return error_; }

 private:
  Read go_on(int socket, bool takes_descriptors);
  Read fill(int socket, std::byte* to, size_t wanted_bytes, bool takes_descriptors);
  void take_descriptors(msghdr& message);
  Status check_header() const;

  rueda_abi_header header_{};
  std::array<std::byte, RUEDA_ABI_MAX_BODY_BYTES> body_;
  size_t have_bytes_ = 0;  // Bytes of the header that have come; then, bytes of the body.
  bool in_body_ = false;
  bool is_complete_ = false;
  Principal principal_;
  std::vector<ForeignFd> descriptors_;
  Status error_;
};

// Queues the messages that the socket does not take at once.
class MessageWriter {
 public:
  // Queues a message. Its descriptors are closed once they have been sent.
  void add(uint16_t type, const void* body, size_t body_bytes,
           std::vector<UniqueFd> descriptors = {});
  // Queues a message before all that wait. No part of those may have been flushed yet.
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
