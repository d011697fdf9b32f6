#include "agent/rendezvous/rendezvous.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <utility>

#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>

#include "agent/base/text.h"
#include "agent/rendezvous/rendezvous_gate.h"
#include "agent/rendezvous/rendezvous_messages.h"
#include "agent/rendezvous/rendezvous_secret.h"
#include "daemon/base/host_port.h"
#include "daemon/base/mutex.h"
#include "daemon/base/one_line.h"
#include "rueda/v1/agent.grpc.pb.h"

namespace rueda::agent {
namespace {

constexpr int kMaxRequestBytes = 16 << 10;
constexpr int kMaxCallsOfAConnection = 8;
// At most this many notes are given to the user, so that somebody who is refused again and again
// does not fill the output.
constexpr int kMaxNotes = 20;
// A launcher with the same number may come this many times. It comes again where its connection was
// lost, and each coming is a connection that stays.
constexpr int kMaxComings = 32;

grpc::Status to_grpc(const Status& status) {
  if (status.is_ok()) return grpc::Status::OK;
  const grpc::StatusCode code =
      status.is_retryable()                ? grpc::StatusCode::UNAVAILABLE
      : status.code() == Code::kPermission ? grpc::StatusCode::PERMISSION_DENIED
      : status.code() == Code::kShutDown   ? grpc::StatusCode::ABORTED
                                           : grpc::StatusCode::INVALID_ARGUMENT;
  return {code, status.message()};
}

// A node that waits for the others. The service tells it replies, which are written one after the
// other.
class Waiter final : public grpc::ServerWriteReactor<v1::EnterReply> {
 public:
  // `key` is that of its meeting, under which it is sent the token; it is empty if there is none.
  Waiter(Nonces nonces, std::string key, std::function<void(Waiter*)> on_cancel)
      : nonces_(std::move(nonces)), key_(std::move(key)), on_cancel_(std::move(on_cancel)) {}

  const Nonces& nonces() const { return nonces_; }
  const std::string& key() const { return key_; }
  // Replaces a reply that has not gone out yet.
  void tell(v1::EnterReply reply) {
    const MutexLock lock(mutex_);
    if (end_) return;
    next_ = std::move(reply);
    go_on();
  }
  // Ends the call. It is called once, by whoever has taken the waiter out of the service's table.
  // The waiter may be destroyed at once.
  void end(const grpc::Status& status) {
    bool may_finish = false;
    {
      const MutexLock lock(mutex_);
      end_ = status;
      may_finish = !is_writing_ && !next_;
    }
    if (may_finish) Finish(status);
  }

  void OnWriteDone(bool ok) override {
    std::optional<grpc::Status> end;
    {
      const MutexLock lock(mutex_);
      is_writing_ = false;
      if (!ok) next_.reset();
      go_on();
      if (!is_writing_) end = end_;
    }
    if (end) Finish(*end);
  }
  void OnCancel() override { on_cancel_(this); }
  void OnDone() override { delete this; }

 private:
  void go_on() RUEDA_REQUIRES(mutex_) {
    if (is_writing_ || !next_) return;
    current_ = *std::exchange(next_, std::nullopt);
    is_writing_ = true;
    StartWrite(&current_);
  }

  const Nonces nonces_;
  const std::string key_;
  const std::function<void(Waiter*)> on_cancel_;
  Mutex mutex_;
  bool is_writing_ RUEDA_GUARDED_BY(mutex_) = false;
  v1::EnterReply current_ RUEDA_GUARDED_BY(mutex_);
  std::optional<v1::EnterReply> next_ RUEDA_GUARDED_BY(mutex_);
  std::optional<grpc::Status> end_ RUEDA_GUARDED_BY(mutex_);
};

class Service final : public v1::Rendezvous::CallbackService {
 public:
  Service(RendezvousSetting setting, JobIdentity identity, std::string nonce)
      : setting_(std::move(setting)),
        nonce_(std::move(nonce)),
        identity_(std::move(identity)),
        table_(setting_.nnodes, setting_.rdzv_id, setting_.meeting, setting_.min_nodes,
               setting_.admits_late) {}

  // Must be called before the first call comes. The gate outlives the last call.
  void set_gate(RendezvousGate* gate) { gate_ = gate; }

  std::string missing() {
    const MutexLock lock(mutex_);
    return table_.missing();
  }
  std::string last_refusal() {
    const MutexLock lock(mutex_);
    return last_refusal_;
  }

  void end_waiting(const Status& status) {
    std::map<int, Waiter*> waiting;
    {
      const MutexLock lock(mutex_);
      waiting.swap(waiting_);
    }
    for (const auto& [number, waiter] : waiting) waiter->end(to_grpc(status));
  }
  // Ends the calls of launchers that have met.
  void end_met() {
    std::map<int, Waiter*> met;
    {
      const MutexLock lock(mutex_);
      met.swap(met_);
    }
    for (const auto& [number, waiter] : met) waiter->end(grpc::Status::OK);
  }

  grpc::ServerUnaryReactor* Challenge(grpc::CallbackServerContext* context,
                                      const v1::ChallengeRequest*,
                                      v1::ChallengeReply* reply) override {
    reply->set_nonce(nonce_);
    reply->set_wants_secret(setting_.auth.kind() == RendezvousAuth::Kind::kSecret);
    reply->set_wants_munge(setting_.auth.kind() == RendezvousAuth::Kind::kMunge);
    auto* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerWriteReactor<v1::EnterReply>* Enter(grpc::CallbackServerContext* context,
                                                  const v1::EnterRequest* request) override {
    const std::string peer = context->peer();
    Arrival arrival = from_proto(*request);
    std::string key;
    Status status = check_proof(*request, key);
    auto* const waiter = new Waiter({nonce_, request->nonce()}, key,
                                    [this, number = arrival.node_rank](Waiter* one) {
                                      if (take_out(number, one)) one->end(grpc::Status::CANCELLED);
                                    });
    Waiter* replaced = nullptr;
    Waiter* ousted = nullptr;
    std::map<int, Waiter*> met;
    std::optional<JobIdentity> running;
    if (status.is_ok() && request->has_running()) status = open_running(*request, key, running);
    {
      const MutexLock lock(mutex_);
      if (status.is_ok()) {
        settle_host(arrival, peer);
        if (running) status = take_up(arrival, *running, ousted);
        if (status.is_ok()) status = table_.arrive(arrival);
        if (status.is_ok()) status = count_coming(arrival.node_rank);
      }
      if (status.is_ok()) {
        if (gate_ != nullptr) gate_->let_stay(peer);
        auto& place = is_elastic() && table_.has_met() ? met_ : waiting_;
        replaced = std::exchange(place[arrival.node_rank], waiter);
        if (&place == &met_) {
          // Who has waited here while a job ran elsewhere hears of it together with the first one
          // that knows it.
          std::map<int, Waiter*> told{{arrival.node_rank, waiter}};
          told.merge(waiting_);
          status = answer(told);
          met_.merge(told);
          if (!status.is_ok()) met_.erase(arrival.node_rank);
        } else if (table_.is_complete()) {
          met.swap(waiting_);
          status = answer(met);
          if (status.is_ok() && is_elastic()) met_.swap(met);  // Their calls last.
        } else {
          v1::EnterReply reply;
          reply.set_missing(table_.missing());
          for (const auto& [number, other] : waiting_) other->tell(reply);
        }
      } else {
        refuse(arrival.node_rank, peer, status);
      }
    }
    // This is done without the lock, because finishing may run OnDone at once.
    if (ousted != nullptr) {
      ousted->end({grpc::StatusCode::UNAVAILABLE, "the launcher of node " +
                                                      std::to_string(arrival.node_rank) +
                                                      " is still there: end it first"});
    }
    if (replaced != nullptr) replaced->end({grpc::StatusCode::CANCELLED, "it has come again"});
    for (const auto& [number, other] : met) {
      if (other != waiter) other->end(to_grpc(status));
    }
    if (!status.is_ok() || !met.empty()) waiter->end(to_grpc(status));
    return waiter;
  }

 private:
  // Finds the key of the sender's meeting, and checks that the sender knows it.
  Status check_proof(const v1::EnterRequest& request, std::string& key) const {
    if (setting_.auth.is_none()) return Status::ok();
    const Status wrong(Code::kPermission,
                       "its secret is not that of node 0: give all nodes the "
                       "same --rdzv-secret-file or --rdzv-auth");
    if (request.nonce().size() != kNonceBytes) return wrong;
    const Nonces nonces{nonce_, request.nonce()};
    const Result<std::string> found = setting_.auth.key_of(nonces, request.credential());
    if (!found.is_ok()) return found.status();
    const std::string expected = prove_secret(found.value(), nonces, proven_part(request));
    if (!is_same_proof(expected, request.proof())) return wrong;
    key = found.value();
    return Status::ok();
  }

  // Reads what the sender says of the job that runs already.
  Status open_running(const v1::EnterRequest& request, const std::string& key,
                      std::optional<JobIdentity>& running) const {
    if (setting_.auth.is_none()) {
      return Status(Code::kInvalidArgument,
                    "a job that runs is taken up with --rdzv-secret-file or --rdzv-auth munge "
                    "alone");
    }
    const v1::RunningJob& told = request.running();
    const Result<std::string> token =
        unseal(key, {nonce_, request.nonce()}, told.sealed_token(), unsealed_part(told));
    if (!token.is_ok()) return token.status();
    running = JobIdentity{told.job_id(), token.value(), told.master_addr(), told.master_port(),
                          told.has_certificates()};
    return Status::ok();
  }

  // This node's job is the one that runs already, unless another has begun.
  // `ousted` is then a waiter that the caller ends without the lock.
  Status take_up(const Arrival& arrival, const JobIdentity& running, Waiter*& ousted)
      RUEDA_REQUIRES(mutex_) {
    if (table_.has_met()) {
      if (identity_.job_id == running.job_id) return Status::ok();
      return Status(Code::kInvalidArgument,
                    "node 0 has begun another job than " + one_line(running.job_id) +
                        ", which runs: to come to that one, end what node 0 runs and start it "
                        "again");
    }
    if (!is_elastic() || !setting_.admits_late) {
      return Status(Code::kInvalidArgument,
                    "node 0 has no --min-np, and the job that runs has: "
                    "give all nodes the same command");
    }
    if (Status status = table_.fits(arrival); !status.is_ok()) return status;
    note("takes up " + one_line(running.job_id) + ", which runs on other nodes");
    identity_ = running;
    table_.take_up(running.has_certificates);
    // Of two launchers with one number, the one whose ranks run is the right one.
    const auto same = waiting_.find(arrival.node_rank);
    if (same != waiting_.end()) {
      table_.depart(arrival.node_rank);
      ousted = same->second;
      waiting_.erase(same);
    }
    return Status::ok();
  }

  // Counts that a number has come, and refuses it after kMaxComings times.
  Status count_coming(int number) RUEDA_REQUIRES(mutex_) {
    if (comings_[number]++ < kMaxComings) return Status::ok();
    if (waiting_.count(number) == 0) table_.depart(number);
    return Status(Code::kInvalidArgument, "number " + std::to_string(number) + " has come " +
                                              std::to_string(kMaxComings) +
                                              " times already: the network between it and "
                                              "node 0 loses connections, or somebody means harm");
  }

  // Replaces a host that the arrival only guessed by the one that its connection comes from.
  void settle_host(Arrival& arrival, const std::string& peer) RUEDA_REQUIRES(mutex_) {
    const auto visitor = gate_ == nullptr ? std::nullopt : gate_->visitor(peer);
    if (!visitor || is_loopback(visitor->from)) return;
    if (arrival.node_rank != 0) {
      if (reached_at_.empty()) reached_at_ = visitor->to;
      const auto told = parse_host_port(arrival.control_address);
      if (arrival.guesses_host && told) {
        arrival.control_address = join_host_port(visitor->from, told->port);
      }
    }
  }

  // Replaces node 0's own host, if it was only guessed, by the address at which the others reached
  // node 0.
  void settle_own_host(std::vector<NodeLayout>& nodes) RUEDA_REQUIRES(mutex_) {
    NodeLayout& own = nodes.front();
    const auto told = parse_host_port(own.control_address);
    if (!table_.guesses_own_host() || reached_at_.empty() || !told || told->host == reached_at_) {
      return;
    }
    // Node 0's daemon listens at all addresses of one family.
    const auto is_v6 = [](const std::string& host) { return host.find(':') != std::string::npos; };
    if (is_v6(told->host) != is_v6(reached_at_)) return;
    own.control_address = join_host_port(reached_at_, told->port);
    note("the others reach this node at " + reached_at_ + ", where they came, and not at " +
         told->host + ", which is what its name means here");
  }

  // Records and notes a refusal.
  void refuse(int number, const std::string& peer, const Status& status) RUEDA_REQUIRES(mutex_) {
    const auto visitor = gate_ == nullptr ? std::nullopt : gate_->visitor(peer);
    last_refusal_ = one_line(status.message());
    note("refused who came as " +
         std::string(setting_.meeting == Meeting::kNodes ? "node" : "rank") + " " +
         std::to_string(number) + (visitor ? " from " + visitor->from : "") + ": " + last_refusal_);
  }
  void note(const std::string& text) RUEDA_REQUIRES(mutex_) {
    if (notes_++ < kMaxNotes && setting_.note) setting_.note(text);
  }

  bool is_elastic() const { return setting_.min_nodes > 0; }

  // Returns the job's layout as the node is told it.
  Result<JobLayout> layout_for(int number) RUEDA_REQUIRES(mutex_) {
    JobLayout job{
        identity_.job_id, identity_.token, {}, identity_.master_addr, identity_.master_port};
    if (table_.is_late(number)) {
      table_.lay_out_late(number, job);
      if (number == 0) settle_own_host(job.nodes);
      if (settled_.empty()) return job;
      // Of itself node 0 may have had a guess, until others came.
      std::vector<NodeLayout> own{settled_.front()};
      settle_own_host(own);
      std::replace(job.contacts.begin(), job.contacts.end(), table_.address_of(0),
                   own.front().control_address);
      return job;
    }
    if (settled_.empty()) {
      Result<std::vector<NodeLayout>> nodes = table_.lay_out();
      if (!nodes.is_ok()) return nodes.status();
      settled_ = std::move(nodes).value();
      settle_own_host(settled_);
    }
    job.nodes = settled_;
    job.has_certificates = table_.has_certificates();
    return job;
  }

  // Tells all who have met the job's layout.
  Status answer(const std::map<int, Waiter*>& met) RUEDA_REQUIRES(mutex_) {
    for (const auto& [number, waiter] : met) {
      const Result<JobLayout> job = layout_for(number);
      if (!job.is_ok()) return job.status();
      v1::EnterReply reply = to_proto(job.value());
      if (!setting_.auth.is_none()) {
        Result<std::string> sealed =
            seal(waiter->key(), waiter->nonces(), reply.token(), unsealed_part(reply));
        if (!sealed.is_ok()) return sealed.status();
        reply.clear_token();
        reply.set_sealed_token(std::move(sealed).value());
      }
      waiter->tell(std::move(reply));
    }
    return Status::ok();
  }

  bool take_out(int node_rank, Waiter* waiter) {
    const MutexLock lock(mutex_);
    const auto met = met_.find(node_rank);
    if (met != met_.end() && met->second == waiter) {
      met_.erase(met);
      table_.depart(node_rank);
      comings_.erase(node_rank);  // A node may come again as often as it goes.
      return true;
    }
    const auto found = waiting_.find(node_rank);
    if (found == waiting_.end() || found->second != waiter) return false;
    waiting_.erase(found);
    table_.depart(node_rank);
    v1::EnterReply reply;
    reply.set_missing(table_.missing());
    for (const auto& [number, other] : waiting_) other->tell(reply);
    return true;
  }

  const RendezvousSetting setting_;
  const std::string nonce_;
  RendezvousGate* gate_ = nullptr;
  Mutex mutex_;
  JobIdentity identity_ RUEDA_GUARDED_BY(mutex_);
  RendezvousTable table_ RUEDA_GUARDED_BY(mutex_);
  std::map<int, Waiter*> waiting_ RUEDA_GUARDED_BY(mutex_);
  std::map<int, Waiter*> met_ RUEDA_GUARDED_BY(mutex_);  // Of an elastic job, as long as they last.
  std::vector<NodeLayout> settled_ RUEDA_GUARDED_BY(mutex_);  // Of those who have met.
  std::map<int, int> comings_ RUEDA_GUARDED_BY(mutex_);
  std::string last_refusal_ RUEDA_GUARDED_BY(mutex_);
  // The address of this machine at which another one has reached the rendezvous.
  std::string reached_at_ RUEDA_GUARDED_BY(mutex_);
  int notes_ RUEDA_GUARDED_BY(mutex_) = 0;
};

class Server final : public RendezvousServer {
 public:
  Server(RendezvousSetting setting, JobIdentity identity, std::string nonce)
      : local_endpoint_(setting.endpoint),
        service_(std::move(setting), std::move(identity), std::move(nonce)) {}
  ~Server() override {
    service_.end_waiting(Status(Code::kUnavailable, "node 0 has left the rendezvous"));
    service_.end_met();
    if (gate_) gate_->stop();
    if (server_) {
      server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
    }
  }

  // Starts to serve at `path`, which is "unix:PATH", or, if it is empty, behind the gate.
  Status serve(const std::string& path, std::unique_ptr<RendezvousGate> gate) {
    grpc::ServerBuilder builder;
    int port = 0;  // 1 for a path
    if (!path.empty()) {
      builder.AddListeningPort(path, grpc::InsecureServerCredentials(), &port);
    }
    builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsOfAConnection);
    // A machine that is gone without a word must not keep its number.
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
    // The others ask as often whether it is there.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                               kKeepaliveMs / 2);
    builder.RegisterService(&service_);
    service_.set_gate(gate.get());
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || (!path.empty() && port == 0)) {
      return Status(Code::kUnavailable, "cannot listen at the rendezvous " + local_endpoint_);
    }
    if (!gate) return Status::ok();
    gate_ = std::move(gate);
    local_endpoint_ = join_host_port(gate_->local_endpoint().host, gate_->local_endpoint().port);
    gate_->start([this](int fd) { grpc::AddInsecureChannelFromFd(server_.get(), fd); });
    return Status::ok();
  }
  std::string missing() const override { return service_.missing(); }
  std::string last_refusal() const override { return service_.last_refusal(); }
  void give_up(const std::string& why) override {
    service_.end_waiting(Status(Code::kShutDown, why));
  }
  std::string local_endpoint() const override { return local_endpoint_; }

 private:
  std::string local_endpoint_;
  mutable Service service_;
  std::unique_ptr<RendezvousGate> gate_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

void quiet_grpc() {
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function([](gpr_log_func_args*) {});
}

Result<std::unique_ptr<RendezvousServer>> RendezvousServer::start(RendezvousSetting setting,
                                                                  JobIdentity identity) {
  Result<std::string> nonce = random_bytes(kNonceBytes);
  if (!nonce.is_ok()) return nonce.status();
  const std::string endpoint = setting.endpoint;
  auto server =
      std::make_unique<Server>(std::move(setting), std::move(identity), std::move(nonce).value());
  if (endpoint.starts_with("unix:")) {
    if (Status status = server->serve(endpoint, nullptr); !status.is_ok()) return status;
    return std::unique_ptr<RendezvousServer>(std::move(server));
  }
  const Result<HostPort> address = parse_dial_address(endpoint);
  if (!address.is_ok()) return address.status();
  Result<std::unique_ptr<RendezvousGate>> gate = RendezvousGate::open(address.value());
  if (!gate.is_ok()) return gate.status();
  if (Status status = server->serve("", std::move(gate).value()); !status.is_ok()) return status;
  return std::unique_ptr<RendezvousServer>(std::move(server));
}

Result<std::string> new_launcher() { return random_bytes(kLauncherBytes); }

}  // namespace rueda::agent
