#include "daemon/service/grpc_servers.h"

#include <chrono>
#include <cstdlib>

#include <fcntl.h>
#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/server_posix.h>

#include "daemon/base/limits.h"

namespace rueda::service {
namespace {

// Reflection has a synchronous service, and that a thread that waits for its next call; at the end
// of each wait it wakes for nothing.
constexpr int kReflectionWaitMs = 3'600'000;
// On the unix socket. A launcher has one, an operator a few.
constexpr int kMostCallsOfConnection = 32;

}  // namespace

void ControlService::serve(CallQueue& queue) {
  await_streams<LinkArrival>(
      queue,
      [this, &queue](LinkArrival& arrival, void* tag) {
        service_.RequestLink(&arrival.context, &arrival.stream, queue.get(), queue.get(), tag);
      },
      [this, &queue](std::unique_ptr<LinkArrival> arrival) {
        plane_.accept(queue, std::move(arrival));
      });
}

GrpcServers::GrpcServers(const engine::Poster& control_loop, engine::Engine& engine,
                         GrpcControlPlane& plane, const Membership& membership,
                         observe::Metrics& metrics, const DaemonInfo& info)
    : plane_(plane),
      prober_(membership, info),
      control_(plane),
      agent_(control_loop, engine, membership, credentials_, info),
      probe_(control_loop, engine, membership, info),
      network_admin_(control_loop, engine, plane, metrics, info),
      local_admin_(control_loop, engine, plane, metrics, info, &credentials_, &prober_) {
  // Held for good: whoever lets go of gRPC last joins its threads, and that may be one of them,
  // where a stream ends.
  ::grpc_init();
  // What matters of it, this daemon says itself; with $GRPC_VERBOSITY gRPC speaks.
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function([](gpr_log_func_args*) {});
}

void GrpcServers::prepare(Served& served, grpc::ServerBuilder& builder) {
  using Sync = grpc::ServerBuilder::SyncServerOption;
  builder.SetSyncServerOption(Sync::NUM_CQS, 1);
  builder.SetSyncServerOption(Sync::MIN_POLLERS, 1);
  builder.SetSyncServerOption(Sync::MAX_POLLERS, 1);
  builder.SetSyncServerOption(Sync::CQ_TIMEOUT_MSEC, kReflectionWaitMs);
  // Else every heartbeat is followed by a ping and a timer, to learn how much may be on its way.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.RegisterService(&served.health.grpc_service());
  served.queue = std::make_unique<CallQueue>(builder);
  served.server = builder.BuildAndStart();
}

Result<std::string> GrpcServers::bind(const std::string& host, int port) {
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();

  grpc::ServerBuilder network;
  int bound = 0;
  const std::string shown = host.find(':') == std::string::npos ? host : '[' + host + ']';
  const std::string address = shown + ':' + std::to_string(port);
  network.AddListeningPort(address, grpc::InsecureServerCredentials(), &bound);
  // gRPC would share a port with a daemon that has it already.
  network.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  network.SetMaxReceiveMessageSize(static_cast<int>(limits::kMaxControlMessageBytes));
  network.RegisterService(&control_.grpc_service());
  network.RegisterService(&probe_.grpc_service());
  network.RegisterService(&network_admin_.grpc_service());
  prepare(network_, network);
  if (!network_.server || bound == 0) {
    if (port == 0) {
      return Status(Code::kUnavailable,
                    "cannot listen on " + shown +
                        ": it is no address of this machine (--listen-host), or no port is left: "
                        "see \"ss -s\" and net.ipv4.ip_local_port_range");
    }
    return Status(Code::kUnavailable, "cannot listen on control address " + address +
                                          ": the port is taken or the address is not this "
                                          "machine's; choose another with --control-port or "
                                          "--listen-host");
  }
  plane_.set_queue(*network_.queue);

  grpc::ServerBuilder local;
  // Connections are counted by user (session/ledger.h), and each holds so many calls.
  local.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostCallsOfConnection);
  local.RegisterService(&agent_.grpc_service());
  local.RegisterService(&local_admin_.grpc_service());
  prepare(local_, local);
  if (!local_.server) {
    return Status(Code::kInternal, "the gRPC server of the unix socket did not start");
  }
  return shown + ':' + std::to_string(bound);
}

void GrpcServers::serve() {
  control_.serve(*network_.queue);
  probe_.serve(*network_.queue);
  network_admin_.serve(*network_.queue);
  agent_.serve(*local_.queue);
  local_admin_.serve(*local_.queue);
  for (Served* one : {&network_, &local_}) one->health.serve(*one->queue);
}

void GrpcServers::adopt(int fd, const session::Credentials& peer) {
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  credentials_.note(fd, peer);
  grpc::AddInsecureChannelFromFd(local_.server.get(), fd);
}

void GrpcServers::set_serving(bool serving) {
  for (Served* one : {&network_, &local_}) one->health.set_serving(serving);
}

void GrpcServers::stop() {
  prober_.stop();  // an operator's call waits for it
  const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(1);
  for (Served* one : {&network_, &local_}) {
    if (one->server) one->server->Shutdown(deadline);
    if (one->queue) one->queue->stop();
    one->server.reset();
  }
}

}  // namespace rueda::service
