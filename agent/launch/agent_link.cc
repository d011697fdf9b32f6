#include "agent/launch/agent_link.h"

#include <chrono>
#include <cmath>
#include <system_error>
#include <utility>

#include "agent/records/plan_file.h"
#include "agent/records/timeline_spool.h"
#include "agent/records/tuning_log.h"
#include "daemon/base/mutex.h"
#include "daemon/base/os/daemon_socket.h"
#include "daemon/local/client.h"
#include "rueda/v1/agent.pb.h"

namespace rueda::agent {
namespace {

constexpr int64_t kConnectTimeoutMs = 5'000;

void fill(const AgreementSettings& from, v1::JobSpec& to) {
  to.set_coordination(from.coordination);
  if (from.fusion_threshold_bytes) to.set_fusion_threshold_bytes(*from.fusion_threshold_bytes);
  if (from.lock_after_steps) to.set_lock_after_steps(*from.lock_after_steps);
  to.set_reducer(from.reducer);
  to.set_inter_node(from.inter_node);
  if (from.cache_capacity) to.set_cache_capacity(*from.cache_capacity);
  if (from.cycle_time_ms) {
    to.set_cycle_time_us(static_cast<uint64_t>(std::llround(*from.cycle_time_ms * 1000)));
  }
  if (from.sleep_agreed_every) to.set_sleep_agreed_every(*from.sleep_agreed_every);
  to.set_algorithm(from.algorithm);
  if (from.servers) to.set_servers(*from.servers);
  to.set_transport(from.transport);
  to.set_data_protection(from.data_protection);
  if (from.failure_timeout_seconds) {
    to.set_failure_timeout_ms(std::llround(*from.failure_timeout_seconds * 1000));
  }
  to.set_autotunes(from.autotunes);
  to.set_replays(!from.plan.empty());
  // With a replayed plan the algorithm is by default "table", because the choice by measurement
  // would be measured anew and might differ from the recorded run's.
  if (!from.plan.empty() && from.algorithm.empty()) to.set_algorithm("table");
  if (!from.is_deterministic) return;
  to.set_fusion_threshold_bytes(0);
  if (from.algorithm.empty()) to.set_algorithm("table");
}

v1::AgentRequest job_request(const JobRegistration& registration) {
  v1::AgentRequest request;
  v1::JobSpec& spec = *request.mutable_job();
  spec.set_job_id(registration.job.job_id);
  spec.set_token(registration.job.token);
  spec.set_user(registration.user);
  // A node that comes late is alone in its layout, and says by how many ranks.
  const bool is_late = registration.job.is_late();
  spec.set_node_index(is_late ? 0 : registration.node_index);
  for (const NodeLayout& node : registration.job.nodes) {
    v1::NodeSpec& out = *spec.add_nodes();
    out.set_node_id(node.node_id);
    out.set_control_address(node.control_address);
    for (size_t i = 0; i < node.ranks.size(); ++i) {
      out.add_ranks(is_late ? static_cast<int32_t>(i) : node.ranks[i].value);
    }
    out.set_incarnation(node.incarnation);
  }
  fill(registration.agreement, spec);
  spec.set_start_timeout_ms(registration.start_timeout_ms);
  if (registration.stall_check_ms) spec.set_stall_check_ms(*registration.stall_check_ms);
  if (!registration.timeline.empty()) {
    v1::TimelineRequest& timeline = *spec.mutable_timeline();
    timeline.set_begins(true);
    timeline.set_path(registration.timeline);
    timeline.set_chunks(registration.timeline_has_chunks);
  }
  if (registration.stall_shutdown_ms) spec.set_stall_shutdown_ms(*registration.stall_shutdown_ms);
  spec.set_is_shared(registration.is_shared);
  spec.set_checks_finite(registration.checks_finite);
  if (registration.elastic) {
    v1::ElasticSpec& elastic = *spec.mutable_elastic();
    elastic.set_min_ranks(registration.elastic->min_ranks);
    elastic.set_max_ranks(registration.elastic->max_ranks);
    elastic.set_timeout_ms(registration.elastic->timeout_ms);
    elastic.set_rank_timeout_ms(registration.elastic->rank_timeout_ms);
    for (const std::string& contact : registration.job.contacts) elastic.add_contacts(contact);
    elastic.set_votes(registration.votes);
    elastic.set_slots(registration.slots);
    for (const int slot : registration.ended_slots) elastic.add_ended_slots(slot);
    for (const int slot : registration.finished_slots) elastic.add_finished_slots(slot);
  }
  if (registration.node_index != 0) return request;
  spec.set_records_plan(!registration.agreement.record_plan.empty());
  const std::string& plan = registration.agreement.replayed_plan;
  if (!plan.empty()) spec.mutable_replayed()->ParseFromString(plan);
  return request;
}

JobFailure failure_from(const v1::JobFailed& message) {
  JobFailure out{message.text(), message.origin_node(), std::nullopt, message.is_by_request()};
  if (message.origin_rank() >= 0) out.origin_rank = Rank(message.origin_rank());
  return out;
}

// The stream of a link.
class Call {
 public:
  Call(UniqueFd connection, const JobRegistration& job, AgentLink::Events events)
      : events_(std::move(events)),
        job_id_(job.job.job_id),
        autotune_log_(job.agreement.autotune_log),
        record_plan_(job.agreement.record_plan),
        stream_(std::move(connection), local::Method::kRun, job_request(job).SerializeAsString(),
                {[this](const std::string& message) { on_message(message); },
                 [this](const CallStatus& status) { on_end(status); }}) {}
  ~Call() { cancel(); }

  void start() { stream_.start(); }

  void send(const v1::AgentRequest& request) {
    const MutexLock lock(mutex_);
    if (!is_closing_) stream_.send(request.SerializeAsString());
  }

  void close() {
    const MutexLock lock(mutex_);
    if (is_closing_) return;
    if (!is_timeline_open_) return close_now();
    closes_after_timeline_ = true;
    end_timeline();
  }

  void cancel() {
    const MutexLock lock(mutex_);
    is_closing_ = true;
    stream_.cancel();
  }

 private:
  // --- These run on the stream's thread.
  void on_message(const std::string& message) {
    v1::AgentEvent event;
    if (!event.ParseFromString(message)) return;  // It is of a later version.
    if (event.has_registered()) events_.on_registered();
    if (event.has_failed()) events_.on_failed(failure_from(event.failed()));
    if (event.has_rank_silent()) {
      events_.on_rank_silent(Rank{event.rank_silent().rank()}, event.rank_silent().text());
    }
    if (event.has_rank_unneeded()) events_.on_rank_unneeded(Rank{event.rank_unneeded().rank()});
    if (event.has_keep_votes()) {
      events_.on_votes(event.keep_votes().votes());
      v1::AgentRequest kept;
      kept.mutable_votes_kept()->set_number(event.keep_votes().number());
      send(kept);
    }
    if (event.has_timeline_opened()) open_timeline(event.timeline_opened());
    if (event.has_timeline_batch()) write_timeline(std::move(*event.mutable_timeline_batch()));
    if (event.has_timeline_closed()) close_timeline(event.timeline_closed());
    if (event.has_tuning()) write_tuning(event.tuning());
    if (event.has_recorded_plan()) write_recorded(event.recorded_plan());
  }

  void on_end(const CallStatus& status) {
    bool is_lost = false;
    {
      const MutexLock lock(mutex_);
      is_lost = !std::exchange(is_closing_, true);
    }
    Status out;
    if (is_lost) {
      out = Status(Code::kDaemonLost, status.is_ok() ? "it ended the job's stream" : status.text);
    }
    events_.on_closed(std::move(out));
  }

  void close_now() RUEDA_REQUIRES(mutex_) {
    if (!std::exchange(is_closing_, true)) stream_.finish();
  }

  // --- The timeline. These methods run on the thread that reads; the mutex guards what they share
  // with others.
  void open_timeline(const v1::TimelineOpened& opened) {
    const auto open =
        opened.is_from_elsewhere() ? TimelineFile::open_for_another_node : TimelineFile::open;
    Result<std::unique_ptr<TimelineFile>> file = open(opened.path(), job_id_);
    const MutexLock lock(mutex_);
    is_timeline_open_ = true;
    if (file.is_ok()) {
      timeline_ = std::make_unique<TimelineSpool>(std::move(file).value());
    } else {
      give_up_timeline(file.status());
    }
  }

  void write_timeline(v1::TimelineBatch batch) {
    if (!timeline_) return;
    const Status status = timeline_->write(std::move(batch));
    const MutexLock lock(mutex_);
    if (!status.is_ok()) give_up_timeline(status);
  }

  void close_timeline(const v1::TimelineClosed& closed) {
    if (timeline_) {
      const Status status = timeline_->close(closed);
      events_.on_note(status.is_ok()
                          ? "the timeline is in " + timeline_->path() + timeline_->losses()
                          : status.message());
    }
    timeline_.reset();
    const MutexLock lock(mutex_);
    is_timeline_open_ = false;
    if (closes_after_timeline_) close_now();
  }

  // --- Autotuning and plans. These methods run on the same thread as those of the timeline.
  void write_tuning(const v1::TuningLine& line) {
    if (line.phase() == "settled") events_.on_note(describe_settled(line));
    if (autotune_log_.empty()) return;
    Status status;
    if (!tuning_log_) {
      Result<std::unique_ptr<TuningLog>> log = TuningLog::open(autotune_log_);
      status = log.status();
      if (log.is_ok()) tuning_log_ = std::move(log).value();
    }
    if (status.is_ok()) status = tuning_log_->write(line);
    if (status.is_ok()) return;
    autotune_log_.clear();  // so that the failure is reported once
    events_.on_note(status.message());
  }

  void write_recorded(const v1::RecordedPlan& plan) {
    const Status status = write_plan(record_plan_, plan);
    events_.on_note(status.is_ok() ? "the plan is in " + record_plan_ : status.message());
  }

  void give_up_timeline(const Status& why) RUEDA_REQUIRES(mutex_) {
    timeline_.reset();
    events_.on_note(why.message());
    end_timeline();
  }

  void end_timeline() RUEDA_REQUIRES(mutex_) {
    if (is_closing_) return;
    v1::AgentRequest request;
    request.mutable_end_timeline();
    stream_.send(request.SerializeAsString());
  }

  const AgentLink::Events events_;
  const std::string job_id_;
  std::string autotune_log_;  // empty if no log is wanted, or it cannot be written
  std::unique_ptr<TuningLog> tuning_log_;
  const std::string record_plan_;
  std::unique_ptr<TimelineSpool> timeline_;
  Mutex mutex_;
  bool is_closing_ RUEDA_GUARDED_BY(mutex_) = false;
  // true until the daemon says that the timeline has ended
  bool is_timeline_open_ RUEDA_GUARDED_BY(mutex_) = false;
  bool closes_after_timeline_ RUEDA_GUARDED_BY(mutex_) = false;
  // The last member: its end waits for the events, which use the others.
  local::Stream stream_;
};

class CallLink final : public AgentLink {
 public:
  CallLink(UniqueFd connection, const JobRegistration& job, Events events)
      : call_(std::move(connection), job, std::move(events)) {
    call_.start();
  }

  void report_rank_failed(Rank rank, const std::string& text) override {
    v1::AgentRequest request;
    request.mutable_rank_failed()->set_rank(rank.value);
    request.mutable_rank_failed()->set_text(text);
    call_.send(request);
  }
  void report_rank_ended(Rank rank) override {
    v1::AgentRequest request;
    request.mutable_rank_ended()->set_rank(rank.value);
    call_.send(request);
  }
  void want_slots(int slots) override {
    v1::AgentRequest request;
    request.mutable_slots_wanted()->set_slots(slots);
    call_.send(request);
  }
  void close() override { call_.close(); }
  void cancel() override { call_.cancel(); }

 private:
  Call call_;
};

}  // namespace

Result<DaemonDescription> describe_daemon(const std::string& socket, int64_t timeout_ms) {
  const auto silent = [&] {
    return Status(Code::kTimeout, "the daemon at " + socket +
                                      " is there, but has not answered in " +
                                      std::to_string(timeout_ms / 1000) +
                                      " s: it stands still, or has very much to do; see its log, "
                                      "and whether whoever reads that has stopped, and restart it");
  };
  const auto absent = [&](const std::string& why) {
    return Status(Code::kDaemonLost, "no daemon answers at " + socket + " (" + why + ")");
  };
  const Result<UniqueFd> connection = connect_to_daemon(socket, timeout_ms);
  switch (connection.status().code()) {
    case Code::kOk: break;
    case Code::kTimeout: return silent();
    case Code::kNotFound:
    case Code::kUnavailable: return absent(connection.status().message());
    default: return connection.status();
  }
  v1::DescribeReply reply;
  const CallStatus status =
      local::ask(connection.value().get(), local::Method::kDescribe, v1::DescribeRequest(), reply,
                 std::chrono::milliseconds(timeout_ms));
  if (status.code == CallCode::kDeadlineExceeded) return silent();
  if (!status.is_ok()) return absent(status.text);
  return DaemonDescription{reply.node_id(),
                           reply.version(),
                           reply.control_port(),
                           reply.http_port(),
                           reply.advertised_control_address(),
                           reply.cpus()};
}

Result<std::unique_ptr<AgentLink>> AgentLink::open(const std::string& socket,
                                                   const JobRegistration& job, Events events) {
  Result<UniqueFd> connection = connect_to_daemon(socket, kConnectTimeoutMs);
  if (!connection.is_ok()) return connection.status();
  try {
    return std::unique_ptr<AgentLink>(
        std::make_unique<CallLink>(std::move(connection).value(), job, std::move(events)));
  } catch (const std::system_error& error) {
    return Status(Code::kResourceExhausted,
                  std::string("cannot start a thread for the daemon: ") + error.what());
  }
}

}  // namespace rueda::agent
