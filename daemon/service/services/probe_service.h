// The service of probe.proto: this node's part in measuring bandwidths between nodes. Requests are
// bounded: the node measures only with nodes of its own --nodes, for some seconds, while it serves
// no job.
#pragma once

#include <string>

#include <grpcpp/grpcpp.h>

#include "daemon/engine/loops/poster.h"
#include "daemon/engine/node/engine.h"
#include "daemon/service/members/daemon_info.h"
#include "daemon/service/members/membership.h"
#include "daemon/service/rpc/calls.h"
#include "rueda/v1/probe.grpc.pb.h"

namespace rueda::service {

class ProbeService {
 public:
  ProbeService(const engine::Poster& control_loop, engine::Engine& engine,
               const Membership& membership, const DaemonInfo& info)
      : control_loop_(control_loop), engine_(engine), membership_(membership), info_(info) {}

  // Returns the service for the builder of the one server that it is part of.
  grpc::Service& grpc_service() { return service_; }
  // Takes calls as long as that server runs.
  void serve(CallQueue& queue);

 private:
  using ReceiveCall = UnaryCall<v1::ReceiveRequest, v1::ReceiveReply>;
  using SendCall = UnaryCall<v1::SendRequest, v1::SendReply>;
  using KeepCall = UnaryCall<v1::Bandwidths, v1::KeepReply>;

  // These run on the queue's thread.
  void receive(ReceiveCall& call);
  void send(SendCall& call);
  void keep(KeepCall& call);
  // Checks a measurement. `self` is the end that this node has to be, `other` is the other end.
  Status check(const v1::Measurement& measurement, const std::string& self,
               const std::string& other) const;
  Status check(const v1::Bandwidths& bandwidths) const;

  v1::Probe::AsyncService service_;
  const engine::Poster& control_loop_;
  engine::Engine& engine_;
  const Membership& membership_;
  const DaemonInfo& info_;
};

}  // namespace rueda::service
