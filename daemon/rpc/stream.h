// A bidirectional stream of LinkMessages, whichever side opened it. gRPC's threads call it from
// below; it tells its owner of events through functions that must post to a loop.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>

#include "daemon/base/status.h"
#include "daemon/rpc/calls.h"
#include "rueda/v1/control.grpc.pb.h"

namespace rueda::service {

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
  virtual void send(const v1::LinkMessage& message) = 0;
  // Ends the stream once everything queued has been sent.
  virtual void close() = 0;
  // Ends the stream now.
  virtual void abort() = 0;
  // Says that a message of on_message() has been handled, so that as much may be read again.
  virtual void taken(size_t bytes) = 0;
  // Sets the window, which is kStrangersWindow at first.
  virtual void set_window(const StreamWindow& window) = 0;
};

struct StreamEvents {
  // Gets a message and its size on the wire, which has to be given to taken().
  std::function<void(v1::LinkMessage, size_t bytes)> on_message;
  std::function<void(const Status&)> on_closed;  // It is called once, and last.
};

// Dials a stream. It keeps itself alive until it has closed.
std::shared_ptr<Stream> open_stream(rpc::CallQueue& queue,
                                    const std::shared_ptr<grpc::Channel>& channel,
                                    StreamEvents events);

// Messages are not parsed, because how large a message may be depends on who sends it.
using LinkArrival = rpc::Arrival<grpc::ByteBuffer, grpc::ByteBuffer>;

// The server's end of a new stream, which also keeps itself alive until it has closed.
struct AcceptedStream {
  std::shared_ptr<Stream> stream;
  // Must be called once, when `events` may arrive.
  std::function<void(StreamEvents)> start;
};
AcceptedStream accept_stream(rpc::CallQueue& queue, std::unique_ptr<LinkArrival> arrival);

}  // namespace rueda::service
