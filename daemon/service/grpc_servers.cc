#include "daemon/service/grpc_servers.h"

#include <chrono>

#include <fcntl.h>
#include <grpc/grpc.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_posix.h>

#include "daemon/base/limits.h"

namespace rueda::service {

GrpcServers::GrpcServers(const engine::Poster& control_loop, engine::Engine& engine,
                         GrpcControlPlane& plane, const Membership& membership,
                         observe::Metrics& metrics, const DaemonInfo& info)
    : control_(plane),
      agent_(control_loop, engine, membership, credentials_, info),
      admin_(control_loop, engine, plane, metrics, info) {
  // Held for good: whoever lets go of gRPC last joins its threads, and that may be one of them,
  // where a stream ends in a callback.
  ::grpc_init();
}

Result<std::string> GrpcServers::start(const std::string& host, int port) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();

  grpc::ServerBuilder network;
  int bound = 0;
  const std::string shown = host.find(':') == std::string::npos ? host : '[' + host + ']';
  const std::string address = shown + ':' + std::to_string(port);
  network.AddListeningPort(address, grpc::InsecureServerCredentials(), &bound);
  // gRPC would share a port with a daemon that has it already.
  network.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  network.SetMaxReceiveMessageSize(static_cast<int>(limits::kMaxControlMessageBytes));
  network.RegisterService(&control_);
  network.RegisterService(&admin_);
  network_ = network.BuildAndStart();
  if (!network_ || bound == 0) {
    return Status(Code::kUnavailable, "cannot listen on control address " + address +
                                          ": the port is taken or the address is not this "
                                          "machine's; choose another with --control-port or "
                                          "--listen-host");
  }

  grpc::ServerBuilder local;
  local.RegisterService(&agent_);
  local.RegisterService(&admin_);
  local_ = local.BuildAndStart();
  if (!local_) return Status(Code::kInternal, "the gRPC server of the unix socket did not start");
  return shown + ':' + std::to_string(bound);
}

void GrpcServers::adopt(int fd, const session::Credentials& peer) {
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  credentials_.note(fd, peer);
  grpc::AddInsecureChannelFromFd(local_.get(), fd);
}

void GrpcServers::set_serving(bool serving) {
  for (grpc::Server* server : {network_.get(), local_.get()}) {
    if (server && server->GetHealthCheckService()) {
      server->GetHealthCheckService()->SetServingStatus(serving);
    }
  }
}

void GrpcServers::stop() {
  const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(1);
  for (grpc::Server* server : {network_.get(), local_.get()}) {
    if (server) server->Shutdown(deadline);
  }
  network_.reset();
  local_.reset();
}

}  // namespace rueda::service
