// A bidirectional stream of LinkMessages, whichever side opened it. gRPC's threads call in from
// below; what happens is told to the owner through functions that must post to a loop.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>

#include "daemon/base/status.h"
#include "daemon/service/calls.h"
#include "rueda/v1/control.grpc.pb.h"

namespace rueda::service {

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
};

struct StreamEvents {
  std::function<void(v1::LinkMessage)> on_message;
  std::function<void(const Status&)> on_closed;  // once, and last
};

// Dials. The stream keeps itself alive until it has closed.
std::shared_ptr<Stream> open_stream(CallQueue& queue, const std::shared_ptr<grpc::Channel>& channel,
                                    StreamEvents events);

using LinkArrival = Arrival<v1::LinkMessage, v1::LinkMessage>;

// The server's end of a new stream, which keeps itself alive likewise.
struct AcceptedStream {
  std::shared_ptr<Stream> stream;
  // Call once, when `events` may arrive.
  std::function<void(StreamEvents)> start;
};
AcceptedStream accept_stream(CallQueue& queue, std::unique_ptr<LinkArrival> arrival);

}  // namespace rueda::service
