// Calls over a CallQueue: those that come in, and the stream that is dialled. A call's callbacks
// run on the queue's thread. Its operations may be started on any thread, one read and one write at
// a time.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/async_stream.h>
#include <grpcpp/support/async_unary_call.h>

#include "daemon/base/no_exception.h"
#include "daemon/rpc/call_queue.h"
#include "daemon/rpc/credentials.h"
#include "daemon/rpc/unary.h"
#include "daemon/security/policy.h"

namespace rueda::rpc {

// Counts a call's operations under way, so that the call knows when gRPC has finished with it.
class Call {
 public:
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 protected:
  explicit Call(CallQueue& queue) : queue_(queue) { queue_.begin(); }
  virtual ~Call() = default;

  // Counts an operation that begins now.
  Ended counted(Ended ended) {
    ++under_way_;
    return [this, ended = std::move(ended)](bool ok) {
      without_exception([&] { ended(ok); }, [this](const char* what) { on_exception(what); });
      release();
    };
  }
  // Returns the tag of an operation, which is counted.
  void* operation(Ended ended) { return CallQueue::tag(counted(std::move(ended))); }
  // Returns the tag of the operation that ends the call: every call must start one, or call
  // abandon().
  void* last_operation() {
    return CallQueue::tag([this](bool) { release(); });
  }
  void abandon() { release(); }
  // It is called when a callback of the call has thrown: the call has to end. An override that does
  // nothing waits for the other side to go.
  virtual void on_exception(const char* what) { (void)what; }
  // gRPC has finished with the call, which may be deleted. Called once, and last.
  virtual void on_done() = 0;

  CallQueue& queue() const { return queue_; }

 private:
  void release() {
    CallQueue& queue = queue_;
    if (--under_way_ > 0) return;
    on_done();
    queue.end();
  }

  CallQueue& queue_;
  // It begins with 1 for the last operation, which every call must start.
  std::atomic<int> under_way_{1};
};

// --- Calls that come in

template <class Request, class Response>
struct Arrival {
  grpc::ServerContext context;
  grpc::ServerAsyncReaderWriter<Response, Request> stream{&context};
  // It is called by the tag that comes when the call is over, whichever side has ended it. gRPC
  // owns it.
  Ended* over = nullptr;
};

// Ends a call at once. It deletes itself.
template <class Arrival>
class RefusedCall final : public Call {
 public:
  RefusedCall(CallQueue& queue, std::unique_ptr<Arrival> arrival, const grpc::Status& status)
      : Call(queue), arrival_(std::move(arrival)) {
    *arrival_->over = counted([](bool) {});
    arrival_->stream.Finish(status, last_operation());
  }

 private:
  void on_done() override { delete this; }

  const std::unique_ptr<Arrival> arrival_;
};

inline grpc::Status permission_denied(const Status& status) {
  return {grpc::StatusCode::PERMISSION_DENIED, status.message()};
}

// Finds out who calls. Returns why that caller may not, which the queue is told of.
inline Status admit(const CallQueue& queue, const security::Door& door,
                    const grpc::ServerContext& context, security::Caller& caller) {
  const security::Connection connection = connection_of(context);
  caller = door.callers.find(connection);
  if (!queue.lets_in(connection, door.action, caller)) {
    return {Code::kResourceExhausted, "calls come too fast over this connection"};
  }
  Status may = security::check(door.action, caller);
  if (!may.is_ok()) queue.note_refused(caller, connection, may.message());
  return may;
}

// Waits for calls of a method as long as the server runs, and hands each over as it comes, with who
// calls, on the queue's thread; whoever may not call is refused. `ask` asks gRPC for one call,
// which fills in the arrival and ends with the tag.
template <class Arrival>
void await_streams(
    CallQueue& queue, const security::Door& door,
    const std::function<void(Arrival&, void* tag)>& ask,
    const std::function<void(std::unique_ptr<Arrival>, const security::Caller&)>& serve) {
  auto* const next = new Arrival;
  next->over = new Ended;
  next->context.AsyncNotifyWhenDone(next->over);
  queue.begin();
  ask(*next, CallQueue::tag([next, &queue, door, ask, serve](bool ok) {
    std::unique_ptr<Arrival> arrival(next);
    if (ok) {
      await_streams(queue, door, ask, serve);
      security::Caller caller;
      if (const Status may = admit(queue, door, arrival->context, caller); may.is_ok()) {
        serve(std::move(arrival), caller);
      } else {
        new RefusedCall<Arrival>(queue, std::move(arrival), permission_denied(may));
      }
    } else {
      delete arrival->over;  // Nothing has begun, so gRPC will not hand it back.
    }
    queue.end();
  }));
}

// A call with a stream in each direction.
template <class Request, class Response>
class ServerCall : public Call {
 public:
  using Arrived = std::unique_ptr<Arrival<Request, Response>>;

  // Must be constructed on the queue's thread, in `serve`.
  ServerCall(CallQueue& queue, Arrived arrival) : Call(queue), arrival_(std::move(arrival)) {
    *arrival_->over = counted([this](bool) {
      if (arrival_->context.IsCancelled()) on_cancel();
    });
  }

 protected:
  void start_read(Request* request) {
    arrival_->stream.Read(request, operation([this](bool ok) { on_read(ok); }));
  }
  // Starts to write a response, which is copied.
  void start_write(const Response& response) {
    arrival_->stream.Write(response, operation([this](bool ok) { on_write(ok); }));
  }
  // Must be called once.
  void start_finish(const grpc::Status& status) {
    arrival_->stream.Finish(status, last_operation());
  }
  // Breaks the call off. start_finish() must still be called.
  void cancel() { arrival_->context.TryCancel(); }
  // Returns the other end's certificate (PEM), which has been verified; "" without one.
  std::string peers_certificate() const { return certificate_of(arrival_->context.auth_context()); }

  virtual void on_read(bool ok) = 0;
  virtual void on_write(bool ok) = 0;
  // The other side has broken the call off, or has gone. start_finish() must still be called.
  virtual void on_cancel() = 0;

 private:
  const Arrived arrival_;
};

inline grpc::Status to_grpc(const CallStatus& status) {
  return {static_cast<grpc::StatusCode>(status.code), status.text};
}

// A call with a request and a reply. It deletes itself once answered.
template <class Request, class Reply>
class UnaryCall final : public Call, public Unary<Request, Reply> {
 public:
  using Writer = grpc::ServerAsyncResponseWriter<Reply>;
  using Ask = std::function<void(grpc::ServerContext*, Request*, Writer*, void* tag)>;
  // Fills in the reply and calls finish(), or else fail(), at once or later, on any thread.
  using Answer = std::function<void(Unary<Request, Reply>&)>;

  // Waits for calls as long as the server runs. Whoever may not call is refused.
  static void await(CallQueue& queue, const security::Door& door, const Ask& ask,
                    const Answer& answer) {
    auto* const call = new UnaryCall(queue);
    ask(&call->context_, &call->request_, &call->writer_,
        call->operation([call, &queue, door, ask, answer](bool ok) {
          if (!ok) return call->abandon();
          await(queue, door, ask, answer);
          call->enter(door, answer);
        }));
  }

  // Waits for calls as await() does, but takes one after the other: the next call is taken when
  // this one has been answered, and has rested.
  static void await_in_turn(CallQueue& queue, const security::Door& door, const Ask& ask,
                            const Answer& answer) {
    auto* const call = new UnaryCall(queue);
    ask(&call->context_, &call->request_, &call->writer_,
        call->operation([call, &queue, door, ask, answer](bool ok) {
          if (!ok) return call->abandon();
          call->next_ = [&queue, door, ask, answer] { await_in_turn(queue, door, ask, answer); };
          call->enter(door, answer);
        }));
  }
  void rest(std::chrono::nanoseconds time) override {
    rest_ = std::min<std::chrono::nanoseconds>(time, std::chrono::seconds(1));
  }

  const Request& request() const override { return request_; }
  const security::Caller& caller() const override { return caller_; }
  Reply& reply() override { return reply_; }
  void finish() override {
    is_answered_ = true;
    writer_.Finish(reply_, grpc::Status::OK, last_operation());
  }
  void fail(const CallStatus& status) override {
    is_answered_ = true;
    writer_.FinishWithError(to_grpc(status), last_operation());
  }

 private:
  explicit UnaryCall(CallQueue& queue) : Call(queue) {}

  void enter(const security::Door& door, const Answer& answer) {
    const Status may = admit(queue(), door, context_, caller_);
    may.is_ok() ? answer(*this) : fail({CallCode::kPermissionDenied, may.message()});
  }

  void on_exception(const char* what) override {
    if (!is_answered_) fail({CallCode::kResourceExhausted, what});
  }

  std::atomic<bool> is_answered_{false};
  void on_done() override {
    if (next_ && rest_ < kLeastRest) next_();
    if (next_ && rest_ >= kLeastRest) {
      CallQueue& queue = this->queue();
      auto alarm = std::make_shared<grpc::Alarm>();
      queue.begin();
      alarm->Set(queue.get(), std::chrono::system_clock::now() + rest_,
                 CallQueue::tag([alarm, &queue, next = std::move(next_)](bool) {
                   next();
                   queue.end();
                 }));
    }
    delete this;
  }

  static constexpr std::chrono::milliseconds kLeastRest{2};

  std::function<void()> next_;  // Takes the next call, if calls are taken in turn.
  std::chrono::nanoseconds rest_{0};
  grpc::ServerContext context_;
  security::Caller caller_;
  Request request_;
  Reply reply_;
  Writer writer_{&context_};
};

// --- The stream that is dialled

template <class Request, class Response>
class ClientCall : public Call {
 public:
  explicit ClientCall(CallQueue& queue) : Call(queue) {}

 protected:
  // Starts the call. Nothing is sent yet: the first write takes the call's metadata along, because
  // gRPC allows no write beside them.
  template <class Prepare>
  void start_call(const Prepare& prepare) {
    context_.set_initial_metadata_corked(true);
    stream_ = prepare(&context_, queue().get());
    stream_->StartCall(nullptr);
  }
  void start_read(Response* response) {
    stream_->Read(response, operation([this](bool ok) { on_read(ok); }));
  }
  // Starts to write a request, which is copied.
  void start_write(const Request& request) {
    stream_->Write(request, operation([this](bool ok) { on_write(ok); }));
  }
  void start_writes_done() {
    stream_->WritesDone(operation([](bool) {}));
  }
  // Must be called once, when a read has failed. The status is available in on_done().
  void start_finish() { stream_->Finish(&status_, last_operation()); }
  void cancel() { context_.TryCancel(); }
  const grpc::Status& status() const { return status_; }
  // Returns the server's certificate (PEM), which has been verified; "" without one. Must be called
  // after a read.
  std::string peers_certificate() const { return certificate_of(context_.auth_context()); }

  virtual void on_read(bool ok) = 0;
  virtual void on_write(bool ok) = 0;

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<Request, Response>> stream_;
  grpc::Status status_;
};

}  // namespace rueda::rpc
