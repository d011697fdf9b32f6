#include "agent/rendezvous.h"

#include <chrono>
#include <mutex>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "agent/latch.h"
#include "agent/text.h"
#include "rueda/v1/agent.grpc.pb.h"

namespace rueda::agent {
namespace {

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

grpc::Status to_grpc(const Status& status) {
  if (status.is_ok()) return grpc::Status::OK;
  return {
      status.is_retryable() ? grpc::StatusCode::UNAVAILABLE : grpc::StatusCode::INVALID_ARGUMENT,
      status.message()};
}

Arrival arrival_from(const v1::EnterRequest& request) {
  return {request.node_rank(), request.nnodes(),          request.nproc(),
          request.node_id(),   request.control_address(), request.rdzv_id()};
}

v1::EnterReply reply_for(const JobIdentity& identity, const std::vector<NodeLayout>& nodes) {
  v1::EnterReply reply;
  reply.set_job_id(identity.job_id);
  reply.set_token(identity.token);
  reply.set_master_addr(identity.master_addr);
  reply.set_master_port(identity.master_port);
  for (const NodeLayout& node : nodes) {
    v1::NodeSpec& out = *reply.add_nodes();
    out.set_node_id(node.node_id);
    out.set_control_address(node.control_address);
    for (Rank rank : node.ranks) out.add_ranks(rank.value);
  }
  return reply;
}

JobLayout layout_from(const v1::EnterReply& reply) {
  JobLayout out{reply.job_id(), reply.token(), {}, reply.master_addr(), reply.master_port()};
  for (const v1::NodeSpec& node : reply.nodes()) {
    NodeLayout& added = out.nodes.emplace_back();
    added.node_id = node.node_id();
    added.control_address = node.control_address();
    for (int rank : node.ranks()) added.ranks.push_back(Rank(rank));
  }
  return out;
}

class Service final : public v1::Rendezvous::CallbackService {
 public:
  Service(int nnodes, const std::string& rdzv_id, JobIdentity identity, Meeting meeting)
      : identity_(std::move(identity)), table_(nnodes, rdzv_id, meeting) {}

  std::string missing() {
    const std::lock_guard lock(mutex_);
    return table_.missing();
  }

  void refuse_waiting() {
    std::map<int, Waiter*> waiting;
    {
      const std::lock_guard lock(mutex_);
      waiting.swap(waiting_);
    }
    for (const auto& [number, waiter] : waiting) {
      waiter->Finish({grpc::StatusCode::UNAVAILABLE, "node 0 has left the rendezvous"});
    }
  }

  grpc::ServerUnaryReactor* Enter(grpc::CallbackServerContext*, const v1::EnterRequest* request,
                                  v1::EnterReply* reply) override {
    auto* const waiter = new Waiter(*this, request->node_rank(), reply);
    Waiter* replaced = nullptr;
    std::map<int, Waiter*> met;
    Status status;
    {
      const std::lock_guard lock(mutex_);
      status = table_.arrive(arrival_from(*request));
      if (status.is_ok()) {
        replaced = std::exchange(waiting_[request->node_rank()], waiter);
        if (table_.is_complete()) {
          met.swap(waiting_);
          status = answer(met);
        }
      }
    }
    // Outside of the lock: finishing may run OnDone at once.
    if (replaced != nullptr) replaced->Finish({grpc::StatusCode::ABORTED, "this node came again"});
    for (const auto& [number, other] : met) {
      if (other != waiter) other->Finish(to_grpc(status));
    }
    if (!status.is_ok() || !met.empty()) waiter->Finish(to_grpc(status));
    return waiter;
  }

 private:
  // A node that waits for the others. Whoever takes it out of waiting_ finishes it.
  class Waiter final : public grpc::ServerUnaryReactor {
   public:
    Waiter(Service& service, int node_rank, v1::EnterReply* reply)
        : service_(service), node_rank_(node_rank), reply_(reply) {}
    v1::EnterReply& reply() { return *reply_; }
    void OnCancel() override {
      if (service_.take_out(node_rank_, this)) Finish(grpc::Status::CANCELLED);
    }
    void OnDone() override { delete this; }

   private:
    Service& service_;
    const int node_rank_;
    v1::EnterReply* const reply_;
  };

  // With mutex_ held.
  Status answer(const std::map<int, Waiter*>& met) {
    const Result<std::vector<NodeLayout>> nodes = table_.lay_out();
    if (!nodes.is_ok()) return nodes.status();
    for (const auto& [number, waiter] : met) {
      waiter->reply() = reply_for(identity_, nodes.value());
    }
    return Status::ok();
  }

  bool take_out(int node_rank, Waiter* waiter) {
    const std::lock_guard lock(mutex_);
    const auto found = waiting_.find(node_rank);
    if (found == waiting_.end() || found->second != waiter) return false;
    waiting_.erase(found);
    table_.depart(node_rank);
    return true;
  }

  const JobIdentity identity_;
  std::mutex mutex_;
  RendezvousTable table_;
  std::map<int, Waiter*> waiting_;
};

class Server final : public RendezvousServer {
 public:
  Server(int nnodes, const std::string& rdzv_id, JobIdentity identity, Meeting meeting)
      : service_(nnodes, rdzv_id, std::move(identity), meeting) {}
  ~Server() override {
    service_.refuse_waiting();
    if (server_) {
      server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
    }
  }

  bool listen(const std::string& address) {
    grpc::ServerBuilder builder;
    int port = 0;  // 1 for a path
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
    // Otherwise a second job would share the port in silence.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    return server_ != nullptr && port != 0;
  }
  std::string missing() const override { return service_.missing(); }

 private:
  mutable Service service_;
  std::unique_ptr<grpc::Server> server_;
};

struct PendingCall {
  std::unique_ptr<v1::Rendezvous::Stub> stub;
  grpc::ClientContext context;
  v1::EnterRequest request;
  v1::EnterReply reply;
  RendezvousCall::Callback callback;
  std::shared_ptr<DoneLatch> done = std::make_shared<DoneLatch>();
};

class CallHandle final : public RendezvousCall {
 public:
  explicit CallHandle(std::unique_ptr<PendingCall> call) : call_(std::move(call)) {}
  ~CallHandle() override {
    call_->context.TryCancel();
    call_->done->wait();
  }

 private:
  const std::unique_ptr<PendingCall> call_;
};

void on_answer(PendingCall& call, const grpc::Status& status) {
  if (status.ok()) {
    call.callback(layout_from(call.reply));
    return;
  }
  const bool is_temporary = status.error_code() == grpc::StatusCode::UNAVAILABLE;
  const bool is_late = status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
  call.callback(Status(is_temporary ? Code::kUnavailable
                       : is_late    ? Code::kTimeout
                                    : Code::kInvalidArgument,
                       status.error_message()));
}

}  // namespace

Result<std::unique_ptr<RendezvousServer>> RendezvousServer::start(const std::string& endpoint,
                                                                  int nnodes,
                                                                  const std::string& rdzv_id,
                                                                  JobIdentity identity,
                                                                  Meeting meeting) {
  auto server = std::make_unique<Server>(nnodes, rdzv_id, std::move(identity), meeting);
  if (endpoint.starts_with("unix:")) {
    if (!server->listen(endpoint)) {
      return Status(Code::kUnavailable, "cannot listen at the rendezvous " + endpoint);
    }
    return std::unique_ptr<RendezvousServer>(std::move(server));
  }
  const auto address = parse_host_port(endpoint);
  if (!address) return Status(Code::kInvalidArgument, endpoint + " is not HOST:PORT");
  const std::string host = !is_loopback(address->host) ? "::"
                           : address->host == "::1"    ? "::1"
                                                       : "127.0.0.1";
  if (!server->listen(join_host_port(host, address->port))) {
    return Status(Code::kUnavailable, "cannot listen at the rendezvous port " +
                                          std::to_string(address->port) +
                                          ": it is in use; end what uses it, or give all nodes "
                                          "another --rdzv-endpoint");
  }
  return std::unique_ptr<RendezvousServer>(std::move(server));
}

std::unique_ptr<RendezvousCall> RendezvousCall::start(const std::string& endpoint,
                                                      const Arrival& arrival, int64_t timeout_ms,
                                                      Callback callback) {
  auto call = std::make_unique<PendingCall>();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  call->stub = v1::Rendezvous::NewStub(
      grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments));
  call->context.set_deadline(std::chrono::system_clock::now() +
                             std::chrono::milliseconds(timeout_ms));
  call->context.set_wait_for_ready(true);
  call->request.set_node_rank(arrival.node_rank);
  call->request.set_nnodes(arrival.nnodes);
  call->request.set_nproc(arrival.nproc);
  call->request.set_node_id(arrival.node_id);
  call->request.set_control_address(arrival.control_address);
  call->request.set_rdzv_id(arrival.rdzv_id);
  call->callback = std::move(callback);
  PendingCall* const raw = call.get();
  raw->stub->async()->Enter(&raw->context, &raw->request, &raw->reply,
                            [raw, done = call->done](const grpc::Status& status) {
                              on_answer(*raw, status);
                              done->set();
                            });
  return std::make_unique<CallHandle>(std::move(call));
}

}  // namespace rueda::agent
