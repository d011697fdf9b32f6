// The service of agent.proto: launchers register their jobs here, over the daemon's unix socket,
// and a job stays registered as long as its launcher's stream is open.
#pragma once

#include "daemon/engine/loops/poster.h"
#include "daemon/engine/node/engine.h"
#include "daemon/local/server.h"
#include "daemon/service/members/daemon_info.h"
#include "daemon/service/members/membership.h"
#include "rueda/v1/agent.pb.h"

namespace rueda::service {

class AgentService {
 public:
  AgentService(const engine::LoopPoster& control_loop, engine::Engine& engine,
               const Membership& membership, const DaemonInfo& info)
      : control_loop_(control_loop), engine_(engine), membership_(membership), info_(info) {}

  // Takes calls as long as the server runs.
  void serve(local::Server& server);

 private:
  void describe(v1::DescribeReply& reply) const;

  const engine::LoopPoster& control_loop_;
  engine::Engine& engine_;
  const Membership& membership_;
  const DaemonInfo& info_;
};

}  // namespace rueda::service
