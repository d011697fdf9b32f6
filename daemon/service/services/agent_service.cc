#include "daemon/service/services/agent_service.h"

#include <charconv>
#include <deque>
#include <memory>
#include <utility>

#include "daemon/base/mutex.h"
#include "daemon/service/convert/convert.h"
#include "daemon/service/convert/convert_plan.h"
#include "daemon/service/convert/convert_timeline.h"

namespace rueda::service {
namespace {

int port_of(const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon != std::string::npos) {
    std::from_chars(address.data() + colon + 1, address.data() + address.size(), port);
  }
  return port;
}

grpc::Status refusal(const Status& status) {
  switch (status.code()) {
    case Code::kUnavailable: return {grpc::StatusCode::UNAVAILABLE, status.message()};
    case Code::kResourceExhausted: return {grpc::StatusCode::RESOURCE_EXHAUSTED, status.message()};
    default: return {grpc::StatusCode::INVALID_ARGUMENT, status.message()};
  }
}

constexpr size_t kMaxTimelineBatches = 64;

using RunCall = rpc::ServerCall<v1::AgentRequest, v1::AgentEvent>;

// One launcher's stream. It holds itself until gRPC has finished with it; the control loop holds it
// too.
class LauncherStream final : public RunCall {
 public:
  LauncherStream(rpc::CallQueue& queue, Arrived arrival, const engine::LoopPoster& control_loop,
                 engine::Engine& engine, const Membership& membership, observe::Refusals& refusals,
                 Principal owner)
      : RunCall(queue, std::move(arrival)),
        control_loop_(control_loop),
        engine_(engine),
        membership_(membership),
        refusals_(refusals),
        owner_(std::move(owner)),
        self_(this) {
    start_read(&request_);
  }

 private:
  void on_read(bool ok) override {
    if (!ok) {
      leave();
      finish(grpc::Status::OK);
      return;
    }
    // Requests are acted upon only once the engine has given a handle for the job, and the engine
    // may refuse a job after more requests have been read.
    if (request_.has_job() && !std::exchange(has_asked_, true)) {
      on_job(request_.job());
    } else if (request_.has_rank_failed()) {
      control_loop_.post([self = self_, rank = Rank{request_.rank_failed().rank()},
                          text = request_.rank_failed().text()] {
        self->engine_.report_rank_failed(self->handle_, rank, text);
      });
    } else if (request_.has_rank_ended()) {
      control_loop_.post([self = self_, rank = Rank{request_.rank_ended().rank()}] {
        self->engine_.report_rank_ended(self->handle_, rank);
      });
    } else if (request_.has_slots_wanted()) {
      control_loop_.post([self = self_, slots = request_.slots_wanted().slots()] {
        self->engine_.want_slots(self->handle_, slots);
      });
    } else if (request_.has_votes_kept()) {
      control_loop_.post(
          [self = self_, number = request_.votes_kept().number()] { self->on_votes_kept(number); });
    } else if (request_.has_end_timeline()) {
      control_loop_.post([self = self_] { self->engine_.end_timeline(self->handle_); });
    }
    const MutexLock lock(mutex_);
    if (!finish_) start_read(&request_);
  }

  void on_write(bool ok) override {
    const MutexLock lock(mutex_);
    writing_ = false;
    queue_.pop_front();
    if (ok && !queue_.empty() && !finish_) return write_next();
    if (finish_) finish_locked();
  }

  void on_cancel() override {
    leave();
    finish(grpc::Status::CANCELLED);
  }

  void on_exception(const char* what) override {
    leave();
    finish({grpc::StatusCode::RESOURCE_EXHAUSTED,
            std::string("the daemon cannot serve this: ") + what});
  }

  void on_done() override { self_.reset(); }

  void on_job(const v1::JobSpec& request) {
    Result<engine::JobSpec> spec = from_proto(request, membership_);
    if (!spec.is_ok()) return refuse(spec.status());
    auto shared = std::make_shared<engine::JobSpec>(std::move(spec).value());
    shared->owner = owner_;
    control_loop_.post([self = self_, shared] {
      without_exception([&] { self->register_in_loop(std::move(*shared)); },
                        [&](const char* what) { self->on_exception(what); });
    });
  }

  void register_in_loop(engine::JobSpec spec) {
    engine::JobListener listener;
    listener.on_started = [weak = std::weak_ptr(self_)](Epoch epoch) {
      v1::AgentEvent event;
      event.mutable_started()->set_epoch(epoch.value);
      if (auto self = weak.lock()) self->send(event);
    };
    listener.on_failed = [weak = std::weak_ptr(self_)](const Status& status) {
      v1::AgentEvent event;
      v1::JobFailed& failed = *event.mutable_failed();
      failed.set_code(static_cast<int32_t>(status.code()));
      failed.set_text(status.message());
      failed.set_origin_node(status.origin().node_id);
      failed.set_origin_rank(status.origin().rank ? status.origin().rank->value : -1);
      failed.set_is_by_request(status.origin().is_by_request);
      if (auto self = weak.lock()) self->send(event);
    };
    listener.on_timeline = [weak = std::weak_ptr(self_)](const engine::TimelineNews& news) {
      const auto self = weak.lock();
      return self && self->send_timeline(news);
    };
    listener.on_silent = [weak = std::weak_ptr(self_)](Rank rank, const std::string& text) {
      v1::AgentEvent event;
      event.mutable_rank_silent()->set_rank(rank.value);
      event.mutable_rank_silent()->set_text(text);
      if (auto self = weak.lock()) self->send(event);
    };
    listener.on_unneeded = [weak = std::weak_ptr(self_)](Rank slot) {
      v1::AgentEvent event;
      event.mutable_rank_unneeded()->set_rank(slot.value);
      if (auto self = weak.lock()) self->send(event);
    };
    listener.keep_votes = [weak = std::weak_ptr(self_)](std::string votes,
                                                        std::function<void()> kept) {
      if (auto self = weak.lock()) self->keep_votes(std::move(votes), std::move(kept));
    };
    // A search has a bounded number of lines, and a plan is rarely put into force.
    listener.on_tuning = [weak = std::weak_ptr(self_)](const core::TuningLine& line) {
      if (auto self = weak.lock()) self->send(to_proto(line));
    };
    listener.on_plan = [weak = std::weak_ptr(self_)](const core::Plan& plan) {
      if (auto self = weak.lock()) self->send(to_proto(plan));
    };
    if (left_) return;  // The launcher went before it was heard.
    const Result<engine::JobHandle> handle =
        engine_.register_job(std::move(spec), std::move(listener));
    if (!handle.is_ok()) return refuse(handle.status());
    handle_ = handle.value();
    v1::AgentEvent event;
    event.mutable_registered();
    send(event);
  }

  void refuse(const Status& status) {
    refusals_.note(owner_.to_string(), status.message());
    finish(refusal(status));
  }

  void keep_votes(std::string votes, std::function<void()> kept) {
    v1::AgentEvent event;
    event.mutable_keep_votes()->set_number(++last_votes_);
    event.mutable_keep_votes()->set_votes(std::move(votes));
    unkept_.emplace_back(last_votes_, std::move(kept));
    send(event);
  }

  void on_votes_kept(uint64_t number) {
    while (!unkept_.empty() && unkept_.front().first <= number) {
      const std::function<void()> kept = std::move(unkept_.front().second);
      unkept_.pop_front();
      kept();
    }
  }

  // The launcher has gone, so its job ends.
  void leave() {
    control_loop_.post([self = self_] {
      self->left_ = true;
      self->engine_.close_job(std::exchange(self->handle_, {}));
    });
  }

  void send(const v1::AgentEvent& event) {
    const MutexLock lock(mutex_);
    if (finish_) return;
    queue_.push_back(event);
    if (!writing_) write_next();
  }

  // Returns false if the event was dropped, because too many wait for the launcher.
  bool send_timeline(const engine::TimelineNews& news) {
    if (std::holds_alternative<observe::TraceBatch>(news)) {
      const MutexLock lock(mutex_);
      if (queue_.size() >= kMaxTimelineBatches) return false;
    }
    send(to_proto(news));
    return true;
  }

  void finish(const grpc::Status& status) {
    const MutexLock lock(mutex_);
    if (finish_) return;
    finish_ = status;
    if (!writing_) finish_locked();
  }

  void write_next() RUEDA_REQUIRES(mutex_) {
    writing_ = true;
    start_write(queue_.front());
  }
  void finish_locked() RUEDA_REQUIRES(mutex_) {
    if (!std::exchange(finished_, true)) start_finish(*finish_);
  }

  const engine::LoopPoster& control_loop_;
  engine::Engine& engine_;
  const Membership& membership_;
  observe::Refusals& refusals_;
  const Principal owner_;
  std::shared_ptr<LauncherStream> self_;
  // The queue's thread owns these.
  v1::AgentRequest request_;
  bool has_asked_ = false;

  // The control loop owns these.
  engine::JobHandle handle_;  // The handle of the job, once the engine has accepted it.
  bool left_ = false;
  uint64_t last_votes_ = 0;
  std::deque<std::pair<uint64_t, std::function<void()>>> unkept_;  // By number.

  Mutex mutex_;
  std::deque<v1::AgentEvent> queue_ RUEDA_GUARDED_BY(mutex_);
  bool writing_ RUEDA_GUARDED_BY(mutex_) = false;
  bool finished_ RUEDA_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> finish_ RUEDA_GUARDED_BY(mutex_);
};

}  // namespace

void AgentService::serve(rpc::CallQueue& queue, const security::Callers& callers) {
  using RunArrival = RunCall::Arrived::element_type;
  rpc::await_streams<RunArrival>(
      queue, {security::Action::kRunJob, callers},
      [this, &queue](RunArrival& arrival, void* tag) {
        service_.RequestRun(&arrival.context, &arrival.stream, queue.get(), queue.get(), tag);
      },
      [this, &queue](std::unique_ptr<RunArrival> arrival, const security::Caller& caller) {
        new LauncherStream(queue, std::move(arrival), control_loop_, engine_, membership_,
                           refusals_, caller.principal);
      });
  using DescribeCall = rpc::UnaryCall<v1::DescribeRequest, v1::DescribeReply>;
  DescribeCall::await(
      queue, {security::Action::kDescribe, callers},
      [this, &queue](auto* context, auto* request, auto* writer, void* tag) {
        service_.RequestDescribe(context, request, writer, queue.get(), queue.get(), tag);
      },
      [this](DescribeCall& call) {
        describe(call.reply());
        call.finish();
      });
}

void AgentService::describe(v1::DescribeReply& reply) const {
  reply.set_node_id(info_.node_id);
  reply.set_version(RUEDA_VERSION);
  reply.set_control_port(port_of(info_.control_address));
  reply.set_data_port(port_of(info_.data_address));
  // Ranks are told where to read metrics; with certificates they have none to show there.
  if (info_.protection != "tls") reply.set_http_port(port_of(info_.http_address));
  reply.set_advertised_control_address(info_.advertised_address);
  reply.set_cpus(info_.cpus);
}

}  // namespace rueda::service
