#include "daemon/service/services/agent_service.h"

#include <atomic>
#include <charconv>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "daemon/base/no_exception.h"
#include "daemon/local/unary_call.h"
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

CallStatus refusal(const Status& status) {
  switch (status.code()) {
    case Code::kUnavailable: return {CallCode::kUnavailable, status.message()};
    case Code::kResourceExhausted: return {CallCode::kResourceExhausted, status.message()};
    default: return {CallCode::kInvalidArgument, status.message()};
  }
}

// When so much waits for a launcher, batches of a timeline are dropped.
constexpr size_t kMaxTimelineBatches = 64;
constexpr size_t kMaxTimelineBytes = size_t{8} << 20;

// One launcher's stream. The call holds it until that has ended; the control loop holds it, too.
class LauncherStream final : public local::Receiver,
                             public std::enable_shared_from_this<LauncherStream> {
 public:
  LauncherStream(std::shared_ptr<local::Call> call, const engine::LoopPoster& control_loop,
                 engine::Engine& engine, const Membership& membership)
      : call_(std::move(call)),
        control_loop_(control_loop),
        engine_(engine),
        membership_(membership) {}

  // Requests are acted upon only once the engine has given a handle for the job, and the engine may
  // refuse a job after more requests have been read.
  void on_message(const std::string& message) override {
    v1::AgentRequest request;
    if (!request.ParseFromString(message)) {
      leave();
      return finish({CallCode::kInvalidArgument, "what it says is no request of a launcher's"},
                    true);
    }
    if (request.has_job() && !std::exchange(has_asked_, true)) {
      on_job(request.job());
    } else if (request.has_rank_failed()) {
      act([rank = Rank{request.rank_failed().rank()}, text = request.rank_failed().text()](
              LauncherStream& self) { self.engine_.report_rank_failed(self.handle_, rank, text); });
    } else if (request.has_rank_ended()) {
      act([rank = Rank{request.rank_ended().rank()}](LauncherStream& self) {
        self.engine_.report_rank_ended(self.handle_, rank);
      });
    } else if (request.has_slots_wanted()) {
      act([slots = request.slots_wanted().slots()](LauncherStream& self) {
        self.engine_.want_slots(self.handle_, slots);
      });
    } else if (request.has_votes_kept()) {
      act([number = request.votes_kept().number()](LauncherStream& self) {
        self.on_votes_kept(number);
      });
    } else if (request.has_end_timeline()) {
      act([](LauncherStream& self) { self.engine_.end_timeline(self.handle_); });
    } else {
      call_->next();
    }
  }

  void on_end() override {
    leave();
    finish({}, false);
  }

 private:
  // Does the work on the control loop; then the next request may come.
  template <class Work>
  void act(Work work) {
    control_loop_.post([self = shared_from_this(), work = std::move(work)]() mutable {
      work(*self);
      self->call_->next();
    });
  }

  void on_exception(const char* what) {
    leave();
    finish({CallCode::kResourceExhausted, std::string("the daemon cannot serve this: ") + what},
           false);
  }

  void on_job(const v1::JobSpec& request) {
    Result<engine::JobSpec> spec = from_proto(request, membership_);
    if (!spec.is_ok()) return refuse(spec.status());
    auto shared = std::make_shared<engine::JobSpec>(std::move(spec).value());
    shared->owner = call_->caller().principal;
    act([shared](LauncherStream& self) {
      without_exception([&] { self.register_in_loop(std::move(*shared)); },
                        [&](const char* what) { self.on_exception(what); });
    });
  }

  void register_in_loop(engine::JobSpec spec) {
    engine::JobListener listener;
    listener.on_started = [weak = weak_from_this()](Epoch epoch) {
      v1::AgentEvent event;
      event.mutable_started()->set_epoch(epoch.value);
      if (auto self = weak.lock()) self->send(event);
    };
    listener.on_failed = [weak = weak_from_this()](const Status& status) {
      v1::AgentEvent event;
      v1::JobFailed& failed = *event.mutable_failed();
      failed.set_code(static_cast<int32_t>(status.code()));
      failed.set_text(status.message());
      failed.set_origin_node(status.origin().node_id);
      failed.set_origin_rank(status.origin().rank ? status.origin().rank->value : -1);
      failed.set_is_by_request(status.origin().is_by_request);
      if (auto self = weak.lock()) self->send(event);
    };
    listener.on_timeline = [weak = weak_from_this()](const engine::TimelineNews& news) {
      const auto self = weak.lock();
      return self && self->send_timeline(news);
    };
    listener.on_silent = [weak = weak_from_this()](Rank rank, const std::string& text) {
      v1::AgentEvent event;
      event.mutable_rank_silent()->set_rank(rank.value);
      event.mutable_rank_silent()->set_text(text);
      if (auto self = weak.lock()) self->send(event);
    };
    listener.on_unneeded = [weak = weak_from_this()](Rank slot) {
      v1::AgentEvent event;
      event.mutable_rank_unneeded()->set_rank(slot.value);
      if (auto self = weak.lock()) self->send(event);
    };
    listener.keep_votes = [weak = weak_from_this()](std::string votes, std::function<void()> kept) {
      if (auto self = weak.lock()) self->keep_votes(std::move(votes), std::move(kept));
    };
    // A search has a bounded number of lines, and a plan is rarely put into force.
    listener.on_tuning = [weak = weak_from_this()](const core::TuningLine& line) {
      if (auto self = weak.lock()) self->send(to_proto(line));
    };
    listener.on_plan = [weak = weak_from_this()](const core::Plan& plan) {
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

  void refuse(const Status& status) { finish(refusal(status), true); }

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
    control_loop_.post([self = shared_from_this()] {
      self->left_ = true;
      self->engine_.close_job(std::exchange(self->handle_, {}));
    });
  }

  void send(const v1::AgentEvent& event) { call_->send(event.SerializeAsString()); }

  // Returns false if the event was dropped, because too much waits for the launcher.
  bool send_timeline(const engine::TimelineNews& news) {
    const bool is_too_much = call_->waiting_messages() >= kMaxTimelineBatches ||
                             call_->waiting_bytes() > kMaxTimelineBytes;
    if (is_too_much && std::holds_alternative<observe::TraceBatch>(news)) return false;
    send(to_proto(news));
    return true;
  }

  // Ends the call, once.
  void finish(const CallStatus& status, bool is_refused) {
    if (is_finished_.exchange(true)) return;
    is_refused ? call_->refuse(status) : call_->finish(status);
  }

  const std::shared_ptr<local::Call> call_;
  const engine::LoopPoster& control_loop_;
  engine::Engine& engine_;
  const Membership& membership_;
  bool has_asked_ = false;  // It belongs to the server's loop.
  std::atomic<bool> is_finished_{false};

  // The control loop owns these.
  engine::JobHandle handle_;  // The handle of the job, once the engine has accepted it.
  bool left_ = false;
  uint64_t last_votes_ = 0;
  std::deque<std::pair<uint64_t, std::function<void()>>> unkept_;  // By number.
};

}  // namespace

void AgentService::serve(local::Server& server) {
  server.serve(
      security::Action::kRunJob,
      {false, [this](const std::shared_ptr<local::Call>& call, const std::string& request) {
         const auto stream =
             std::make_shared<LauncherStream>(call, control_loop_, engine_, membership_);
         call->set_receiver(stream);
         stream->on_message(request);
       }});
  using DescribeCall = local::UnaryCall<v1::DescribeRequest, v1::DescribeReply>;
  server.serve(security::Action::kDescribe, DescribeCall::service([this](auto& call) {
                 describe(call.reply());
                 call.finish();
               }));
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
