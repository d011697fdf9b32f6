#include "fake_daemon.h"

#include <utility>

#include <unistd.h>

#include "daemon/local/unary_call.h"

namespace rueda::test {

using security::Action;

// A launcher's stream.
class FakeDaemon::JobStream final : public local::Receiver {
 public:
  JobStream(FakeDaemon& daemon, std::shared_ptr<local::Call> call)
      : daemon_(daemon), call_(std::move(call)) {}

  void on_message(const std::string& message) override {
    v1::AgentRequest request;
    if (!request.ParseFromString(message)) return call_->refuse({CallCode::kInvalidArgument, "?"});
    if (request.has_job()) daemon_.on_job(call_, request.job());
    {
      const std::lock_guard lock(daemon_.mutex_);
      if (request.has_rank_failed()) daemon_.failed_ranks_.push_back(request.rank_failed());
      daemon_.changed_.notify_all();
    }
    call_->next();
  }
  void on_end() override {
    {
      const std::lock_guard lock(daemon_.mutex_);
      daemon_.running_ = nullptr;
      ++daemon_.ended_count_;
      daemon_.changed_.notify_all();
    }
    call_->finish({});
  }

 private:
  FakeDaemon& daemon_;
  const std::shared_ptr<local::Call> call_;
};

FakeDaemon::FakeDaemon(std::string socket, std::string node_id)
    : socket_(std::move(socket)), node_id_(std::move(node_id)) {
  serve();
  const std::string place =
      socket_.front() == '@' ? std::string(1, '\0') + socket_.substr(1) : socket_;
  if (socket_.front() != '@') ::unlink(socket_.c_str());
  const boost::asio::local::stream_protocol::endpoint endpoint(place);
  acceptor_.open();
  acceptor_.bind(endpoint);
  acceptor_.listen();
  accept();
  thread_ = std::thread([this] { loop_.run(); });
}

FakeDaemon::~FakeDaemon() {
  loop_.stop();
  thread_.join();
}

void FakeDaemon::accept() {
  acceptor_.async_accept([this](const boost::system::error_code& error,
                                boost::asio::local::stream_protocol::socket socket) {
    if (error) return;
    security::Caller caller;
    caller.kind = security::Caller::Kind::kOperator;
    caller.principal = Principal::user(::getuid());
    server_.adopt(UniqueFd(socket.release()), caller);
    accept();
  });
}

template <class Request, class Reply>
void FakeDaemon::answer(Action action, const Reply& reply) {
  server_.serve(action, local::UnaryCall<Request, Reply>::service([&reply](auto& call) {
                  call.reply() = reply;
                  call.finish();
                }));
}

void FakeDaemon::serve() {
  server_.serve(Action::kRunJob, {false, [this](const std::shared_ptr<local::Call>& call,
                                                const std::string& request) {
                                    const auto stream = std::make_shared<JobStream>(*this, call);
                                    call->set_receiver(stream);
                                    stream->on_message(request);
                                  }});
  using DescribeCall = local::UnaryCall<v1::DescribeRequest, v1::DescribeReply>;
  server_.serve(Action::kDescribe, DescribeCall::service([this](auto& call) {
                  v1::DescribeReply& reply = call.reply();
                  reply = describe_reply;
                  reply.set_node_id(node_id_);
                  reply.set_version("test");
                  reply.set_control_port(1);
                  reply.set_http_port(2);
                  call.finish();
                }));
  answer<v1::GetStatusRequest>(Action::kReadStatus, status_reply);
  answer<v1::ListJobsRequest>(Action::kReadJobs, jobs_reply);
  answer<v1::ListPlansRequest>(Action::kReadPlans, plans_reply);
  answer<v1::ListPeersRequest>(Action::kReadPeers, peers_reply);
  answer<v1::ListStallsRequest>(Action::kReadStalls, stalls_reply);
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
  if (running_ != nullptr) running_->send(event.SerializeAsString());
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

void FakeDaemon::on_job(const std::shared_ptr<local::Call>& call, const v1::JobSpec& job) {
  const std::lock_guard lock(mutex_);
  jobs_.push_back(job);
  v1::AgentEvent event;
  if (refusal_.empty()) {
    event.mutable_registered();
  } else {
    event.mutable_failed()->set_text(refusal_);
    event.mutable_failed()->set_origin_rank(-1);
  }
  call->send(event.SerializeAsString());
  running_ = call;
  changed_.notify_all();
}

}  // namespace rueda::test
