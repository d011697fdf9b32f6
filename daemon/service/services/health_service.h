// The methods Check and Watch of grpc.health.v1
// (https://github.com/grpc/grpc/blob/master/doc/health-checking.md). gRPC's own service is written
// for its callback interface, whose threads are never idle (daemon/rpc/call_queue.h).
// Messages have one field each, and are read and written by hand.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <utility>

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/service_type.h>

#include "daemon/base/mutex.h"
#include "daemon/rpc/calls.h"

namespace rueda::service {

class HealthStream;

// The only service is the server as a whole, which has the empty name. It serves from the time
// that set_serving() says so, and while is_well() says that no loop of the daemon stands still.
class HealthService {
 public:
  // `is_well` is called on the queue's thread, and must be thread-safe.
  explicit HealthService(std::function<bool()> is_well) : is_well_(std::move(is_well)) {}

  // Returns the service for the builder of the one server that it is part of.
  grpc::Service& grpc_service() { return service_; }
  // Takes calls as long as that server runs.
  void serve(rpc::CallQueue& queue, const security::Callers& callers);
  // Thread-safe. The state is "not serving" until this is called.
  void set_serving(bool serving) RUEDA_EXCLUDES(mutex_);

 private:
  friend class HealthStream;

  // The class that generated code would have, but messages stay bytes. On the wire every call is a
  // stream.
  class Methods final : public grpc::Service {
   public:
    Methods();
    using grpc::Service::RequestAsyncBidiStreaming;
  };

  Methods service_;
  const std::function<bool()> is_well_;
  Mutex mutex_;
  bool serving_ RUEDA_GUARDED_BY(mutex_) = false;
  std::list<HealthStream*> watchers_ RUEDA_GUARDED_BY(mutex_);
};

}  // namespace rueda::service
