// A call with a request and a reply at the unix socket.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "daemon/base/mutex.h"
#include "daemon/base/no_exception.h"
#include "daemon/local/call.h"
#include "daemon/local/wire.h"
#include "daemon/rpc/unary.h"

namespace rueda::local {

// Request and Reply are messages of protobuf. A call holds itself until it has been answered.
template <class Request, class Reply>
class UnaryCall final : public rpc::Unary<Request, Reply> {
 public:
  // As that of rpc::UnaryCall: it finishes the call, or fails it, at once or later, on any thread.
  using Answer = std::function<void(rpc::Unary<Request, Reply>&)>;

  // Makes the service that has calls answered by this.
  static Service service(Answer answer, bool is_in_turn = false) {
    return {is_in_turn, [answer = std::move(answer)](const std::shared_ptr<Call>& call,
                                                     const std::string& bytes) {
              const auto made = std::make_shared<UnaryCall>(call);
              if (!made->request_.ParseFromString(bytes)) {
                return call->refuse(
                    {CallCode::kInvalidArgument, "its request is not what this method takes"});
              }
              made->hold(made);
              without_exception([&] { answer(*made); },
                                [&](const char* what) { made->on_exception(what); });
            }};
  }

  explicit UnaryCall(std::shared_ptr<Call> call) : call_(std::move(call)) {}

  const Request& request() const override { return request_; }
  const security::Caller& caller() const override { return call_->caller(); }
  Reply& reply() override { return reply_; }
  void rest(std::chrono::nanoseconds time) override { call_->rest(time); }
  void finish() override {
    const std::shared_ptr<UnaryCall> self = let_go();
    if (!self) return;
    const std::string bytes = reply_.SerializeAsString();
    if (bytes.size() > kMaxReplyBytes) {
      return call_->finish({CallCode::kResourceExhausted,
                            "the answer has " + std::to_string(bytes.size()) +
                                " bytes, and may have " + std::to_string(kMaxReplyBytes)});
    }
    call_->send(bytes);
    call_->finish({});
  }
  void fail(const CallStatus& status) override {
    if (const std::shared_ptr<UnaryCall> self = let_go()) call_->finish(status);
  }

 private:
  void hold(std::shared_ptr<UnaryCall> self) {
    const MutexLock lock(mutex_);
    self_ = std::move(self);
  }
  // Returns null if the call has been answered already.
  std::shared_ptr<UnaryCall> let_go() {
    const MutexLock lock(mutex_);
    return std::move(self_);
  }
  void on_exception(const char* what) { fail({CallCode::kResourceExhausted, what}); }

  const std::shared_ptr<Call> call_;
  Request request_;
  Reply reply_;
  Mutex mutex_;
  std::shared_ptr<UnaryCall> self_ RUEDA_GUARDED_BY(mutex_);
};

}  // namespace rueda::local
