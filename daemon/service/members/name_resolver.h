// Host names, resolved as every program of the system does it, on threads of their own: the
// system's resolver blocks for as long as a name server does not answer.
#pragma once

#include <functional>
#include <memory>

#include "daemon/base/host_port.h"

namespace rueda::service {

class NameResolver {
 public:
  // gRPC's target (dial_target()), or why there is none.
  using Callback = std::function<void(const Result<std::string>&)>;

  NameResolver();
  // Nothing is called back any more; threads that still wait for a name server end by themselves.
  ~NameResolver();
  NameResolver(const NameResolver&) = delete;
  NameResolver& operator=(const NameResolver&) = delete;

  // `done` is called once: at once for a numeric host, else on another thread, and there it must
  // only hand over.
  void resolve(const HostPort& address, Callback done);

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace rueda::service
