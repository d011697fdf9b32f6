// The service of probe.proto: this node's part in measuring bandwidths between nodes. Requests are
// bounded: the node does only what a prober of its own --nodes confirms, and measures only with
// nodes of its own --nodes, for some seconds, while it serves no job.
#pragma once

#include <string>

#include <grpcpp/grpcpp.h>

#include "daemon/engine/loops/poster.h"
#include "daemon/engine/node/engine.h"
#include "daemon/rpc/calls.h"
#include "daemon/service/members/daemon_info.h"
#include "daemon/service/members/membership.h"
#include "daemon/service/services/errand_desk.h"
#include "daemon/service/services/prober.h"
#include "rueda/v1/probe.grpc.pb.h"

namespace rueda::service {

class ProbeService {
 public:
  ProbeService(const engine::LoopPoster& control_loop, engine::Engine& engine,
               const Membership& membership, const DaemonInfo& info,
               const rpc::Credentials& credentials, Prober& prober)
      : control_loop_(control_loop),
        engine_(engine),
        membership_(membership),
        info_(info),
        prober_(prober),
        desk_(membership, info, credentials) {}

  // Returns the service for the builder of the one server that it is part of.
  grpc::Service& grpc_service() { return service_; }
  // Takes calls as long as that server runs.
  void serve(rpc::CallQueue& queue, const security::Callers& callers);
  // Answers the calls that wait for a prober, before that server is shut down.
  void stop() { desk_.stop(); }

 private:
  using ReceiveCall = rpc::Unary<v1::Errand, v1::ReceiveReply>;
  using SendCall = rpc::Unary<v1::Errand, v1::SendReply>;
  using KeepCall = rpc::Unary<v1::Errand, v1::KeepReply>;
  using ExplainCall = rpc::Unary<v1::Errand, v1::Explanation>;

  // Asks the prober what the call's errand is, and calls `act` with that on the desk's thread; or
  // fails the call.
  template <class AnyCall>
  void look_into(AnyCall& call, v1::Explanation::WhatCase expected,
                 void (ProbeService::*act)(AnyCall&, const v1::Explanation&));
  // These run on the desk's thread.
  void receive(ReceiveCall& call, const v1::Explanation& explanation);
  void send(SendCall& call, const v1::Explanation& explanation);
  void keep(KeepCall& call, const v1::Explanation& explanation);
  // This runs on the queue's thread.
  void explain(ExplainCall& call);
  // Checks a measurement. `self` is the end that this node has to be, `other` is the other end.
  Status check(const v1::Measurement& measurement, const std::string& self,
               const std::string& other) const;
  Status check(const v1::Bandwidths& bandwidths) const;

  v1::Probe::AsyncService service_;
  const engine::LoopPoster& control_loop_;
  engine::Engine& engine_;
  const Membership& membership_;
  const DaemonInfo& info_;
  Prober& prober_;
  ErrandDesk desk_;
};

}  // namespace rueda::service
