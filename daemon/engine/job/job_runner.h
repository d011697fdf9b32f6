// One job on this node, alive: it feeds the job's core with what its sessions, links and data loops
// report, and carries out what the core says. It belongs to the control loop.
//
// The work is elsewhere: JobLinks has the links to other nodes, SubmissionLedger what is in flight,
// HostPath and DevicePath the ways of a batch. Each method here takes an event to the core, or what
// the core says to one of those, which is why there are more than 40.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/steady_timer.hpp>

#include "daemon/base/lifetime.h"
#include "daemon/core/job/job.h"
#include "daemon/engine/job/device_path.h"
#include "daemon/engine/job/host_path.h"
#include "daemon/engine/job/job_links.h"
#include "daemon/engine/job/job_spec.h"
#include "daemon/engine/job/path_host.h"
#include "daemon/engine/job/submission_ledger.h"
#include "daemon/engine/trace/finite_watch.h"
#include "daemon/engine/trace/stall_snapshot.h"
#include "daemon/engine/trace/timeline.h"
#include "daemon/observe/metrics.h"
#include "daemon/session/session.h"

namespace rueda::engine {

class JobRunner final : private TimelineHost, private FiniteHost, private PathHost {
 public:
  JobRunner(const EngineContext& context, JobSpec spec, JobListener listener);
  ~JobRunner() override;

  const JobSpec& spec() const { return spec_; }
  // Runs `work`, for which the job answers. An exception that it throws ends the job.
  void guarded(const std::function<void()>& work);

  // --- Sessions
  Status may_attach(const session::Attach& attach) const;
  void on_attached(session::Session& session);
  void on_submit(session::Session& session, const session::Submission& submission);
  void on_waiting(session::Session& session, std::optional<Ticket> ticket);
  void on_nonfinite_asked(session::Session& session);
  void on_device_memory(session::Session& session, session::DeviceMemory memory);
  void on_device_memory_removed(session::Session& session, uint32_t id);
  void on_detached(session::Session& session);
  void on_lost(session::Session& session, const Status& status);
  bool has_sessions() const { return attached_sessions_ > 0; }
  // Takes in, before it returns, what sessions that hung up have left behind.
  void look_at_sessions();

  // --- Links
  void on_envelope(LinkId link, Envelope envelope);
  // Takes a Fail that came, over whichever link, before the job was registered.
  void on_early_fail(Envelope envelope) { on_envelope(LinkId{}, std::move(envelope)); }
  void on_link_lost(LinkId link, const Status& status, TicksMs quiet_ms);
  const std::map<NodeIndex, LinkId>& child_links() const { return links_.child_links(); }

  void on_timeline(LinkId link, TimelineMessage message);
  void on_nonfinite(LinkId link, NonfiniteMessage message);
  void on_communicator(LinkId link, const CommunicatorMessage& message);
  // Somebody on this node wants the timeline to begin, or to end.
  Status request_timeline(const TimelineRequest& wanted) { return timeline_.request(wanted); }

  // The launcher saw a rank of this node end badly.
  void on_rank_failed(Rank rank, const std::string& text);

  // Somebody has ended the job, on all its nodes.
  void end(const Status& why) { step(core::JobEnded{why}); }
  // The launcher is gone, or the daemon stops. `done` is called when nothing of the job is under
  // way on this node any more; sessions may still be attached, and are answered with errors.
  void close(const Status& why, std::function<void()> done);

  // Returns why the job has failed; ok as long as it has not.
  const Status& failure() const { return core_.failure(); }
  // Returns the first cause of the end. The job must have been closed.
  const Status& why_over() const;

  JobSnapshot snapshot() const;
  std::vector<StallSnapshot> stalls() const;
  // Returns the plans of the process sets that are locked, by id.
  std::vector<PlanSnapshot> plans() const;

 private:
  struct Local {
    session::Session* session = nullptr;
    // The memory that submissions in flight of a process that is gone may use.
    std::vector<std::shared_ptr<session::Arena>> arenas;
    bool detaching = false;  // It said goodbye; the core hears of it when the data plane is quiet.
    bool attach_deferred = false;  // A new process is there already.
    bool dirty = false;            // It has completions that are not flushed.
  };

  Local& local(LocalRank rank) { return locals_[static_cast<size_t>(rank.value)]; }
  std::string describe_node() const { return spec_.layout.node(spec_.self).node_id; }
  // Returns the core's time, which leaves out the time for which this daemon was stopped, as far as
  // it was noticed.
  TicksUs running_us() const { return steady_now_us() - stopped_us_; }
  void note_time() {
    now_us_ = running_us();
    now_ms_ = to_ms(now_us_);
  }

  std::shared_ptr<const Cause> make_cause();
  // Ends the job from a fresh turn, because this daemon cannot serve it. It ends once, because to
  // end it may go wrong, too.
  void end_unserved(const std::string& why);

  // --- The core
  void step(core::Event event);
  void carry_out();
  void begin_turn();
  void end_turn();
  void count_sets();
  void arm_timer();
  void start_epoch(const core::EpochStarted& started);
  void note_tuning(const core::TuningLine& line);
  void launch(const core::Launch& launch);
  void cancel(const core::Cancel& cancelled);
  std::vector<std::string> ring() const;  // Returns node ids.

  // --- Submissions
  Status check_place(LocalRank rank, const session::Submission& submission) const;
  const core::DescriptorPtr& hold(LocalRank rank, const session::Submission& submission);
  void count_step(LocalRank rank, HeldSubmission& item);
  std::shared_ptr<InputCheck> check_of(const core::Launch& launch);
  void deliver_all(const std::vector<core::Delivery>& deliveries);
  // Records the end of a send or a receive; has no effect for anything else.
  void note_transfer(JobTrace& trace, const core::Delivery& delivery);

  // --- PathHost
  const core::Collectives* find_set(uint32_t id) const override;
  Rank global_rank(LocalRank rank) const override { return core_.global_rank(rank); }
  Epoch epoch() const override { return core_.epoch(); }
  void end_operation(OperationKey key) override;
  void end_transfer(const core::TransferKey& key) override { step(core::TransferDone{key}); }
  void fail_operation(Seq seq, const Status& why) override {
    step(core::OperationFailed{seq, why});
  }
  // Ends the job as if one of this node's ranks were lost.
  void end_by(const Status& why) override;
  std::shared_ptr<const Cause> cause() const override { return cause_; }
  DataEvents data_events(uint32_t process_set, const std::vector<NodeIndex>& ring) override;
  void device_memory_added(LocalRank rank, uint32_t id, const Status& status) override;

  // --- TimelineHost, FiniteHost
  std::optional<NodeIndex> timeline_parent() const override { return links_.parent(); }
  std::vector<NodeIndex> timeline_children() const override { return links_.children(); }
  bool is_below_child(NodeIndex node, NodeIndex child) const override {
    return links_.is_below_child(node, child);
  }
  void send_timeline(NodeIndex to, TimelineMessage message) override { links_.tell(to, message); }
  bool tell_launcher(TimelineNews news) override { return listener_.on_timeline(std::move(news)); }
  std::optional<NodeIndex> finite_parent() const override { return links_.parent(); }
  std::vector<NodeIndex> finite_children() const override { return links_.children(); }
  void send_nonfinite(NodeIndex to, NonfiniteMessage message) override { links_.tell(to, message); }
  void tell_rank(LocalRank rank, const session::NonfiniteNews* news) override;

  // --- The end
  // Tells the clients of the failure once nothing reads or writes their memory any more.
  void fail(const Status& cause, std::vector<core::Delivery> deliveries);
  void finish_detach(LocalRank rank);
  void finish_close();

  EngineContext context_;
  const JobSpec spec_;
  const JobListener listener_;
  core::JobCore core_;
  std::shared_ptr<observe::JobMetrics> metrics_;
  std::vector<Local> locals_;  // The index is the local rank.
  int attached_sessions_ = 0;
  int detaching_ = 0;

  JobLinks links_;
  SubmissionLedger ledger_;
  Timeline timeline_;
  FiniteWatch finite_;
  HostPath host_path_;
  DevicePath device_path_;

  core::Output output_;  // What is not carried out yet.
  bool turn_pending_ = false;
  double turn_began_s_ = 0;
  // The time that the core was told last, in both units: submissions want it in milliseconds.
  TicksUs now_us_ = 0;
  TicksMs now_ms_ = 0;
  TicksUs stopped_us_ = 0;
  boost::asio::steady_timer timer_;
  std::optional<TicksUs> armed_for_;

  bool is_unserved_ = false;
  bool warned_of_device_ = false;  // It has warned, once, that device memory cannot be used.
  bool failing_ = false;           // The core has failed; the clients are about to be told.
  std::optional<Status> closing_;
  // It waits for the plan in force to be given up, or for others to let this node go.
  bool close_waits_ = false;
  bool told_closed_ = false;  // The core has been told.
  std::function<void()> on_closed_;
  Lifetime lifetime_;
  const std::shared_ptr<const Cause> cause_ = make_cause();
};

}  // namespace rueda::engine
