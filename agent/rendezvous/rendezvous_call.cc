#include <chrono>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "agent/base/latch.h"
#include "agent/base/text.h"
#include "agent/rendezvous/rendezvous.h"
#include "agent/rendezvous/rendezvous_messages.h"
#include "agent/rendezvous/rendezvous_secret.h"
#include "daemon/base/mutex.h"
#include "rueda/v1/agent.grpc.pb.h"

namespace rueda::agent {
namespace {

constexpr int kMaxReplyBytes = 16 << 20;

Status from_grpc(const grpc::Status& status) {
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    return Status(Code::kVersion, "node 0 runs another version: install the same one everywhere");
  }
  const auto code = [&] {
    switch (status.error_code()) {
      case grpc::StatusCode::UNAVAILABLE: return Code::kUnavailable;
      case grpc::StatusCode::DEADLINE_EXCEEDED: return Code::kTimeout;
      case grpc::StatusCode::PERMISSION_DENIED: return Code::kPermission;
      case grpc::StatusCode::ABORTED: return Code::kShutDown;
      // The connection was cut before it had come as a node.
      case grpc::StatusCode::CANCELLED: return Code::kUnavailable;
      default: return Code::kInvalidArgument;
    }
  }();
  return Status(code, status.error_message());
}

std::shared_ptr<grpc::Channel> channel_to_rendezvous(const std::string& target) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  arguments.SetMaxReceiveMessageSize(kMaxReplyBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

// Holds the state of an attempt. The call keeps it, and so does every callback that may still come.
class Meeter final : public std::enable_shared_from_this<Meeter>,
                     public grpc::ClientReadReactor<v1::EnterReply> {
 public:
  Meeter(v1::EnterRequest request, RendezvousAuth auth, int64_t timeout_ms,
         RendezvousCall::Events events, std::optional<JobIdentity> running)
      : request_(std::move(request)),
        auth_(std::move(auth)),
        running_(std::move(running)),
        deadline_(std::chrono::system_clock::now() + std::chrono::milliseconds(timeout_ms)),
        events_(std::move(events)) {}

  // Resolves the name and begins. The system's resolver may block for long, so nothing waits for
  // its thread.
  void start(const std::string& endpoint) {
    if (endpoint.starts_with("unix:")) return challenge(endpoint);
    const Result<HostPort> address = parse_dial_address(endpoint);
    if (!address.is_ok()) return finish(address.status());
    if (is_numeric_host(address.value().host)) {
      return challenge(dial_target(address.value()).value());
    }
    try {
      std::thread([self = shared_from_this(), where = address.value()] {
        const Result<std::string> target = dial_target(where);
        if (target.is_ok()) {
          self->challenge(target.value());
        } else {
          self->finish(target.status());
        }
      }).detach();
    } catch (const std::system_error& error) {
      finish(Status(Code::kUnavailable, std::string("no thread can be started: ") + error.what()));
    }
  }

  void close() {
    {
      const MutexLock lock(mutex_);
      is_closed_ = true;
      if (!is_calling_) return;
    }
    challenge_context_.TryCancel();
    enter_context_.TryCancel();
    ended_->wait();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (reply_.missing().empty()) {
      layout_ = reply_;
      // In an elastic job the call lasts.
      if (request_.min_nodes() > 0) finish(take_layout());
    } else {
      const MutexLock lock(mutex_);
      if (!is_closed_ && events_.waiting) events_.waiting(reply_.missing());
    }
    StartRead(&reply_);
  }
  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<DoneLatch> ended = ended_;
    finish(status.ok() ? take_layout() : Result<JobLayout>(from_grpc(status)));
    tell_end();
    ended->set();
  }

 private:
  void challenge(const std::string& target) {
    {
      const MutexLock lock(mutex_);
      if (is_closed_) return;
      is_calling_ = true;
    }
    stub_ = v1::Rendezvous::NewStub(channel_to_rendezvous(target));
    challenge_context_.set_deadline(deadline_);
    challenge_context_.set_wait_for_ready(true);
    stub_->async()->Challenge(&challenge_context_, &challenge_request_, &challenge_reply_,
                              [this](const grpc::Status& status) { on_challenged(status); });
  }

  void on_challenged(const grpc::Status& status) {
    const Status prepared = status.ok() ? prepare() : from_grpc(status);
    if (!prepared.is_ok()) {
      const std::shared_ptr<DoneLatch> ended = ended_;
      finish(prepared);
      return ended->set();
    }
    if (request_.min_nodes() == 0) enter_context_.set_deadline(deadline_);
    stub_->async()->Enter(&enter_context_, &request_, this);
    StartRead(&reply_);
    StartCall();
    // close() may have cancelled before the call was started, without effect.
    const MutexLock lock(mutex_);
    if (is_closed_) enter_context_.TryCancel();
  }

  Status prepare() {
    using Kind = RendezvousAuth::Kind;
    const Kind wanted = challenge_reply_.wants_munge()    ? Kind::kMunge
                        : challenge_reply_.wants_secret() ? Kind::kSecret
                                                          : Kind::kNone;
    if (Status status = auth_.fits(wanted); !status.is_ok()) return status;
    if (running_ && auth_.is_none()) {
      return Status(Code::kInvalidArgument, "a running job is told of with a secret alone");
    }
    if (auth_.is_none()) return Status::ok();
    const Result<std::string> nonce = random_bytes(kNonceBytes);
    if (!nonce.is_ok()) return nonce.status();
    if (challenge_reply_.nonce().size() != kNonceBytes) {
      return Status(Code::kVersion, "node 0 answers in a way that this version does not know");
    }
    nonces_ = {challenge_reply_.nonce(), nonce.value()};
    Result<RendezvousAuth::MeetingKey> meeting = auth_.begin(nonces_);
    if (!meeting.is_ok()) return meeting.status();
    key_ = meeting.value().bytes;
    request_.set_nonce(nonces_.client);
    request_.set_credential(meeting.value().credential);
    if (running_) {
      v1::RunningJob job = to_proto(*running_, "");
      Result<std::string> sealed = seal(key_, nonces_, running_->token, unsealed_part(job));
      if (!sealed.is_ok()) return sealed.status();
      job.set_sealed_token(std::move(sealed).value());
      *request_.mutable_running() = std::move(job);
    }
    request_.set_proof(prove_secret(key_, nonces_, proven_part(request_)));
    return Status::ok();
  }

  Result<JobLayout> take_layout() {
    if (!layout_) return Status(Code::kUnavailable, "node 0 has said nothing");
    if (!auth_.is_none()) {
      Result<std::string> token =
          unseal(key_, nonces_, layout_->sealed_token(), unsealed_part(*layout_));
      if (!token.is_ok()) return token.status();
      layout_->set_token(std::move(token).value());
    }
    return from_proto(*layout_);
  }

  void finish(Result<JobLayout> outcome) {
    const MutexLock lock(mutex_);
    if (is_closed_ || std::exchange(is_told_, true)) return;
    events_.done(std::move(outcome));
  }

  // The call was answered, and is over.
  void tell_end() {
    const MutexLock lock(mutex_);
    if (!is_closed_ && layout_ && request_.min_nodes() > 0 && events_.ended) events_.ended();
  }

  v1::EnterRequest request_;
  const RendezvousAuth auth_;
  const std::optional<JobIdentity> running_;
  const std::chrono::system_clock::time_point deadline_;
  const RendezvousCall::Events events_;
  Mutex mutex_;
  bool is_closed_ RUEDA_GUARDED_BY(mutex_) = false;
  bool is_calling_ RUEDA_GUARDED_BY(mutex_) = false;
  bool is_told_ RUEDA_GUARDED_BY(mutex_) = false;
  std::unique_ptr<v1::Rendezvous::Stub> stub_;
  grpc::ClientContext challenge_context_;
  grpc::ClientContext enter_context_;
  v1::ChallengeRequest challenge_request_;
  v1::ChallengeReply challenge_reply_;
  v1::EnterReply reply_;
  std::optional<v1::EnterReply> layout_;
  Nonces nonces_;
  std::string key_;  // Of this meeting.
  const std::shared_ptr<DoneLatch> ended_ = std::make_shared<DoneLatch>();
};

class CallHandle final : public RendezvousCall {
 public:
  explicit CallHandle(std::shared_ptr<Meeter> meeter) : meeter_(std::move(meeter)) {}
  ~CallHandle() override { meeter_->close(); }

 private:
  const std::shared_ptr<Meeter> meeter_;
};

}  // namespace

std::unique_ptr<RendezvousCall> RendezvousCall::start(const std::string& endpoint,
                                                      const Arrival& arrival,
                                                      const RendezvousAuth& auth,
                                                      int64_t timeout_ms, Events events,
                                                      std::optional<JobIdentity> running) {
  auto meeter = std::make_shared<Meeter>(to_proto(arrival), auth, timeout_ms, std::move(events),
                                         std::move(running));
  meeter->start(endpoint);
  return std::make_unique<CallHandle>(std::move(meeter));
}

}  // namespace rueda::agent
