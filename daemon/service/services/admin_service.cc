#include "daemon/service/services/admin_service.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include <unistd.h>

#include "daemon/base/one_line.h"
#include "daemon/local/unary_call.h"
#include "daemon/service/convert/convert_timeline.h"

namespace rueda::service {
namespace {

void fill_job(const engine::JobSnapshot& from, v1::ListJobsReply::Job& to) {
  to.set_job_id(from.job);
  to.set_user(from.user);
  to.set_state(from.state);
  to.set_epoch(from.epoch);
  to.set_world_size(from.world_size);
  to.set_local_size(from.local_size);
  to.set_attached(from.attached);
  to.set_nodes(from.nodes);
  to.set_coordinator(from.coordinator);
  for (const std::string& node : from.ring) to.add_ring(node);
  to.set_coordination(from.mode);
  to.set_operations(from.operations);
  to.set_bytes_reduced(from.bytes_reduced);
  to.set_in_flight(from.in_flight);
  to.set_error(from.error);
  to.set_failure_timeout_ms(static_cast<uint64_t>(from.failure_timeout_ms));
  for (Rank rank : from.missing_ranks) to.add_missing_ranks(rank.value);
  for (const engine::JobSnapshot::ProcessSet& set : from.process_sets) {
    v1::ListJobsReply::ProcessSet& item = *to.add_process_sets();
    item.set_id(set.id);
    for (Rank rank : set.ranks) item.add_ranks(rank.value);
    item.set_locked(set.locked);
  }
  for (const engine::JobSnapshot::Generation& generation : from.generations) {
    v1::ListJobsReply::Generation& item = *to.add_generations();
    item.set_epoch(generation.epoch);
    item.set_began_ms(generation.began_ms);
    item.set_ranks(generation.ranks);
    item.set_nodes(generation.nodes);
    item.set_reason(generation.reason);
  }
}

std::string describe(const security::Caller& caller) {
  return caller.name.empty() ? caller.principal.to_string()
                             : "operator " + one_line(caller.name, kShownNameBytes);
}

double seconds(TicksMs ms) { return static_cast<double>(ms) / 1000.0; }

void fill_stall(const engine::StallSnapshot& from, v1::ListStallsReply::Stall& to) {
  to.set_job_id(from.job);
  to.set_process_set(from.process_set);
  to.set_tensor(from.stall.tensor);
  to.set_waiting_seconds(seconds(from.stall.age_ms));
  for (Rank rank : from.stall.submitted) to.add_submitted_ranks(rank.value);
  to.set_more_submitted(from.stall.more_submitted);
  for (const engine::StallSnapshot::MissingRank& item : from.missing) {
    v1::ListStallsReply::MissingRank& missing = *to.add_missing_ranks();
    missing.set_rank(item.activity.rank.value);
    missing.set_node_id(item.node_id);
    missing.set_has_left(item.activity.has_left);
    missing.set_last_submitted(item.activity.last_submitted);
    missing.set_last_submitted_process_set(item.activity.submitted_set);
    missing.set_last_submitted_seconds_ago(seconds(item.activity.submitted_ago_ms));
    missing.set_last_completed(item.activity.last_completed);
    missing.set_last_completed_process_set(item.activity.completed_set);
    missing.set_last_completed_seconds_ago(seconds(item.activity.completed_ago_ms));
    for (const std::string& name : item.similar_names) missing.add_similar_names(name);
    for (const uint32_t set : item.other_sets) missing.add_other_process_sets(set);
  }
  to.set_more_missing(from.stall.more_missing);
  to.set_text(from.text);
}

using ProbeCall = rpc::ServerCall<v1::ProbeRequest, v1::ProbeReply>;

// One probe. It deletes itself when gRPC has finished with it.
class ProbeStream final : public ProbeCall {
 public:
  ProbeStream(rpc::CallQueue& queue, Arrived arrival, Prober& prober)
      : ProbeCall(queue, std::move(arrival)), prober_(prober) {
    start_read(&request_);
  }

 private:
  void on_read(bool ok) override {
    if (!ok) return start_finish(grpc::Status::CANCELLED);
    number_ = prober_.start([this](const Result<v1::ProbeReply>& reply) {
      if (reply.is_ok()) return start_write(reply.value());
      start_finish({grpc::StatusCode::FAILED_PRECONDITION, reply.status().message()});
    });
  }
  void on_write(bool) override { start_finish(grpc::Status::OK); }
  void on_cancel() override {
    if (number_ != 0) prober_.cancel(number_);
  }
  void on_done() override { delete this; }

  Prober& prober_;
  v1::ProbeRequest request_;
  uint64_t number_ = 0;
};

// The same at the unix socket.
void begin_probe(Prober& prober, const std::shared_ptr<local::Call>& call) {
  const uint64_t number = prober.start([call](const Result<v1::ProbeReply>& reply) {
    if (!reply.is_ok()) {
      return call->finish({CallCode::kFailedPrecondition, reply.status().message()});
    }
    call->send(reply.value().SerializeAsString());
    call->finish({});
  });
  if (number != 0) call->set_on_gone([&prober, number] { prober.cancel(number); });
}

}  // namespace

// One unary method, whatever carries its calls.
template <class Request, class Reply>
struct AdminService::UnaryMethod {
  using Writer = grpc::ServerAsyncResponseWriter<Reply>;

  security::Action action;
  void (AdminService::*answer)(rpc::Unary<Request, Reply>&);
  // Asks gRPC for one call.
  void (v1::Admin::AsyncService::*ask)(grpc::ServerContext*, Request*, Writer*,
                                       grpc::CompletionQueue*, grpc::ServerCompletionQueue*, void*);
  bool is_in_turn = false;
};

template <class Visitor>
void AdminService::each_unary(const Visitor& visit) {
  using security::Action;
  using Async = v1::Admin::AsyncService;
  visit(UnaryMethod<v1::GetStatusRequest, v1::GetStatusReply>{
      Action::kReadStatus, &AdminService::read, &Async::RequestGetStatus, true});
  visit(UnaryMethod<v1::ListJobsRequest, v1::ListJobsReply>{Action::kReadJobs, &AdminService::read,
                                                            &Async::RequestListJobs, true});
  visit(UnaryMethod<v1::ListPlansRequest, v1::ListPlansReply>{
      Action::kReadPlans, &AdminService::read, &Async::RequestListPlans, true});
  visit(UnaryMethod<v1::ListPeersRequest, v1::ListPeersReply>{
      Action::kReadPeers, &AdminService::read, &Async::RequestListPeers, true});
  visit(UnaryMethod<v1::ListStallsRequest, v1::ListStallsReply>{
      Action::kReadStalls, &AdminService::read, &Async::RequestListStalls, true});
  visit(UnaryMethod<v1::RequestTimelineRequest, v1::RequestTimelineReply>{
      Action::kRequestTimeline, &AdminService::request_timeline, &Async::RequestRequestTimeline});
  visit(UnaryMethod<v1::EndJobRequest, v1::EndJobReply>{Action::kEndJob, &AdminService::end,
                                                        &Async::RequestEndJob});
}

void AdminService::serve(rpc::CallQueue& queue, const security::Callers& callers) {
  each_unary([&]<class Request, class Reply>(const UnaryMethod<Request, Reply>& method) {
    using Call = rpc::UnaryCall<Request, Reply>;
    const auto await = method.is_in_turn ? &Call::await_in_turn : &Call::await;
    await(
        queue, {method.action, callers},
        [this, &queue, ask = method.ask](auto* context, auto* request, auto* writer, void* tag) {
          (service_.*ask)(context, request, writer, queue.get(), queue.get(), tag);
        },
        [this, answer = method.answer](auto& call) { (this->*answer)(call); });
  });
  using ProbeArrival = ProbeCall::Arrived::element_type;
  rpc::await_streams<ProbeArrival>(
      queue, {security::Action::kProbeNodes, callers},
      [this, &queue](ProbeArrival& arrival, void* tag) {
        service_.RequestProbe(&arrival.context, &arrival.stream, queue.get(), queue.get(), tag);
      },
      [this, &queue](std::unique_ptr<ProbeArrival> arrival, const security::Caller&) {
        new ProbeStream(queue, std::move(arrival), prober_);
      });
}

void AdminService::serve(local::Server& server) {
  each_unary([&]<class Request, class Reply>(const UnaryMethod<Request, Reply>& method) {
    server.serve(method.action,
                 local::UnaryCall<Request, Reply>::service(
                     [this, answer = method.answer](auto& call) { (this->*answer)(call); },
                     method.is_in_turn));
  });
  server.serve(security::Action::kProbeNodes,
               {false, [this](const std::shared_ptr<local::Call>& call, const std::string&) {
                  begin_probe(prober_, call);
                }});
}

// These answers take at most a fifth of the loop's time, however many operators ask.
template <class Request, class Reply>
void AdminService::read(rpc::Unary<Request, Reply>& call) {
  control_loop_.post([this, &call] {
    const auto began = std::chrono::steady_clock::now();
    fill(call.reply(), call.caller());
    call.rest(4 * (std::chrono::steady_clock::now() - began));
    call.finish();
  });
}

void AdminService::end(EndCall& call) {
  control_loop_.post([this, &call] { answer_end(call); });
}

void AdminService::answer_end(EndCall& call) {
  const Result<v1::EndJobReply> reply = end_job(call.request(), call.caller());
  if (!reply.is_ok()) {
    const bool is_there = reply.status().code() != Code::kNotFound;
    return call.fail(
        {is_there ? CallCode::kFailedPrecondition : CallCode::kNotFound, reply.status().message()});
  }
  call.reply() = reply.value();
  call.finish();
}

Result<v1::EndJobReply> AdminService::end_job(const v1::EndJobRequest& request,
                                              const security::Caller& caller) {
  const std::string& job = request.job_id();
  const std::vector<engine::JobSnapshot> jobs = engine_.jobs();
  const bool is_there = std::any_of(jobs.begin(), jobs.end(), [&](const engine::JobSnapshot& one) {
    return one.job == job && security::reaches(security::Action::kEndJob, caller, one.owner);
  });
  if (!is_there) {
    return Status(Code::kNotFound, "no job " + one_line(job, kShownNameBytes) +
                                       " that you may end is registered on node " + info_.node_id +
                                       "; ruedactl jobs says which are there");
  }
  std::string text = "the job was ended by " + describe(caller) + " on node " + info_.node_id;
  if (!request.reason().empty()) text += ": " + one_line(request.reason(), kShownNameBytes);
  const Result<int> nodes = engine_.end_job(job, text);
  if (!nodes.is_ok()) return nodes.status();
  v1::EndJobReply reply;
  reply.set_job_id(job);
  reply.set_nodes(nodes.value());
  reply.set_text(text);
  return reply;
}

void AdminService::request_timeline(TimelineCall& call) {
  Result<engine::TimelineRequest> wanted = from_proto(call.request().timeline());
  if (!wanted.is_ok()) {
    return call.fail({CallCode::kInvalidArgument, wanted.status().message()});
  }
  control_loop_.post([this, &call, wanted = std::move(wanted).value()] {
    const Result<JobId> job =
        engine_.request_timeline(call.request().job_id(), wanted, call.caller().principal);
    if (!job.is_ok()) {
      return call.fail({CallCode::kFailedPrecondition, job.status().message()});
    }
    call.reply().set_job_id(job.value());
    call.finish();
  });
}

void AdminService::fill(v1::GetStatusReply& reply, const security::Caller&) const {
  reply.set_node_id(info_.node_id);
  reply.set_version(RUEDA_VERSION);
  reply.set_pid(::getpid());
  reply.set_uptime_seconds(static_cast<double>(steady_now_ms() - info_.started_ms) / 1000.0);
  reply.set_control_address(info_.control_address);
  reply.set_data_address(info_.data_address);
  reply.set_http_address(info_.http_address);
  reply.set_socket(info_.socket);
  reply.set_jobs(static_cast<int32_t>(engine_.jobs().size()));
  reply.set_clients(engine_.clients());
  reply.set_simd(info_.simd);
  reply.add_transports(info_.transport);
  reply.set_rdma_fallbacks(static_cast<int64_t>(metrics_.daemon().rdma_fallbacks.Value()));
  reply.set_rdma_trouble(info_.rdma_trouble);
  reply.set_protection(info_.protection);
  reply.set_data_protection(info_.data_protection);
  for (const std::string& part : info_.sandbox) reply.add_sandbox(part);
  reply.set_sandbox_trouble(info_.sandbox_trouble);
  if (security::TlsFolder* const folder = control_plane_.credentials().folder()) {
    const security::CertificateFacts own = folder->files()->own;
    reply.set_identity(to_uri(own.identity));
    reply.set_certificate_expiry(own.not_after.time_since_epoch().count());
    reply.set_certificate_trouble(folder->trouble());
  }
  for (const std::string& label : info_.labels) reply.add_labels(label);
  reply.set_gpu_workers(static_cast<int32_t>(metrics_.daemon().gpu_workers.Value()));
  reply.set_gpu_workers_without_mps(
      static_cast<int32_t>(metrics_.daemon().gpu_workers_without_mps.Value()));
  reply.set_gpu_staged_clients(static_cast<int32_t>(metrics_.daemon().gpu_staged_clients.Value()));
  for (const auto& [from, to] : engine_.unreachable_pairs()) {
    v1::GetStatusReply::UnreachablePair& pair = *reply.add_unreachable_pairs();
    pair.set_from(from);
    pair.set_to(to);
  }
  reply.set_state(engine_.is_stopping() ? "stopping" : "ready");
}

void AdminService::fill(v1::ListJobsReply& reply, const security::Caller& caller) const {
  for (const engine::JobSnapshot& job : engine_.jobs()) {
    if (security::reaches(security::Action::kReadJobs, caller, job.owner)) {
      fill_job(job, *reply.add_jobs());
    } else {
      reply.set_jobs_of_others(reply.jobs_of_others() + 1);
    }
  }
}

void AdminService::fill(v1::ListPeersReply& reply, const security::Caller&) const {
  for (const PeerSnapshot& from : control_plane_.peers()) {
    if (!from.is_needed) continue;  // No job knows this peer.
    v1::ListPeersReply::Peer& to = *reply.add_peers();
    to.set_node_id(from.node_id);
    to.set_control_address(from.control_address);
    to.set_state(from.state);
    to.set_version(from.version);
    to.set_last_heard_seconds(from.last_heard_seconds);
    if (from.node_id.empty()) continue;
    to.set_transport(info_.transport);
    const auto traffic = metrics_.find_peer(from.node_id, info_.transport);
    if (!traffic) continue;
    to.set_data_bytes_sent(static_cast<uint64_t>(traffic->sent_bytes.Value()));
    to.set_data_bytes_received(static_cast<uint64_t>(traffic->received_bytes.Value()));
  }
}

void AdminService::fill(v1::ListPlansReply& reply, const security::Caller& caller) const {
  for (const engine::PlanSnapshot& from : engine_.plans()) {
    if (!security::reaches(security::Action::kReadPlans, caller, from.owner)) continue;
    v1::ListPlansReply::Plan& to = *reply.add_plans();
    to.set_job_id(from.job);
    to.set_process_set(from.process_set);
    for (Rank rank : from.ranks) to.add_ranks(rank.value);
    for (const core::PlanBatch& item : from.plan.batches) {
      v1::ListPlansReply::Batch& batch = *to.add_batches();
      batch.set_collective(to_string(item.tensors.front()->kind));
      batch.set_dtype(to_string(item.tensors.front()->dtype));
      batch.set_after(static_cast<uint32_t>(item.after + 1));
      batch.set_ends(item.ends);
      int64_t bytes = 0;
      for (const core::DescriptorPtr& tensor : item.tensors) {
        bytes += tensor->bytes();
        batch.add_tensors(tensor->name);
      }
      batch.set_bytes(static_cast<uint64_t>(bytes));
    }
  }
}

void AdminService::fill(v1::ListStallsReply& reply, const security::Caller& caller) const {
  for (const engine::StallSnapshot& stall : engine_.stalls()) {
    if (!security::reaches(security::Action::kReadStalls, caller, stall.owner)) continue;
    fill_stall(stall, *reply.add_stalls());
  }
}

}  // namespace rueda::service
