// Stands in for ruedad in tests of its clients: serves agent.proto and admin.proto with the replies
// that the test sets, and keeps the requests that it gets.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "rueda/v1/admin.grpc.pb.h"
#include "rueda/v1/agent.grpc.pb.h"

namespace rueda::test {

class FakeDaemon {
 public:
  // Begins to serve at once. `socket` is a path or @name.
  FakeDaemon(std::string socket, std::string node_id);
  ~FakeDaemon();

  const std::string& socket() const { return socket_; }
  // Answers every job from now on by a failure with this text instead of registering it.
  void refuse_jobs(const std::string& text);
  // Waits for a job and tells its launcher that it has failed.
  void fail_job(const std::string& text, int origin_rank);

  // These wait up to 20 s for the event. They return an empty or default value if it did not come.
  std::vector<v1::JobSpec> wait_for_jobs(size_t count);
  v1::RankFailed wait_for_rank_failed();
  bool wait_for_job_end();

  // The daemon's description of itself, except its name, version and ports.
  v1::DescribeReply describe_reply;
  // The replies of the admin service.
  v1::GetStatusReply status_reply;
  v1::ListJobsReply jobs_reply;
  v1::ListPlansReply plans_reply;
  v1::ListPeersReply peers_reply;
  v1::ListStallsReply stalls_reply;

 private:
  using Stream = grpc::ServerReaderWriter<v1::AgentEvent, v1::AgentRequest>;

  class AgentService final : public v1::Agent::Service {
   public:
    explicit AgentService(FakeDaemon& daemon) : daemon_(daemon) {}
    grpc::Status Run(grpc::ServerContext*, Stream* stream) override;
    grpc::Status Describe(grpc::ServerContext*, const v1::DescribeRequest*,
                          v1::DescribeReply* reply) override;

   private:
    FakeDaemon& daemon_;
  };
  class AdminService final : public v1::Admin::Service {
   public:
    explicit AdminService(FakeDaemon& daemon) : daemon_(daemon) {}
    grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                           v1::GetStatusReply* reply) override;
    grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest*,
                          v1::ListJobsReply* reply) override;
    grpc::Status ListPlans(grpc::ServerContext*, const v1::ListPlansRequest*,
                           v1::ListPlansReply* reply) override;
    grpc::Status ListPeers(grpc::ServerContext*, const v1::ListPeersRequest*,
                           v1::ListPeersReply* reply) override;
    grpc::Status ListStalls(grpc::ServerContext*, const v1::ListStallsRequest*,
                            v1::ListStallsReply* reply) override;

   private:
    FakeDaemon& daemon_;
  };

  bool wait_until(const std::function<bool()>& is_true);
  grpc::Status run_job(Stream& stream);

  const std::string socket_;
  const std::string node_id_;
  AgentService agent_service_{*this};
  AdminService admin_service_{*this};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string refusal_;
  std::vector<v1::JobSpec> jobs_;
  std::vector<v1::RankFailed> failed_ranks_;
  Stream* running_ = nullptr;
  int ended_count_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace rueda::test
