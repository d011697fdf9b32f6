// A call with a request and a reply, as services see it: they do not know whether it came over the
// network, by gRPC, or by the unix socket. This header has nothing of gRPC's.
#pragma once

#include <chrono>

#include "daemon/rpc/call_status.h"
#include "daemon/security/policy.h"

namespace rueda::rpc {

// The call lives until finish() or fail(), one of which must be called once, on any thread.
template <class Request, class Reply>
class Unary {
 public:
  virtual const Request& request() const = 0;
  virtual const security::Caller& caller() const = 0;
  // What finish() sends.
  virtual Reply& reply() = 0;
  virtual void finish() = 0;
  // Ends the call with an error.
  virtual void fail(const CallStatus& status) = 0;
  // Sets how long no other call of those that are taken in turn is taken after this one, at most a
  // second. Must be called before finish() or fail().
  virtual void rest(std::chrono::nanoseconds time) = 0;

 protected:
  ~Unary() = default;
};

}  // namespace rueda::rpc
