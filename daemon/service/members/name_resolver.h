// Resolves host names as every program of the system does, on threads of its own: the system's
// resolver blocks for as long as a name server does not answer.
#pragma once

#include <functional>
#include <memory>

#include "daemon/base/host_port.h"

namespace rueda::service {

class NameResolver {
 public:
  // Gets gRPC's target (dial_target()), or the reason why there is none.
  using Callback = std::function<void(const Result<std::string>&)>;

  NameResolver();
  // After this nothing is called back; threads that still wait for a name server end by themselves.
  ~NameResolver();
  NameResolver(const NameResolver&) = delete;
  NameResolver& operator=(const NameResolver&) = delete;

  // Resolves an address. `done` is called once: at once for a numeric host, otherwise on another
  // thread, where it must only hand the result over.
  void resolve(const HostPort& address, Callback done);

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace rueda::service
