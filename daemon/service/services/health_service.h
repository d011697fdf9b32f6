// grpc.health.v1 (https://github.com/grpc/grpc/blob/master/doc/health-checking.md): Check, and
// Watch. gRPC's own is written for its callback interface, whose threads are never idle
// (daemon/service/rpc/call_queue.h). Messages of one field each are read and written by hand.
#pragma once

#include <list>
#include <memory>
#include <mutex>

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/service_type.h>

#include "daemon/service/rpc/calls.h"

namespace rueda::service {

class HealthStream;

// The server as a whole is the one service, by the empty name.
class HealthService {
 public:
  // For the builder of the one server that it is part of.
  grpc::Service& grpc_service() { return service_; }
  // Takes calls for as long as that server runs.
  void serve(CallQueue& queue);
  // Thread-safe. Not serving until told.
  void set_serving(bool serving);

 private:
  friend class HealthStream;

  // What generated code would be, with messages left as bytes. On the wire every call is a stream.
  class Methods final : public grpc::Service {
   public:
    Methods();
    using grpc::Service::RequestAsyncBidiStreaming;
  };

  Methods service_;
  std::mutex mutex_;
  bool serving_ = false;
  std::list<HealthStream*> watchers_;
};

}  // namespace rueda::service
