#include "daemon/engine/node/engine.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "daemon/base/limits.h"
#include "daemon/base/no_exception.h"
#include "daemon/base/one_line.h"
#include "daemon/base/rank_token.h"
#include "daemon/engine/ports/proof.h"

namespace rueda::engine {
namespace {

// The bytes that are kept of what a launcher says of a rank that ended badly: one sentence.
constexpr size_t kMaxFailureBytes = 512;

// A name belongs to whoever has it first, for as long as that job lasts.
std::string owner_hint(const JobSpec& running, const Principal& principal) {
  if (running.owner == principal) return "";
  return ", and this one is " + running.owner.to_string() + "'s: give yours another name";
}

// Answers what a process asks for before rueda_init has returned.
Status not_begun(session::Session& session) {
  return {Code::kUnavailable,
          "job " + session.attach().job + " has not started: wait for rueda_init to return"};
}

// Returns whether the process has the token of the place that it says is its own. The job's token,
// with which one could act as any node, is for launchers and daemons alone.
Status check_token(const JobSpec& spec, const session::Attach& attach, const std::string& node_id,
                   bool is_elastic) {
  const std::string expected = is_elastic
                                   ? slot_token(spec.token, spec.job, node_id, attach.local_rank)
                                   : rank_token(spec.token, spec.job, attach.rank);
  if (is_same_token(expected, attach.token)) return Status::ok();
  const std::string place = is_elastic ? "slot " + std::to_string(attach.local_rank.value)
                                       : "rank " + std::to_string(attach.rank.value);
  return Status(Code::kPermission,
                "process " + std::to_string(attach.peer.pid) + " has the wrong token for " + place +
                    " of job " + attach.job + ": leave the token and " +
                    (is_elastic ? "LOCAL_RANK" : "RANK") + " as the launcher has set them");
}

// Returns whether the daemon has been started with what the job asks for.
Status check_daemon_settings(const JobSpec& spec, const EngineOptions& options) {
  const auto refused = [&](const std::string& what, const std::string& wanted,
                           const std::string& is, const std::string& flag) {
    return Status(Code::kInvalidArgument, "job " + spec.job + " asks for " + what + " " + wanted +
                                              ", and the daemon of node " + options.node_id +
                                              " has " + is + ": start it with " + flag);
  };
  if (!spec.transport.empty() && spec.transport != options.transport) {
    const std::string wanted = one_line(spec.transport);
    return refused("transport", wanted, options.transport,
                   "--transport " + wanted + ", or the job with another --transport or --preset");
  }
  if (!spec.data_protection.empty() && spec.data_protection != options.data_protection) {
    const std::string wanted = one_line(spec.data_protection);
    return refused("data protection", wanted, options.data_protection,
                   "--data-protection " + wanted + ", or the job without it");
  }
  if (spec.failure_timeout_ms != 0 && spec.failure_timeout_ms != options.timeout_ms) {
    return refused("a failure timeout of", std::to_string(spec.failure_timeout_ms) + " ms",
                   std::to_string(options.timeout_ms) + " ms",
                   "the same --failure-timeout, or the job without it");
  }
  const bool wants_nccl = spec.inter_node.value_or(options.inter_node) == core::InterNode::kNccl;
  if (wants_nccl && spec.layout.node_count() > 1 && options.data_protection != "none") {
    return refused("--inter-node nccl, which sends in clear", "between nodes",
                   "--data-protection " + options.data_protection,
                   "--data-protection none, or the job without NCCL");
  }
  return Status::ok();
}

}  // namespace

Engine::Engine(const EngineContext& context) : context_(context) {}

Engine::~Engine() = default;

// --- Jobs ----------------------------------------------------------------------------------------

Result<JobHandle> Engine::register_job(JobSpec spec, JobListener listener) {
  const JobId job = spec.job;
  if (on_all_closed_) {
    return Status(Code::kUnavailable, "the daemon on node " + options().node_id + " is stopping");
  }
  if (find_shared(spec) != nullptr) return add_launcher(job);
  const ElasticJob* const elastic = elastic_of(job);
  if (elastic || jobs_.contains(job)) {
    return Status(Code::kInvalidArgument,
                  "job " + job + " is registered on node " + options().node_id +
                      " already; a job id names one job at a time" +
                      owner_hint(elastic ? elastic->spec() : jobs_.at(job)->spec(), spec.owner));
  }
  if (Status status = check_daemon_settings(spec, options()); !status.is_ok()) return status;
  if (jobs_.size() >= limits::kMaxJobs) {
    return Status(Code::kUnavailable, "node " + options().node_id + " serves " +
                                          std::to_string(jobs_.size()) +
                                          " jobs of all users, which is the limit of a daemon: "
                                          "wait for one to end");
  }
  Result<session::Charge> paid =
      session::charge({context_.ledger, spec.owner}, session::Resource::kJobs, 1);
  if (!paid.is_ok()) return paid.status();
  const std::string& own = spec.layout.node(spec.self).node_id;
  if (own != options().node_id) {
    return Status(Code::kInvalidArgument,
                  "job " + job + " calls this node " + own + ", and it is " + options().node_id);
  }
  if (Status ended = ended_.ended_by_request(steady_now_ms(), job, spec.token); !ended.is_ok()) {
    return ended;
  }
  spec.user = one_line(spec.user, kShownNameBytes);
  spdlog::info("job {}: registered by {}, {} ranks on {} nodes, node index {} here", job, spec.user,
               spec.layout.world_size(), spec.layout.node_count(), spec.self.value);
  ended_.remove(job, spec.token);
  if (spec.elastic) {
    return register_elastic(std::move(spec), std::move(listener), std::move(paid).value());
  }
  const std::optional<Envelope> early = early_fails_.take(steady_now_ms(), job, spec.token);
  spec.bandwidths = bandwidths_of(spec);
  const auto added = jobs_.emplace(
      job, std::make_unique<JobRunner>(context_, std::move(spec), std::move(listener)));
  JobRunner& runner = *added.first->second;
  JobHandle handle;
  try {
    charges_.emplace(job, std::move(paid).value());
    handle = add_launcher(job);
  } catch (const std::bad_alloc&) {  // Nobody could close the job.
    charges_.erase(job);
    jobs_.erase(added.first);
    throw;
  }
  context_.metrics.daemon().jobs.Set(static_cast<double>(jobs_.size()));
  if (early) runner.on_early_fail(*early);
  return handle;
}

JobRunner* Engine::find_shared(const JobSpec& spec) const {
  const auto it = jobs_.find(spec.job);
  if (it == jobs_.end() || !spec.is_shared) return nullptr;
  const JobSpec& running = it->second->spec();
  const bool is_same =
      running.is_shared && running.owner == spec.owner && proof_matches(running.token, spec.token);
  return is_same ? it->second.get() : nullptr;
}

Result<JobHandle> Engine::register_elastic(JobSpec spec, JobListener listener,
                                           session::Charge paid) {
  if (Status fits = ElasticJob::check(spec); !fits.is_ok()) return fits;
  const JobId job = spec.job;
  ElasticJob::Host host;
  host.start = [this, job](JobSpec generation, JobListener told) -> JobRunner& {
    generation.bandwidths = bandwidths_of(generation);
    const auto added = jobs_.emplace(
        job, std::make_unique<JobRunner>(context_, std::move(generation), std::move(told)));
    context_.metrics.daemon().jobs.Set(static_cast<double>(jobs_.size()));
    return *added.first->second;
  };
  host.end = [this, job](const Status& why) { close(*jobs_.at(job), why); };
  host.hand_over = [this](session::Session& session, JobRunner& runner) {
    take_session(session, &runner);
    runner.on_attached(session);
  };
  const auto added =
      elastic_.emplace(job, std::make_unique<ElasticJob>(context_, std::move(spec),
                                                         std::move(listener), std::move(host)));
  try {
    charges_.emplace(job, std::move(paid));
    if (Status started = added.first->second->start(); !started.is_ok()) {
      charges_.erase(job);
      elastic_.erase(added.first);
      return started;
    }
    return add_launcher(job);
  } catch (const std::bad_alloc&) {  // Nobody could close the job.
    charges_.erase(job);
    jobs_.erase(job);
    elastic_.erase(added.first);
    throw;
  }
}

JobHandle Engine::add_launcher(const JobId& job) {
  launchers_.emplace(++last_handle_, job);
  return JobHandle(last_handle_);
}

JobRunner* Engine::find(JobHandle handle) const {
  const auto launcher = launchers_.find(handle.number_);
  if (launcher == launchers_.end()) return nullptr;
  const auto it = jobs_.find(launcher->second);
  return it == jobs_.end() ? nullptr : it->second.get();
}

ElasticJob* Engine::find_elastic(JobHandle handle) const {
  const auto launcher = launchers_.find(handle.number_);
  return launcher == launchers_.end() ? nullptr : elastic_of(launcher->second);
}

ElasticJob* Engine::elastic_of(const JobId& job) const {
  const auto it = elastic_.find(job);
  return it == elastic_.end() ? nullptr : it->second.get();
}

void Engine::report_rank_failed(JobHandle handle, Rank rank, const std::string& text) {
  const std::string told = one_line(text, kMaxFailureBytes);
  if (ElasticJob* const job = find_elastic(handle)) {
    job->on_process_gone(core::Slot{rank.value}, told);
  } else if (JobRunner* const runner = find(handle)) {
    runner->on_rank_failed(rank, told);
  }
}

void Engine::report_rank_ended(JobHandle handle, Rank rank) {
  if (ElasticJob* const job = find_elastic(handle))
    job->on_process_gone(core::Slot{rank.value}, "");
}

void Engine::want_slots(JobHandle handle, int slots) {
  if (ElasticJob* const job = find_elastic(handle)) job->want_slots(slots);
}

Result<int> Engine::end_job(const JobId& job, const std::string& text) {
  const Status why(Code::kShutDown, text, Origin{options().node_id, {}, true});
  const auto is_over = [&](const Status& before) {
    return Status(Code::kShutDown, "job " + job + " is over already: " + before.message());
  };
  if (ElasticJob* const elastic = elastic_of(job)) {
    if (!elastic->why_over().is_ok()) return is_over(elastic->why_over());
    elastic->end(why);
    return elastic->node_count();
  }
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) {
    return Status(Code::kNotFound, "no job " + job + " is registered on node " + options().node_id);
  }
  JobRunner& runner = *it->second;
  if (!runner.failure().is_ok()) return is_over(runner.failure());
  runner.guarded([&] { runner.end(why); });
  return runner.spec().layout.node_count();
}

void Engine::end_timeline(JobHandle handle) {
  if (JobRunner* const runner = find(handle)) (void)runner->request_timeline({});
}

Result<JobId> Engine::request_timeline(const JobId& job, const TimelineRequest& wanted,
                                       const Principal& caller) {
  if (job.empty() && jobs_.size() != 1) {
    return Status(Code::kInvalidArgument, "node " + options().node_id + " serves " +
                                              std::to_string(jobs_.size()) +
                                              " jobs: say which one is meant");
  }
  const auto it = job.empty() ? jobs_.begin() : jobs_.find(job);
  if (it == jobs_.end()) {
    return Status(Code::kNotFound, "no job " + job + " is registered on node " + options().node_id +
                                       "; ruedactl jobs says which are");
  }
  const Principal& owner = it->second->spec().owner;
  if (!caller.reaches(owner)) {
    return Status(Code::kPermission, "job " + it->first + " belongs to " + owner.to_string() +
                                         ", who alone, beside root, may have its timeline " +
                                         "written, and it is asked for by " + caller.to_string());
  }
  if (Status status = it->second->request_timeline(wanted); !status.is_ok()) return status;
  return it->first;
}

void Engine::close_job(JobHandle handle) {
  const Status gone(Code::kShutDown, "its launcher on node " + options().node_id + " has gone",
                    Origin{options().node_id, {}});
  if (ElasticJob* const job = find_elastic(handle)) {
    launchers_.erase(handle.number_);
    return job->close(gone, [this, name = job->spec().job] {
      boost::asio::post(context_.control_loop, [this, name] { retire_elastic(name); });
    });
  }
  JobRunner* const runner = find(handle);
  if (runner == nullptr) return;
  launchers_.erase(handle.number_);
  const bool has_another =
      std::any_of(launchers_.begin(), launchers_.end(),
                  [&](const auto& entry) { return entry.second == runner->spec().job; });
  if (has_another) return;
  // The launcher may have gone because a rank died, which is then the cause.
  runner->look_at_sessions();
  close(*runner, Status(Code::kShutDown,
                        "the launcher of job " + runner->spec().job + " on node " +
                            options().node_id + " has gone",
                        Origin{options().node_id, {}}));
}

void Engine::close(JobRunner& runner, const Status& why) {
  // The job is retired from a fresh turn, because the runner may call back from inside itself.
  runner.close(why, [this, closed = &runner] {
    boost::asio::post(context_.control_loop, [this, closed] { retire(closed); });
  });
}

void Engine::retire(JobRunner* runner) {
  // The job is found by its address, because a launcher and the daemon may both have closed it, and
  // then it is gone already.
  const auto it = std::find_if(jobs_.begin(), jobs_.end(),
                               [&](const auto& entry) { return entry.second.get() == runner; });
  if (it == jobs_.end()) return;
  const JobId job = it->first;
  ElasticJob* const elastic = elastic_of(job);
  if (!elastic) {
    spdlog::info("job {}: closed", job);
    ended_.add(steady_now_ms(), job, runner->spec().token, runner->spec().self, runner->why_over());
    charges_.erase(job);
    std::erase_if(launchers_, [&](const auto& entry) { return entry.second == job; });
  }
  if (runner->has_sessions()) retired_.push_back(std::move(it->second));
  jobs_.erase(it);
  context_.metrics.daemon().jobs.Set(static_cast<double>(jobs_.size()));
  if (elastic) return elastic->on_runner_gone();
  if (jobs_.empty() && elastic_.empty() && on_all_closed_) on_all_closed_();
}

void Engine::retire_elastic(const JobId& job) {
  const auto it = elastic_.find(job);
  if (it == elastic_.end()) return;
  spdlog::info("job {}: closed", job);
  // Processes that wait have been told why it is over, and go when they like.
  charges_.erase(job);
  std::erase_if(launchers_, [&](const auto& entry) { return entry.second == job; });
  std::unique_ptr<ElasticJob> closed = std::move(it->second);
  elastic_.erase(it);
  if (closed->was_ended() && !on_all_closed_) tell_on(std::move(closed));
  if (jobs_.empty() && elastic_.empty() && on_all_closed_) on_all_closed_();
}

void Engine::tell_on(std::unique_ptr<ElasticJob> ended) {
  const TicksMs now = steady_now_ms();
  const JobSpec& spec = ended->spec();
  ended_.add(now, spec.job, spec.token, spec.self, ended->why_over());
  while (!telling_.empty() &&
         (telling_.front().until <= now || telling_.size() >= limits::kMaxJobs)) {
    telling_.pop_front();
  }
  ended->retire();
  telling_.push_back({std::move(ended), now + EndedJobs::kKeptMs});
}

void Engine::close_all(const Status& why, std::function<void()> done) {
  on_all_closed_ = std::move(done);
  telling_.clear();
  if (jobs_.empty() && elastic_.empty()) return on_all_closed_();
  for (const auto& [job, runner] : jobs_) {
    if (!elastic_.contains(job)) close(*runner, why);
  }
  std::vector<ElasticJob*> elastic;
  for (const auto& [job, one] : elastic_) elastic.push_back(one.get());
  for (ElasticJob* const one : elastic) {
    one->close(why, [this, name = one->spec().job] {
      boost::asio::post(context_.control_loop, [this, name] { retire_elastic(name); });
    });
  }
}

// --- Bandwidths ----------------------------------------------------------------------------------

Status Engine::may_measure() const {
  if (on_all_closed_) {
    return {Code::kUnavailable, "the daemon on node " + options().node_id + " is stopping"};
  }
  if (!jobs_.empty()) {
    return {Code::kUnavailable, "node " + options().node_id + " serves job " +
                                    jobs_.begin()->first +
                                    ", which a measurement would disturb; wait for it to end"};
  }
  return Status::ok();
}

void Engine::receive_measurement(const LinkMeasurement& measurement,
                                 std::function<void(Result<std::string>)> ready) {
  if (Status may = may_measure(); !may.is_ok()) return ready(may);
  context_.data_loops.at(0).receive_measurement(
      measurement, [ready = std::move(ready), address = split_addresses(context_.data_address)[0],
                    node = options().node_id](const Status& status) {
        if (status.is_ok()) return ready(address);
        ready(Status(status.code(), "node " + node + " " + status.message()));
      });
}

void Engine::send_measurement(const LinkMeasurement& measurement, const std::string& address,
                              LinkSource::Done done) {
  if (Status may = may_measure(); !may.is_ok()) return done(may);
  context_.data_loops.at(0).send_measurement(
      measurement, address,
      [done = std::move(done), node = options().node_id](Result<double> result) {
        if (result.status().is_retryable()) {
          return done(Status(Code::kUnavailable, "node " + node + " " + result.status().message()));
        }
        done(std::move(result));
      });
}

void Engine::keep_bandwidths(NodeBandwidths bandwidths) {
  bandwidths_ = std::move(bandwidths);
  const auto unreachable = bandwidths_.unreachable();
  context_.metrics.daemon().unreachable_pairs.Set(static_cast<double>(unreachable.size()));
  spdlog::info("bandwidths between {} nodes are kept, for the rings of jobs to come",
               bandwidths_.node_ids.size());
  if (unreachable.empty()) return;
  spdlog::warn("nothing came through from node {} to node {}{}; rings avoid that where they can",
               unreachable.front().first, unreachable.front().second,
               unreachable.size() == 1
                   ? std::string()
                   : " nor between " + std::to_string(unreachable.size() - 1) + " other pairs");
}

// Returns the bandwidths that order the job's ring; without any the ring goes by racks and node
// index. The coordinator's are the ones that count, so it says why there are none.
core::Bandwidths Engine::bandwidths_of(const JobSpec& spec) const {
  if (bandwidths_.node_ids.empty() || spec.self != spec.layout.coordinator()) return {};
  Result<core::Bandwidths> found = bandwidths_.of(spec.layout);
  if (found.is_ok()) return std::move(found).value();
  context_.metrics.daemon().unmeasured_jobs.Increment();
  spdlog::warn("job {}: its ring is not ordered by bandwidths: {}; run ruedactl probe again",
               spec.job, found.status().message());
  return {};
}

std::vector<JobSnapshot> Engine::jobs() const {
  std::vector<JobSnapshot> snapshots;
  for (const auto& [job, runner] : jobs_) {
    snapshots.push_back(runner->snapshot());
    snapshots.back().owner = runner->spec().owner;
    if (const ElasticJob* const elastic = elastic_of(job)) {
      snapshots.back().generations = elastic->history();
    }
  }
  for (const auto& [job, elastic] : elastic_) {
    if (jobs_.contains(job)) continue;
    snapshots.push_back(elastic->snapshot());
    snapshots.back().owner = elastic->spec().owner;
    snapshots.back().generations = elastic->history();
  }
  for (JobSnapshot& snapshot : snapshots) snapshot.failure_timeout_ms = options().timeout_ms;
  return snapshots;
}

std::vector<PlanSnapshot> Engine::plans() const {
  std::vector<PlanSnapshot> all;
  for (const auto& [job, runner] : jobs_) {
    std::vector<PlanSnapshot> some = runner->plans();
    std::move(some.begin(), some.end(), std::back_inserter(all));
  }
  return all;
}

std::vector<StallSnapshot> Engine::stalls() const {
  std::vector<StallSnapshot> all;
  for (const auto& [job, runner] : jobs_) {
    std::vector<StallSnapshot> some = runner->stalls();
    for (StallSnapshot& snapshot : some) snapshot.owner = runner->spec().owner;
    std::move(some.begin(), some.end(), std::back_inserter(all));
  }
  return all;
}

// --- Sessions ------------------------------------------------------------------------------------

Status Engine::on_attach(session::Session& session) {
  const session::Attach& attach = session.attach();
  ElasticJob* const elastic = elastic_of(attach.job);
  const auto it = jobs_.find(attach.job);
  if (!elastic && it == jobs_.end()) {
    return Status(Code::kNotFound, "no job " + attach.job + " is registered on node " +
                                       options().node_id + "; start the program with ruedarun");
  }
  const JobSpec& spec = elastic ? elastic->spec() : it->second->spec();
  const Status known = check_token(spec, attach, options().node_id, elastic != nullptr);
  if (!known.is_ok()) return known;
  if (attach.peer.principal != spec.owner) {
    return Status(Code::kPermission,
                  "job " + attach.job + " belongs to " + spec.owner.to_string() + ", and process " +
                      std::to_string(attach.peer.pid) + " is " + attach.peer.principal.to_string() +
                      "'s: run it as the user who has started the job, and with RUEDA_SOCKET as "
                      "ruedarun has set it");
  }
  Status may = elastic ? elastic->may_attach(attach) : it->second->may_attach(attach);
  if (!may.is_ok()) return may;
  take_session(session, elastic ? nullptr : it->second.get());
  Status attached;
  without_exception(
      [&] { elastic ? elastic->on_attached(session) : it->second->on_attached(session); },
      [&](const char* what) {
        attached =
            Status(Code::kResourceExhausted, std::string("the daemon cannot serve this: ") + what);
      });
  if (!attached.is_ok()) on_lost(session, attached);
  return attached;
}

void Engine::take_session(session::Session& session, JobRunner* runner) {
  owners_.insert_or_assign(&session, runner);
  context_.metrics.daemon().clients.Set(static_cast<double>(owners_.size()));
}

void Engine::on_submit(session::Session& session, const session::Submission& submission) {
  if (JobRunner* const runner = owner_of(session)) return runner->on_submit(session, submission);
  session.complete(submission.ticket, not_begun(session), Epoch{}, 0, Seq{0}, 0);
  session.flush();
}

void Engine::on_waiting(session::Session& session, std::optional<Ticket> ticket) {
  if (JobRunner* const runner = owner_of(session)) runner->on_waiting(session, ticket);
}

Status Engine::on_timeline(session::Session& session, const session::TimelineWish& wish) {
  JobRunner* const runner = owner_of(session);
  if (!runner) return not_begun(session);
  return runner->request_timeline({wish.begins, wish.path, wish.wants_chunks});
}

void Engine::on_nonfinite_asked(session::Session& session) {
  if (JobRunner* const runner = owner_of(session)) return runner->on_nonfinite_asked(session);
  session.nonfinite(nullptr);
}

void Engine::on_device_memory(session::Session& session, session::DeviceMemory memory) {
  if (JobRunner* const runner = owner_of(session)) {
    return runner->on_device_memory(session, std::move(memory));
  }
  session.device_memory_added(memory.id, not_begun(session));
}

void Engine::on_device_memory_removed(session::Session& session, uint32_t id) {
  if (JobRunner* const runner = owner_of(session)) runner->on_device_memory_removed(session, id);
}

void Engine::on_detached(session::Session& session) {
  if (JobRunner* const runner = owner_of(session)) {
    runner->guarded([&] { runner->on_detached(session); });
  }
  forget(session, false);
}

void Engine::on_lost(session::Session& session, const Status& status) {
  spdlog::warn("job {}: {}", session.attach().job, status.message());
  if (JobRunner* const runner = owner_of(session)) {
    runner->guarded([&] { runner->on_lost(session, status); });
  }
  forget(session, true);
}

void Engine::forget(session::Session& session, bool has_died) {
  owners_.erase(&session);
  if (ElasticJob* const job = elastic_of(session.attach().job)) {
    job->on_session_gone(session, has_died);
  }
  context_.metrics.daemon().clients.Set(static_cast<double>(owners_.size()));
  // A retired runner is destroyed from a fresh turn, because it may be on the stack.
  boost::asio::post(context_.control_loop, [this] {
    std::erase_if(retired_, [](const auto& runner) { return !runner->has_sessions(); });
  });
}

// --- Links ---------------------------------------------------------------------------------------

bool Engine::answer_late_join(LinkId link, const Envelope& envelope) {
  const std::optional<EndedJobs::Answer> answer = ended_.answer(steady_now_ms(), envelope);
  if (!answer) return false;
  if (answer->is_first) {
    const auto& fail = std::get<core::Fail>(answer->envelope.message.body);
    spdlog::info("job {}: told node index {}, which comes late, why the job is over: {}",
                 envelope.job, envelope.message.sender().value, fail.status.message());
  }
  context_.metrics.daemon().late_joins.Increment();
  context_.control_plane.send(link, answer->envelope);
  return true;
}

void Engine::on_envelope(LinkId link, Envelope envelope) {
  if (answer_late_join(link, envelope)) return;
  if (ElasticJob* const elastic = elastic_of(envelope.job)) {
    if (!elastic->takes(link, envelope)) return;
  }
  const auto it = jobs_.find(envelope.job);
  if (it != jobs_.end()) {
    it->second->guarded([&] { it->second->on_envelope(link, std::move(envelope)); });
    // The job is not registered here yet, or any more. A Fail is kept; anything else is sent again.
  } else {
    early_fails_.add(steady_now_ms(), std::move(envelope));
  }
}

void Engine::on_timeline(LinkId link, TimelineMessage message) {
  const auto it = jobs_.find(message.job);
  if (it == jobs_.end()) return;
  it->second->guarded([&] { it->second->on_timeline(link, std::move(message)); });
}

void Engine::on_nonfinite(LinkId link, NonfiniteMessage message) {
  const auto it = jobs_.find(message.job);
  if (it == jobs_.end()) return;
  it->second->guarded([&] { it->second->on_nonfinite(link, std::move(message)); });
}

void Engine::on_communicator(LinkId link, const CommunicatorMessage& message) {
  const auto it = jobs_.find(message.job);
  if (it == jobs_.end()) return;
  it->second->guarded([&] { it->second->on_communicator(link, message); });
}

void Engine::on_generation(LinkId link, const GenerationPacket& packet) {
  // Another run of the job may be there by now, under the same name.
  for (const Telling& one : telling_) {
    const JobSpec& spec = one.job->spec();
    if (spec.job != packet.job || !holds(packet.proof, make_proof_key(spec.token, spec.job)))
      continue;
    return one.job->on_packet(link, packet);
  }
  if (ElasticJob* const elastic = elastic_of(packet.job)) elastic->on_packet(link, packet);
}

void Engine::on_link_lost(LinkId link, const Status& status, TicksMs quiet_ms) {
  for (const auto& [job, runner] : jobs_) {
    runner->guarded([&, lost = runner.get()] { lost->on_link_lost(link, status, quiet_ms); });
  }
  for (const auto& [job, elastic] : elastic_) elastic->on_link_lost(link, quiet_ms);
  for (const Telling& one : telling_) one.job->on_link_lost(link, quiet_ms);
}

}  // namespace rueda::engine
