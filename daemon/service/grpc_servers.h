// The daemon's two gRPC servers: one on the control port for other daemons and for operators, one
// behind the unix socket for launchers and operators of this node. Both have grpc.health.v1 and
// reflection.
#pragma once

#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>

#include "daemon/service/admin_service.h"
#include "daemon/service/agent_service.h"
#include "daemon/service/control_plane.h"

namespace rueda::service {

// control.proto's server side: hands new streams to the control plane.
class ControlService final : public v1::Control::CallbackService {
 public:
  explicit ControlService(GrpcControlPlane& plane) : plane_(plane) {}
  grpc::ServerBidiReactor<v1::LinkMessage, v1::LinkMessage>* Link(
      grpc::CallbackServerContext* context) override {
    return plane_.accept(context->peer());
  }

 private:
  GrpcControlPlane& plane_;
};

class GrpcServers {
 public:
  GrpcServers(const engine::Poster& control_loop, engine::Engine& engine, GrpcControlPlane& plane,
              const Membership& membership, observe::Metrics& metrics, const DaemonInfo& info);

  // Binds the control port; returns "host:port" with the port filled in. A port taken is an error.
  Result<std::string> start(const std::string& host, int port);
  // Takes over a connection of the unix socket.
  void adopt(int fd, const session::Credentials& peer);
  void set_serving(bool serving);
  // Waits for the calls under way for at most a second, then breaks them off.
  void stop();

 private:
  PeerCredentials credentials_;
  ControlService control_;
  AgentService agent_;
  AdminService admin_;
  std::unique_ptr<grpc::Server> network_;
  std::unique_ptr<grpc::Server> local_;
};

}  // namespace rueda::service
