// The service of admin.proto, for operators. It is read-only, except for Probe, timelines and
// EndJob, and answers from the control loop.
#pragma once

#include <grpcpp/grpcpp.h>

#include "daemon/engine/loops/poster.h"
#include "daemon/engine/node/engine.h"
#include "daemon/local/server.h"
#include "daemon/rpc/calls.h"
#include "daemon/service/links/control_plane.h"
#include "daemon/service/members/daemon_info.h"
#include "daemon/service/services/prober.h"
#include "rueda/v1/admin.grpc.pb.h"

namespace rueda::service {

class AdminService {
 public:
  AdminService(const engine::LoopPoster& control_loop, engine::Engine& engine,
               const GrpcControlPlane& control_plane, observe::Metrics& metrics,
               const DaemonInfo& info, Prober& prober)
      : control_loop_(control_loop),
        engine_(engine),
        control_plane_(control_plane),
        metrics_(metrics),
        info_(info),
        prober_(prober) {}

  // Returns the service for the builder of the one server that it is part of.
  grpc::Service& grpc_service() { return service_; }
  // Takes calls as long as that server runs.
  void serve(rpc::CallQueue& queue, const security::Callers& callers);
  // Takes calls at the unix socket, too.
  void serve(local::Server& server);

 private:
  template <class Request, class Reply>
  struct UnaryMethod;
  // Calls `visit` with the UnaryMethod of each method but Probe.
  template <class Visitor>
  static void each_unary(const Visitor& visit);

  // Answers on the control loop by what fill() says.
  template <class Request, class Reply>
  void read(rpc::Unary<Request, Reply>& call);
  void fill(v1::GetStatusReply& reply, const security::Caller& caller) const;
  void fill(v1::ListJobsReply& reply, const security::Caller& caller) const;
  void fill(v1::ListPlansReply& reply, const security::Caller& caller) const;
  void fill(v1::ListPeersReply& reply, const security::Caller& caller) const;
  void fill(v1::ListStallsReply& reply, const security::Caller& caller) const;

  using TimelineCall = rpc::Unary<v1::RequestTimelineRequest, v1::RequestTimelineReply>;
  void request_timeline(TimelineCall& call);
  using EndCall = rpc::Unary<v1::EndJobRequest, v1::EndJobReply>;
  void end(EndCall& call);
  void answer_end(EndCall& call);
  // Ends a job, on the control loop. Of a job that the caller may not see it says what it says of
  // one that there is not.
  Result<v1::EndJobReply> end_job(const v1::EndJobRequest& request, const security::Caller& caller);

  v1::Admin::AsyncService service_;
  const engine::LoopPoster& control_loop_;
  engine::Engine& engine_;
  const GrpcControlPlane& control_plane_;
  observe::Metrics& metrics_;
  const DaemonInfo& info_;
  Prober& prober_;
};

}  // namespace rueda::service
