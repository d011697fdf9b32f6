#include "fake_daemon.h"

#include <utility>

namespace rueda::test {

FakeDaemon::FakeDaemon(std::string socket, std::string node_id)
    : socket_(std::move(socket)), node_id_(std::move(node_id)) {
  grpc::ServerBuilder builder;
  const std::string target =
      socket_.front() == '@' ? "unix-abstract:" + socket_.substr(1) : "unix:" + socket_;
  builder.AddListeningPort(target, grpc::InsecureServerCredentials());
  builder.RegisterService(&agent_service_);
  builder.RegisterService(&admin_service_);
  server_ = builder.BuildAndStart();
}

FakeDaemon::~FakeDaemon() {
  if (server_) server_->Shutdown(std::chrono::system_clock::now());
}

bool FakeDaemon::wait_until(const std::function<bool()>& is_true) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(20), is_true);
}

void FakeDaemon::refuse_jobs(const std::string& text) {
  const std::lock_guard lock(mutex_);
  refusal_ = text;
}

void FakeDaemon::fail_job(const std::string& text, int origin_rank) {
  if (!wait_until([this] { return running_ != nullptr; })) return;
  v1::AgentEvent event;
  event.mutable_failed()->set_text(text);
  event.mutable_failed()->set_origin_node("elsewhere");
  event.mutable_failed()->set_origin_rank(origin_rank);
  const std::lock_guard lock(mutex_);
  if (running_ != nullptr) running_->Write(event);
}

std::vector<v1::JobSpec> FakeDaemon::wait_for_jobs(size_t count) {
  wait_until([&] { return jobs_.size() >= count; });
  const std::lock_guard lock(mutex_);
  return jobs_;
}

v1::RankFailed FakeDaemon::wait_for_rank_failed() {
  wait_until([this] { return !failed_ranks_.empty(); });
  const std::lock_guard lock(mutex_);
  return failed_ranks_.empty() ? v1::RankFailed() : failed_ranks_.front();
}

bool FakeDaemon::wait_for_job_end() {
  return wait_until([this] { return ended_count_ > 0; });
}

grpc::Status FakeDaemon::run_job(Stream& stream) {
  v1::AgentRequest request;
  if (!stream.Read(&request) || !request.has_job()) return grpc::Status::CANCELLED;
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(request.job());
    v1::AgentEvent event;
    if (refusal_.empty()) {
      event.mutable_registered();
    } else {
      event.mutable_failed()->set_text(refusal_);
      event.mutable_failed()->set_origin_rank(-1);
    }
    stream.Write(event);
    running_ = &stream;
    changed_.notify_all();
  }
  while (stream.Read(&request)) {
    const std::lock_guard lock(mutex_);
    if (request.has_rank_failed()) failed_ranks_.push_back(request.rank_failed());
    changed_.notify_all();
  }
  const std::lock_guard lock(mutex_);
  running_ = nullptr;
  ++ended_count_;
  changed_.notify_all();
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::AgentService::Run(grpc::ServerContext*, Stream* stream) {
  return daemon_.run_job(*stream);
}

grpc::Status FakeDaemon::AgentService::Describe(grpc::ServerContext*, const v1::DescribeRequest*,
                                                v1::DescribeReply* reply) {
  *reply = daemon_.describe_reply;
  reply->set_node_id(daemon_.node_id_);
  reply->set_version("test");
  reply->set_control_port(1);
  reply->set_http_port(2);
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::AdminService::GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                                                 v1::GetStatusReply* reply) {
  *reply = daemon_.status_reply;
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::AdminService::ListJobs(grpc::ServerContext*, const v1::ListJobsRequest*,
                                                v1::ListJobsReply* reply) {
  *reply = daemon_.jobs_reply;
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::AdminService::ListPlans(grpc::ServerContext*, const v1::ListPlansRequest*,
                                                 v1::ListPlansReply* reply) {
  *reply = daemon_.plans_reply;
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::AdminService::ListPeers(grpc::ServerContext*, const v1::ListPeersRequest*,
                                                 v1::ListPeersReply* reply) {
  *reply = daemon_.peers_reply;
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::AdminService::ListStalls(grpc::ServerContext*,
                                                  const v1::ListStallsRequest*,
                                                  v1::ListStallsReply* reply) {
  *reply = daemon_.stalls_reply;
  return grpc::Status::OK;
}

}  // namespace rueda::test
