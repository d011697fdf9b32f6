// admin.proto: what an operator may ask. Read-only; answered from the control loop.
#pragma once

#include <grpcpp/grpcpp.h>

#include "daemon/engine/engine.h"
#include "daemon/engine/poster.h"
#include "daemon/service/control_plane.h"
#include "daemon/service/daemon_info.h"
#include "rueda/v1/admin.grpc.pb.h"

namespace rueda::service {

class AdminService final : public v1::Admin::CallbackService {
 public:
  AdminService(const engine::Poster& control_loop, engine::Engine& engine,
               const GrpcControlPlane& control_plane, observe::Metrics& metrics,
               const DaemonInfo& info)
      : control_loop_(control_loop),
        engine_(engine),
        control_plane_(control_plane),
        metrics_(metrics),
        info_(info) {}

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::GetStatusReply* reply) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsReply* reply) override;
  grpc::ServerUnaryReactor* ListPeers(grpc::CallbackServerContext* context,
                                      const v1::ListPeersRequest* request,
                                      v1::ListPeersReply* reply) override;

 private:
  const engine::Poster& control_loop_;
  engine::Engine& engine_;
  const GrpcControlPlane& control_plane_;
  observe::Metrics& metrics_;
  const DaemonInfo& info_;
};

}  // namespace rueda::service
