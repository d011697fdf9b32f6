// The control loop's room: all jobs of this node, their sessions, their links. Every method is
// called on the control loop unless it says otherwise.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/engine/job/elastic_job.h"
#include "daemon/engine/job/job_runner.h"
#include "daemon/engine/node/ended_jobs.h"
#include "daemon/engine/node/node_bandwidths.h"
#include "daemon/engine/node/pending_job_failures.h"

namespace rueda::engine {

// A launcher's right to speak for the job that it has registered. register_job makes it, once;
// close_job, and the job's end, make it worthless. The default is nobody's.
class JobHandle {
 public:
  JobHandle() = default;
  bool operator==(const JobHandle&) const = default;

 private:
  friend class Engine;
  explicit JobHandle(uint64_t number) : number_(number) {}
  uint64_t number_ = 0;
};

class Engine final : public session::SessionEvents, public ControlEvents {
 public:
  explicit Engine(const EngineContext& context);
  ~Engine() override;

  // Takes a job in. The error names what is wrong (a job of that name runs, the layout is bad,
  // ...). With a shared job, the first launcher's listener is the one that is told.
  Result<JobHandle> register_job(JobSpec spec, JobListener listener);
  // A rank ended badly; its launcher says so, in words that are shown to all ranks.
  void report_rank_failed(JobHandle handle, Rank rank, const std::string& text);
  // A rank ended well; its launcher says so.
  void report_rank_ended(JobHandle handle, Rank rank);
  // The launcher of an elastic job wants so many processes here from now on.
  void want_slots(JobHandle handle, int slots);
  // The job's launcher has gone; with a shared job, one of its launchers.
  void close_job(JobHandle handle);
  // Somebody ends the job on all its nodes, for good; the text says who, and why, in one line.
  // Returns how many nodes the job has. The error is kNotFound if there is none of that name, and
  // kShutDown, with the cause, if it is over.
  Result<int> end_job(const JobId& job, const std::string& text);
  // Its launcher no longer wants its timeline; there may be none.
  void end_timeline(JobHandle handle);
  // Somebody wants a job's timeline to begin or to end. If `job` is "", the only job is meant.
  // Returns which job that is.
  Result<JobId> request_timeline(const JobId& job, const TimelineRequest& wanted,
                                 const Principal& caller);
  // Ends every job with the reason; `done` is called when all are closed.
  void close_all(const Status& why, std::function<void()> done);

  // --- Bandwidths between nodes, for the order of rings
  // These begin the two ends of a measurement. They are refused while jobs are registered here,
  // which a measurement would disturb. `ready` is told where the source has to connect. Handlers
  // are called on either loop.
  void receive_measurement(const LinkMeasurement& measurement,
                           std::function<void(Result<std::string>)> ready);
  void send_measurement(const LinkMeasurement& measurement, const std::string& address,
                        LinkSource::Done done);
  // Keeps these bandwidths in place of those kept before, for jobs that are registered from now on.
  // They must pass check().
  void keep_bandwidths(NodeBandwidths bandwidths);
  // Returns the pairs of nodes, from and to, that the last measurement which is kept could not
  // connect.
  std::vector<std::pair<std::string, std::string>> unreachable_pairs() const {
    return bandwidths_.unreachable();
  }

  std::vector<JobSnapshot> jobs() const;
  // Returns the stalls of all jobs.
  std::vector<StallSnapshot> stalls() const;
  // Returns the plans of the process sets that are locked.
  std::vector<PlanSnapshot> plans() const;
  bool is_stopping() const { return static_cast<bool>(on_all_closed_); }
  int clients() const { return static_cast<int>(owners_.size()); }
  const EngineOptions& options() const { return context_.options; }

  // session::SessionEvents
  Status on_attach(session::Session& session) override;
  void on_submit(session::Session& session, const session::Submission& submission) override;
  void on_waiting(session::Session& session, std::optional<Ticket> ticket) override;
  Status on_timeline(session::Session& session, const session::TimelineWish& wish) override;
  void on_nonfinite_asked(session::Session& session) override;
  void on_device_memory(session::Session& session, session::DeviceMemory memory) override;
  void on_device_memory_removed(session::Session& session, uint32_t id) override;
  void on_submissions_drained(session::Session&) override {}  // The end of the turn handles them.
  void on_detached(session::Session& session) override;
  void on_lost(session::Session& session, const Status& status) override;

  // ControlEvents
  bool knows(const JobId& job) const override {
    return jobs_.contains(job) || elastic_.contains(job) || ended_.knows(job);
  }
  void on_envelope(LinkId link, Envelope envelope) override;
  void on_timeline(LinkId link, TimelineMessage message) override;
  void on_nonfinite(LinkId link, NonfiniteMessage message) override;
  void on_communicator(LinkId link, const CommunicatorMessage& message) override;
  void on_generation(LinkId link, const GenerationPacket& packet) override;
  void on_link_lost(LinkId link, const Status& status, TicksMs quiet_ms) override;

 private:
  // The job that runs under this name, if it is shared and this is one more launcher of it.
  JobRunner* find_shared(const JobSpec& spec) const;
  Result<JobHandle> register_elastic(JobSpec spec, JobListener listener, session::Charge paid);
  JobHandle add_launcher(const JobId& job);
  // These return nullptr if the handle is worthless, or the job is of the other kind.
  JobRunner* find(JobHandle handle) const;
  ElasticJob* find_elastic(JobHandle handle) const;
  ElasticJob* elastic_of(const JobId& job) const;
  // Returns nullptr for a process that waits for the next generation of its job.
  JobRunner* owner_of(session::Session& session) { return owners_.at(&session); }
  void take_session(session::Session& session, JobRunner* runner);
  // Every generation of an elastic job has ended, and its launcher has gone.
  void retire_elastic(const JobId& job);
  // Keeps a closed job that somebody has ended, so that other nodes hear it from here.
  void tell_on(std::unique_ptr<ElasticJob> ended);
  void close(JobRunner& runner, const Status& why);
  void retire(JobRunner* runner);
  void forget(session::Session& session, bool has_died);
  Status may_measure() const;
  core::Bandwidths bandwidths_of(const JobSpec& spec) const;
  // Answers the message if it is a Join to a job that is over here, and returns whether it is.
  bool answer_late_join(LinkId link, const Envelope& envelope);

  const EngineContext context_;
  std::map<JobId, std::unique_ptr<JobRunner>> jobs_;
  std::map<JobId, std::unique_ptr<ElasticJob>> elastic_;  // jobs_ has the runners of these, too.
  // The job of each launcher, by the number of the launcher's handle. A shared job may have several
  // launchers.
  std::map<uint64_t, JobId> launchers_;
  uint64_t last_handle_ = 0;
  std::map<JobId, session::Charge> charges_;
  EndedJobs ended_;
  NodeBandwidths bandwidths_;  // Without nodes, nothing has been measured.
  PendingJobFailures early_fails_;
  // Elastic jobs that somebody has ended, and that are closed here: nodes that come late, or that
  // could not be reached, hear it from them for a while. The oldest comes first.
  struct Telling {
    std::unique_ptr<ElasticJob> job;
    TicksMs until = 0;
  };
  std::deque<Telling> telling_;
  // Jobs that are closed, but have processes attached: they get errors until they go.
  std::vector<std::unique_ptr<JobRunner>> retired_;
  std::unordered_map<session::Session*, JobRunner*> owners_;
  std::function<void()> on_all_closed_;
};

}  // namespace rueda::engine
