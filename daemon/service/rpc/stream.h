// A bidirectional stream of LinkMessages, whichever side opened it. gRPC's threads call in from
// below; what happens is told to the owner through functions that must post to a loop.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>

#include "daemon/base/status.h"
#include "daemon/service/rpc/calls.h"
#include "rueda/v1/control.grpc.pb.h"

namespace rueda::service {

// What is read ahead of who takes it; one message always.
struct StreamWindow {
  int messages = 1;
  size_t bytes = 0;
};
// Of a peer that has not shown what it is here for, and of one that a job needs.
inline constexpr StreamWindow kStrangersWindow{1, 0};
inline constexpr StreamWindow kPeersWindow{8, size_t{8} << 20};

// Thread-safe.
class Stream {
 public:
  virtual ~Stream() = default;
  // Queues a message. If the queue is at its bound the stream closes: a peer that takes nothing is
  // as good as lost.
  virtual void send(const v1::LinkMessage& message) = 0;
  // Ends the stream once what was sent has gone out.
  virtual void close() = 0;
  // Ends it now.
  virtual void abort() = 0;
  // What on_message() brought is through: as much may come again.
  virtual void taken(size_t bytes) = 0;
  // At first it is a stranger's.
  virtual void set_window(const StreamWindow& window) = 0;
};

struct StreamEvents {
  // With its size on the wire, which is to be taken().
  std::function<void(v1::LinkMessage, size_t bytes)> on_message;
  std::function<void(const Status&)> on_closed;  // once, and last
};

// Dials. The stream keeps itself alive until it has closed.
std::shared_ptr<Stream> open_stream(CallQueue& queue, const std::shared_ptr<grpc::Channel>& channel,
                                    StreamEvents events);

// Not parsed: how large a message may be depends on who sends it.
using LinkArrival = Arrival<grpc::ByteBuffer, grpc::ByteBuffer>;

// The server's end of a new stream, which keeps itself alive likewise.
struct AcceptedStream {
  std::shared_ptr<Stream> stream;
  // Call once, when `events` may arrive.
  std::function<void(StreamEvents)> start;
};
AcceptedStream accept_stream(CallQueue& queue, std::unique_ptr<LinkArrival> arrival);

}  // namespace rueda::service
