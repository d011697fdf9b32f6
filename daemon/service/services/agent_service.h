// The service of agent.proto: launchers register their jobs here, over the daemon's unix socket,
// and a job stays registered as long as its launcher's stream is open.
#pragma once

#include <grpcpp/grpcpp.h>

#include "daemon/engine/loops/poster.h"
#include "daemon/engine/node/engine.h"
#include "daemon/observe/refusals.h"
#include "daemon/rpc/calls.h"
#include "daemon/service/members/daemon_info.h"
#include "daemon/service/members/membership.h"
#include "rueda/v1/agent.grpc.pb.h"

namespace rueda::service {

class AgentService {
 public:
  AgentService(const engine::LoopPoster& control_loop, engine::Engine& engine,
               const Membership& membership, const DaemonInfo& info, observe::Refusals& refusals)
      : control_loop_(control_loop),
        engine_(engine),
        membership_(membership),
        info_(info),
        refusals_(refusals) {}

  // Returns the service for the builder of the one server that it is part of.
  grpc::Service& grpc_service() { return service_; }
  // Takes calls as long as that server runs.
  void serve(rpc::CallQueue& queue, const security::Callers& callers);

 private:
  void describe(v1::DescribeReply& reply) const;

  v1::Agent::AsyncService service_;
  const engine::LoopPoster& control_loop_;
  engine::Engine& engine_;
  const Membership& membership_;
  const DaemonInfo& info_;
  observe::Refusals& refusals_;
};

}  // namespace rueda::service
