// A bidirectional stream of messages, which are bytes to it, whichever side opened it. gRPC's
// threads call it from below; it tells its owner of events through functions that must post to a
// loop.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>

#include "daemon/base/status.h"
#include "daemon/rpc/calls.h"

namespace rueda::rpc {

// The limit on messages that are read before their predecessors have been taken; one is always
// read.
struct StreamWindow {
  int messages = 1;
  size_t bytes = 0;
};
// The windows of a peer that no job needs yet, and of a peer that a job needs.
inline constexpr StreamWindow kStrangersWindow{1, 0};
inline constexpr StreamWindow kPeersWindow{8, size_t{8} << 20};

// This class is thread-safe.
class Stream {
 public:
  virtual ~Stream() = default;
  // Queues a message. If the queue is full the stream closes: a peer that takes nothing is as good
  // as lost.
  virtual void send(grpc::ByteBuffer message) = 0;
  // Ends the stream once everything queued has been sent.
  virtual void close() = 0;
  // Ends the stream now.
  virtual void abort() = 0;
  // Says that a message of on_message() has been handled, so that as much may be read again.
  virtual void taken(size_t bytes) = 0;
  // Returns the other end's certificate (PEM), which has been verified; "" without one. Must be
  // called after the first message has come.
  virtual std::string peers_certificate() const = 0;
  // Sets the window, which is kStrangersWindow at first.
  virtual void set_window(const StreamWindow& window) = 0;
};

struct StreamEvents {
  // Gets a message and its size, which has to be given to taken(). Returns false if it is none that
  // the owner can read: the stream breaks off.
  std::function<bool(grpc::ByteBuffer, size_t bytes)> on_message;
  std::function<void(const Status&)> on_closed;  // It is called once, and last.
};

// What a stream is: the method that is called, and what its connection is called in errors.
struct StreamKind {
  const char* method = "";
  const char* connection = "";
  // The stream closes when more than this waits to be written.
  size_t max_queued_messages = 16'384;
  size_t max_queued_bytes = size_t{64} << 20;
};

// Dials a stream. It keeps itself alive until it has closed.
std::shared_ptr<Stream> open_stream(CallQueue& queue, const std::shared_ptr<grpc::Channel>& channel,
                                    const StreamKind& kind, StreamEvents events);

using ByteArrival = Arrival<grpc::ByteBuffer, grpc::ByteBuffer>;

// The server's end of a new stream, which also keeps itself alive until it has closed.
struct AcceptedStream {
  std::shared_ptr<Stream> stream;
  // Must be called once, when `events` may arrive.
  std::function<void(StreamEvents)> start;
};
AcceptedStream accept_stream(CallQueue& queue, const StreamKind& kind,
                             std::unique_ptr<ByteArrival> arrival);

}  // namespace rueda::rpc
