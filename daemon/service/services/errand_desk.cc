#include "daemon/service/services/errand_desk.h"

#include <chrono>
#include <utility>

#include <pthread.h>

#include "daemon/base/host_port.h"
#include "daemon/base/mutex.h"

namespace rueda::service {
namespace {

constexpr size_t kMaxErrands = 64;
constexpr auto kExplainTimeout = std::chrono::seconds(2);

}  // namespace

void ErrandDesk::explain(const v1::Errand& errand, Done done) {
  if (!membership_.address_of(errand.prober()).is_ok()) {
    return done(Status(Code::kInvalidArgument,
                       "node " + info_.node_id + " does nothing for a probe of node " +
                           errand.prober() +
                           ", which is not in its --nodes; give all daemons the same list"));
  }
  MutexLock lock(mutex_);
  if (is_stopped_ || waiting_.size() >= kMaxErrands) {
    const std::string why = is_stopped_ ? " is stopping"
                                        : " has " + std::to_string(kMaxErrands) +
                                              " errands of probes to look into; probe again";
    lock.unlock();
    return done(Status(Code::kUnavailable, "the daemon on node " + info_.node_id + why));
  }
  waiting_.push_back({errand, std::move(done)});
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  changed_.notify_one();
}

void ErrandDesk::run() {
  ::pthread_setname_np(::pthread_self(), "rueda-errands");
  for (;;) {
    MutexLock lock(mutex_);
    while (!is_stopped_ && waiting_.empty()) changed_.wait(lock);
    if (waiting_.empty()) return;
    const Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    const bool is_stopped = is_stopped_;
    lock.unlock();
    next.done(is_stopped ? Status(Code::kUnavailable,
                                  "the daemon on node " + info_.node_id + " is stopping")
                         : ask(next.errand));
  }
}

Result<v1::Probe::Stub*> ErrandDesk::stub_of(const std::string& prober) {
  std::unique_ptr<v1::Probe::Stub>& stub = stubs_[prober];
  if (stub) return stub.get();
  const Result<HostPort> where = parse_dial_address(membership_.address_of(prober).value());
  const Result<std::string> target =
      where.is_ok() ? dial_target(where.value()) : Result<std::string>(where.status());
  if (!target.is_ok()) return target.status();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  stub = v1::Probe::NewStub(
      grpc::CreateCustomChannel(target.value(), credentials_.channel(), arguments));
  return stub.get();
}

Result<v1::Explanation> ErrandDesk::ask(const v1::Errand& errand) {
  const Result<v1::Probe::Stub*> stub = stub_of(errand.prober());
  if (!stub.is_ok()) return stub.status();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kExplainTimeout);
  {
    const MutexLock lock(mutex_);
    if (is_stopped_) context.TryCancel();
    call_ = &context;
  }
  v1::Explanation explanation;
  const grpc::Status status = stub.value()->Explain(&context, errand, &explanation);
  {
    const MutexLock lock(mutex_);
    call_ = nullptr;
  }
  if (status.ok() && rpc::is_node(credentials_, context, errand.prober())) return explanation;
  if (status.ok()) {
    stubs_.erase(errand.prober());
    return Status(Code::kPermission, "the daemon at the address of node " + errand.prober() +
                                         " in the --nodes of node " + info_.node_id +
                                         " has the certificate of another one: correct --nodes");
  }
  // A prober that has moved is looked for anew.
  stubs_.erase(errand.prober());
  return Status(Code::kUnavailable, "node " + info_.node_id + " asked node " + errand.prober() +
                                        " whether the errand is its own, which did not say so: " +
                                        status.error_message());
}

void ErrandDesk::stop() {
  {
    const MutexLock lock(mutex_);
    is_stopped_ = true;
    if (call_ != nullptr) call_->TryCancel();
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace rueda::service
