// The daemon's servers of calls: gRPC's on the control port, for other daemons and for operators,
// with grpc.health.v1 and reflection; and one behind the unix socket, for launchers and operators
// of this node.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <grpcpp/grpcpp.h>

#include "daemon/local/server.h"
#include "daemon/observe/refusals.h"
#include "daemon/rpc/call_queue.h"
#include "daemon/security/policy.h"
#include "daemon/service/links/acceptor.h"
#include "daemon/service/links/control_plane.h"
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

class Servers {
 public:
  // `is_well` says whether all loops of the daemon turn, for the health service; it must be
  // thread-safe. Members of the admin group are operators, as root is.
  Servers(const engine::LoopPoster& control_loop, engine::Engine& engine, GrpcControlPlane& plane,
          const Membership& membership, observe::Metrics& metrics, const DaemonInfo& info,
          const std::function<bool()>& is_well, std::optional<gid_t> admin_group = {});
  ~Servers();

  // Binds the control port, unless it is `open` already, and returns "host:port" with the port
  // filled in. A port in use is an error. Calls that arrive wait until serve().
  Result<std::string> bind(const std::string& host, int port, Listener open = {});
  // Starts to answer calls. From here on the DaemonInfo is read on the threads of calls, and must
  // not change.
  void serve();
  // Returns the acceptor of the control port.
  const Acceptor& acceptor() const { return acceptor_; }
  // Takes over a connection of the unix socket, which is the daemon's own (session::CallHandoff).
  // It waits until serve().
  void adopt(UniqueFd socket, const session::Credentials& peer,
             const std::vector<gid_t>& groups = {});
  void set_serving(bool serving);
  // Waits at most a second for calls under way, then breaks them off. Their answers need the
  // control loop, so this must not be called on that loop once it serves.
  void stop();

 private:
  void run_local();
  void stop_local();

  observe::Refusals at_network_;
  observe::Refusals at_socket_;
  GrpcControlPlane& plane_;
  const std::optional<gid_t> admin_group_;
  Prober prober_;
  ControlService control_;
  AgentService agent_;
  ProbeService probe_;
  AdminService admin_;
  HealthService health_;
  // The server on the network, with its queue and thread.
  std::unique_ptr<rpc::CallQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  // The server behind the unix socket, with its loop and thread.
  boost::asio::io_context local_loop_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> local_work_{
      local_loop_.get_executor()};
  local::Server local_{local_loop_};
  std::thread local_thread_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> to_network_;
  Acceptor acceptor_;
};

}  // namespace rueda::service
