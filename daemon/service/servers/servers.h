// The daemon's two gRPC servers: one on the control port for other daemons and for operators, one
// behind the unix socket for launchers and operators of this node. Both have grpc.health.v1 and
// reflection.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "daemon/observe/refusals.h"
#include "daemon/rpc/call_queue.h"
#include "daemon/security/policy.h"
#include "daemon/service/links/acceptor.h"
#include "daemon/service/links/control_plane.h"
#include "daemon/service/servers/local_caller.h"
#include "daemon/service/services/admin_service.h"
#include "daemon/service/services/agent_service.h"
#include "daemon/service/services/health_service.h"
#include "daemon/service/services/probe_service.h"
#include "daemon/service/services/prober.h"
#include "rueda/v1/control.grpc.pb.h"

namespace rueda::service {

// The server side of control.proto: it hands new streams to the control plane.
class ControlService {
 public:
  explicit ControlService(GrpcControlPlane& plane) : plane_(plane) {}
  // Returns the service for the builder of the one server that it is part of.
  grpc::Service& grpc_service() { return service_; }
  // Takes calls as long as that server runs.
  void serve(rpc::CallQueue& queue, const security::Callers& callers);

 private:
  GrpcControlPlane& plane_;
  v1::Control::WithRawMethod_Link<v1::Control::AsyncService> service_;
};

class GrpcServers {
 public:
  // `is_well` says whether all loops of the daemon turn, for the health service; it must be
  // thread-safe. Members of the admin group are operators, as root is.
  GrpcServers(const engine::LoopPoster& control_loop, engine::Engine& engine,
              GrpcControlPlane& plane, const Membership& membership, observe::Metrics& metrics,
              const DaemonInfo& info, const std::function<bool()>& is_well,
              std::optional<gid_t> admin_group = {});
  ~GrpcServers();

  // Binds the control port, unless it is `open` already, and returns "host:port" with the port
  // filled in. A port in use is an error. Calls that arrive wait until serve().
  Result<std::string> bind(const std::string& host, int port, Listener open = {});
  // Starts to answer calls. From here on the DaemonInfo is read on gRPC's threads, and must not
  // change.
  void serve();
  // Returns the acceptor of the control port.
  const Acceptor& acceptor() const { return acceptor_; }
  // Takes over a connection of the unix socket.
  void adopt(int fd, const session::Credentials& peer, const std::vector<gid_t>& groups = {});
  void set_serving(bool serving);
  // Waits at most a second for calls under way, then breaks them off. Their answers need the
  // control loop, so this must not be called on that loop once it serves.
  void stop();

 private:
  // A server with its queue and thread.
  struct Served {
    explicit Served(const std::function<bool()>& is_well) : health(is_well) {}
    std::unique_ptr<rpc::CallQueue> queue;
    std::unique_ptr<grpc::Server> server;
    HealthService health;
  };

  static void prepare(Served& served, grpc::ServerBuilder& builder);

  observe::Refusals at_network_;
  observe::Refusals at_socket_;
  GrpcControlPlane& plane_;
  LocalCallers local_callers_;
  Prober prober_;
  ControlService control_;
  AgentService agent_;
  ProbeService probe_;
  AdminService network_admin_;
  AdminService local_admin_;
  Served network_;
  Served local_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> to_network_;
  Acceptor acceptor_;
};

}  // namespace rueda::service
