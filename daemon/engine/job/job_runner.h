// One job on this node, alive: feeds the job's core with what its sessions, links and data loop
// report, and carries out what the core says. Belongs to the control loop.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <sys/types.h>

#include "daemon/core/job/job.h"
#include "daemon/engine/data/data_loops.h"
#include "daemon/engine/data/data_parts.h"
#include "daemon/engine/device/device_job.h"
#include "daemon/engine/device/nccl_sets.h"
#include "daemon/engine/operation/build_operation.h"
#include "daemon/engine/ports/control_plane.h"
#include "daemon/engine/trace/finite_watch.h"
#include "daemon/engine/trace/stall_snapshot.h"
#include "daemon/engine/trace/timeline.h"
#include "daemon/observe/metrics.h"
#include "daemon/session/session.h"

namespace rueda::engine {

struct EngineOptions {
  std::string node_id;
  std::string rack;  // where this node stands; empty: nobody has said
  int64_t fusion_threshold_bytes = int64_t{64} << 20;
  core::Coordination coordination = core::kDefaultCoordination;
  core::Reducer reducer = core::Reducer::kNode;
  core::InterNode inter_node = core::InterNode::kRueda;
  uint64_t chunk_bytes = 256 * 1024;
  uint64_t staging_bytes = 64u << 20;
  // The one setting that waits for peers derive from (invariant I4).
  TicksMs timeout_ms = 10'000;
  TicksMs start_timeout_ms = 60'000;
  // How long some ranks of a job may wait for others (daemon/core/stall/stall.h).
  core::StallOptions stall{10'000, 0};
  core::TreeOptions tree;
  int lanes = 4;
  uint32_t streams = 1;            // of each channel
  bool corrupt_reduction = false;  // --fault reduce
  int64_t clock_skew_ns = 0;       // --fault clock: of timelines
  // The program of a GPU worker and its arguments (GpuWorkerOptions). Empty: there is none.
  std::vector<std::string> gpu_worker_command;
  uint64_t gpu_staging_bytes = uint64_t{1} << 30;  // DeviceJobOptions::most_staging_bytes
  bool adds_on_gpu = false;  // what arrives from other nodes, for batches in device memory
};

// What the rooms of a job share. All outlive it.
struct EngineContext {
  boost::asio::io_context& control_loop;
  DataLoops& data_loops;
  ControlPlane& control_plane;
  observe::Metrics& metrics;
  const EngineOptions& options;
  // This node's, of each data loop, as others reach it; ":port" if it is where the control address
  // is. As join_addresses() has them.
  std::string data_address;
  // A small operation has been submitted or has ended: what comes next is microseconds away.
  std::function<void()> on_small = [] {};
  // What users of this node may have.
  std::shared_ptr<session::Ledger> ledger = std::make_shared<session::Ledger>();
};

// A job as a launcher registers it.
struct JobSpec {
  JobId job;
  std::string token;  // limits::kTokenBytes
  std::string user;   // for people
  uid_t uid = 0;      // whose processes may attach
  NodeIndex self;
  core::Layout layout;
  // Where nothing is said, the daemon's.
  std::optional<int64_t> fusion_threshold_bytes;
  TicksMs start_timeout_ms = 0;  // 0: the daemon's
  std::optional<core::Coordination> coordination;
  core::AlgorithmChoice algorithm = core::AlgorithmChoice::kAuto;  // of all-reduces
  std::optional<core::Reducer> reducer;
  std::optional<core::InterNode> inter_node;  // what carries device memory between its nodes
  core::Bandwidths bandwidths;  // between its nodes, as the daemon knows them; empty: it does not
  // Where nothing is said, core::AgreementOptions'.
  std::optional<int> lock_after_steps;
  std::optional<size_t> cache_capacity;
  // How long ranks may wait for others; where nothing is said, the daemon's.
  std::optional<TicksMs> stall_check_ms;
  std::optional<TicksMs> stall_shutdown_ms;
  // Registered once for each local rank, and there until the last registration is closed.
  bool is_shared = false;
  std::optional<TimelineRequest> timeline;  // to be written from the beginning; on node 0
  bool checks_finite = false;               // what this node's ranks contribute to reductions
  // Decision 51. The same on all nodes, as is the next.
  bool autotunes = false;
  bool replays = false;
  // On node 0.
  std::shared_ptr<const core::Plan> replayed;  // null: there is none
  bool records_plan = false;
};

// Told on the control loop.
struct JobListener {
  std::function<void(Epoch)> on_started;
  std::function<void(const Status&)> on_failed;
  // On node 0; see TimelineHost.
  std::function<bool(TimelineNews)> on_timeline = [](const TimelineNews&) { return false; };
  // On the coordinator's node: how the search for a setting goes, and which plan is in force.
  std::function<void(const core::TuningLine&)> on_tuning = [](const core::TuningLine&) {};
  std::function<void(const core::Plan&)> on_plan = [](const core::Plan&) {};
};

struct JobSnapshot {
  struct ProcessSet {
    uint32_t id = 0;
    std::vector<Rank> ranks;
    bool locked = false;
  };

  JobId job;
  std::string user;
  std::string state;
  uint32_t epoch = 0;
  int world_size = 0;
  int local_size = 0;
  int attached = 0;
  int nodes = 0;
  std::string coordinator;
  std::string mode;
  bool locked = false;  // a plan is in force
  uint64_t operations = 0;
  uint64_t bytes_reduced = 0;
  uint64_t in_flight = 0;
  std::string error;
  std::vector<Rank> missing_ranks;
  std::vector<std::string> ring;  // node ids in the order of the ring, of the epoch that runs
  std::vector<ProcessSet> process_sets;  // beside that of all ranks
};

// A locked schedule in force.
struct PlanSnapshot {
  JobId job;
  uint32_t process_set = 0;
  std::vector<Rank> ranks;
  core::Plan plan;
};

class JobRunner final : private TimelineHost, private FiniteHost {
 public:
  JobRunner(const EngineContext& context, JobSpec spec, JobListener listener);
  ~JobRunner() override;

  const JobSpec& spec() const { return spec_; }
  // What throws ends the job.
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
  // What those have left behind that hung up comes in before this returns.
  void look_at_sessions();

  // --- Links
  void on_envelope(LinkId link, Envelope envelope);
  // It came, over whichever link, before the job was registered.
  void on_early_fail(Envelope envelope) { on_envelope(LinkId{}, std::move(envelope)); }
  void on_link_lost(LinkId link, const Status& status);

  void on_timeline(LinkId link, TimelineMessage message);
  void on_nonfinite(LinkId link, NonfiniteMessage message);
  void on_communicator(LinkId link, const CommunicatorMessage& message);
  // Somebody on this node wants one to begin, or to end.
  Status request_timeline(const TimelineRequest& wanted) { return timeline_.request(wanted); }

  // The launcher saw a rank of this node end badly.
  void on_rank_failed(Rank rank, const std::string& text);

  // The launcher is gone, or the daemon stops. `done` is called when nothing of the job is under
  // way on this node any more; sessions may still be attached, and are answered with errors.
  void close(const Status& why, std::function<void()> done);

  // Once it has been closed: the first cause.
  const Status& why_over() const;

  JobSnapshot snapshot() const;
  std::vector<StallSnapshot> stalls() const;
  // Of the process sets that are locked, by id.
  std::vector<PlanSnapshot> plans() const;

 private:
  // A submission in flight. What is of the past is kept: most come again, and then nothing but the
  // ticket is new. A step has a thousand of them: the first cache line is enough but for the
  // launch.
  struct alignas(64) Held {
    uint64_t content = 0;  // session::Submission's
    Ticket ticket;
    double submitted_s = 0;
    uint64_t bytes = 0;
    uint32_t process_set = 0;  // as the descriptor says, which is not always in cache
    bool moves_data = false;
    bool copied_in = false;
    bool copied_out = false;
    bool is_in_flight = false;
    core::DescriptorPtr descriptor;
    SubmittedBuffers buffers;
    // Where the contribution is checked: how often the rank has given one of this name.
    uint64_t* steps = nullptr;  // as it is now; null: it is not counted
    uint64_t step = 0;
  };
  using OperationKey = std::pair<uint32_t, Seq>;  // process set first
  // Of a submission in device memory, beside what is held of it: others need not be longer.
  struct OnDevice {
    struct Side {
      uint32_t memory = 0;  // the session's id
      uint64_t offset = 0;
    };
    Side input;
    Side output;
  };
  struct Local {
    session::Session* session = nullptr;
    uint32_t capacity = 1;            // tickets in flight differ modulo this
    std::vector<Held> held;           // by ticket modulo capacity; as many as were ever in use
    std::vector<OnDevice> on_device;  // likewise
    // What the submissions in flight of a process that is gone may use.
    std::vector<std::shared_ptr<session::Arena>> arenas;
    bool detaching = false;  // said goodbye; the core hears of it when the data plane is quiet
    bool attach_deferred = false;  // a new process is there already
    bool dirty = false;            // has completions that are not flushed
  };

  Local& local(LocalRank rank) { return locals_[static_cast<size_t>(rank.value)]; }
  Held& held(LocalRank rank, Ticket ticket);
  Status check_place(LocalRank rank, const session::Submission& submission) const;
  void hold(LocalRank rank, const session::Submission& submission);
  std::vector<std::string> ring() const;  // node ids
  std::string describe_node() const { return spec_.layout.node(spec_.self).node_id; }

  void step(core::Event event);
  // As if one of this node's ranks were lost.
  void end_by(const Status& why);
  void carry_out();
  void begin_turn();
  void end_turn();
  void count_sets();
  void arm_timer();
  bool is_parent(NodeIndex node) const;
  // None: no link is there yet.
  std::optional<LinkId> link_to(NodeIndex node);
  // None: the link is not one of the job's.
  std::optional<NodeIndex> node_behind(LinkId link) const;
  std::optional<NodeIndex> timeline_parent() const override;
  std::vector<NodeIndex> timeline_children() const override;
  void send_timeline(NodeIndex to, TimelineMessage message) override;
  bool tell_launcher(TimelineNews news) override { return listener_.on_timeline(std::move(news)); }

  // --- job_runner_finite.cc
  void count_step(LocalRank rank, Held& item);
  std::shared_ptr<InputCheck> check_of(const core::Launch& launch);
  std::optional<NodeIndex> finite_parent() const override { return timeline_parent(); }
  std::vector<NodeIndex> finite_children() const override { return timeline_children(); }
  void send_nonfinite(NodeIndex to, NonfiniteMessage message) override;
  void tell_rank(LocalRank rank, const session::NonfiniteNews* news) override;
  void release_old_parents();
  void send(NodeIndex to, core::Message message);
  bool authenticate(LinkId link, const Envelope& envelope);
  void start_epoch(const core::EpochStarted& started);
  void note_tuning(const core::TuningLine& line);
  void open_data(uint32_t process_set, const core::Layout& layout);
  // Ends the job, soon, where its user has no more of it.
  void charge_staging(uint32_t process_set, const core::Layout& layout);
  size_t common_loops() const;
  // Among how many data loops it is shared out, in a ring of so many members.
  size_t shares_of(const Operation& operation, int nodes) const;
  DataEvents data_events(uint32_t process_set, const std::vector<NodeIndex>& ring);
  core::Reducer reducer() const { return spec_.reducer.value_or(context_.options.reducer); }
  void open_set(const core::ProcessSetAdded& added);
  void close_set(uint32_t process_set);
  const core::Collectives* find_set(uint32_t id) const;
  void launch(const core::Launch& launch);
  // What one data job does of an operation.
  struct Part {
    size_t loop = 0;
    uint32_t number = 0;
    std::unique_ptr<Operation> operation;
  };
  static std::pair<uint32_t, core::Track> order_of(const core::Launch& launch) {
    return {launch.process_set, core::track_of(launch.seq)};
  }
  void run_part(Part part);
  // --- job_runner_device.cc
  // Why tensors in device memory cannot be reduced in this job; ok: they can.
  Status check_device() const;
  void open_device();
  OnDevice& on_device(LocalRank rank, Ticket ticket);
  void launch_on_device(const core::Launch& launch);
  // --- job_runner_across.cc
  bool leaves_to_nccl() const;
  void open_nccl();
  // What the nodes agree on, of what a rank has submitted.
  core::DescriptorPtr carried(const core::DescriptorPtr& submitted);
  void launch_across(const core::Launch& launch);
  void run_across(const core::Launch& launch, const StagedRow& row, AcrossNodes across);
  void fail_later(Seq seq, const Status& status);
  // Says it once of a batch that NCCL has had for longer than ranks may wait for each other.
  void watch_across();
  void pass_on(const CommunicatorMessage& message, std::optional<NodeIndex> from);
  // --- job_runner_device.cc
  // What a process that says goodbye takes with it, though it was to be read; null: nothing.
  const Held* left_on_device(LocalRank rank) const;
  DeviceLaunch device_launch_of(const core::Launch& launch) const;
  FindDevicePlaces places_of(const core::Launch& launch);
  // `then` runs, from the loop, when no GPU worker touches memory of the job any more.
  void stop_device(std::function<void()> then);

  // --- job_runner_staged.cc
  struct StagedBatch {
    core::Launch launch;
    std::vector<ElementRange> rounds;
    bool adds_on_gpu = false;
    std::optional<StagedRow> row;         // none: no rank of this node has anything
    int users = 1;                        // of the row: the batch, and rounds that the worker has
    std::vector<StagedRound> operations;  // by round; without those that the worker was given
    // In host memory; what has a single round is sent when it is.
    std::shared_ptr<std::atomic<int>> rounds_here = std::make_shared<std::atomic<int>>(0);
    std::vector<size_t> rounds_done;  // by share: so many, on the network
    size_t rounds_begun_back = 0;
    size_t rounds_back = 0;
    bool is_over = false;
  };
  // The same on all nodes, as is the next.
  bool always_rings(const core::Launch& launch) const;
  std::vector<ElementRange> rounds_of(const core::Launch& launch) const;
  void launch_staged(const core::Launch& launch);
  void gather(const std::shared_ptr<StagedBatch>& staged, const Result<StagedRow>& row);
  // `then`, once they have ended well and the batch is not over.
  void run_round(const std::shared_ptr<StagedBatch>& staged,
                 std::vector<gpu::WorkerOperation> operations,
                 void (JobRunner::*then)(const std::shared_ptr<StagedBatch>&));
  // One user of its row less.
  void let_go(StagedBatch& staged);
  void on_round_out(const std::shared_ptr<StagedBatch>& staged);
  Result<std::unique_ptr<Operation>> build_staged(const std::shared_ptr<StagedBatch>& staged);
  void send_staged(const std::shared_ptr<StagedBatch>& staged);
  void on_rounds_done(const OperationKey& key, uint32_t generation, int share, int rounds);
  bool is_staged(const OperationKey& key);
  void bring_back(const std::shared_ptr<StagedBatch>& staged);
  void on_round_back(const std::shared_ptr<StagedBatch>& staged);
  void end_staged(StagedBatch& staged, const Status& status);
  // Those that are, which use their rows until the data plane has let go of them.
  std::vector<std::shared_ptr<StagedBatch>> cancel_staged(const core::Cancel& cancelled);

  // --- job_runner_additions.cc
  bool adds_on_gpu(const core::Launch& launch) const;
  std::vector<ElementRange> sent_of(const StagedBatch& staged) const;
  AddElsewhere additions_of(const std::shared_ptr<StagedBatch>& staged);
  struct WantedAddition {
    std::shared_ptr<StagedBatch> staged;
    ChunkAddition addition;
    std::function<void(const Status&)> done;
  };
  void add_on_gpu(WantedAddition wanted);
  void serve_additions();
  void run_addition(const WantedAddition& wanted);
  // The worker's, which maps it when it is first asked for.
  uint32_t number_of_staging(uint32_t process_set, const ChunkAddition& addition);
  void unmap_staging(uint32_t process_set);

  // A small operation of one node, on this loop.
  void run_here(const Operation& operation);
  struct EndedHere {
    Epoch epoch;
    uint32_t process_set;
    Seq seq;
    Status status;
  };
  // When the turn is over.
  void end_later(EndedHere ended);
  void tell_ended_here();
  void end_operation(uint32_t process_set, Seq seq);
  void cancel(const core::Cancel& cancelled);
  void deliver(const core::Delivery& delivery);
  void deliver_all(const std::vector<core::Delivery>& deliveries);
  void fail(const Status& cause, std::vector<core::Delivery> deliveries);
  // With why links to parents are not up.
  Status with_trouble(const Status& status) const;
  void flush_sessions();
  void finish_detach(LocalRank rank);
  void finish_close();
  void count_end(const core::Delivery& delivery, const Held& held);

  EngineContext context_;
  const JobSpec spec_;
  const JobListener listener_;
  core::JobCore core_;
  std::shared_ptr<observe::JobMetrics> metrics_;
  std::vector<Local> locals_;  // by local rank
  int attached_sessions_ = 0;
  int detaching_ = 0;

  std::map<NodeIndex, LinkId> parents_;   // dialled: this node's, and the one that is to be
  std::map<NodeIndex, LinkId> children_;  // over which link each child joined

  Timeline timeline_;
  FiniteWatch finite_;

  struct UnderWay {
    CollectiveKind kind;
    size_t parts;                       // that are not done
    std::shared_ptr<InputCheck> check;  // null: there is none
  };
  std::map<OperationKey, UnderWay> operations_;
  std::map<uint32_t, DataParts> parts_;          // of the epoch, by process set
  std::map<uint32_t, session::Charge> staging_;  // likewise
  std::vector<EndedHere> ended_here_;            // and not told yet
  std::unique_ptr<DeviceJob> device_;            // null: nobody has shared device memory
  std::unique_ptr<NcclSets> nccl_;               // null: nor is there anything for NCCL
  struct Across {
    TicksMs since = 0;
    core::LaunchTensors tensors;
    bool is_told = false;
  };
  std::map<OperationKey, Across> across_;  // from their launch to their end
  boost::asio::steady_timer across_timer_;
  bool is_across_watched_ = false;
  std::deque<WantedAddition> wanted_additions_;  // at most one for each slot
  size_t adding_ = 0;
  // A data job's, that the worker has mapped.
  struct MappedStaging {
    std::shared_ptr<const StagingFile> file;
    uint32_t number = 0;
  };
  std::map<uint32_t, std::vector<MappedStaging>> mapped_staging_;  // by process set
  // Of tensors that NCCL carries: as submitted, and as agreed on.
  std::unordered_map<const core::TensorDescriptor*,
                     std::pair<core::DescriptorPtr, core::DescriptorPtr>>
      carried_;
  std::map<OperationKey, std::shared_ptr<StagedBatch>> staged_;
  // What was launched behind a batch that is not in host memory yet: the data plane takes
  // operations in their order.
  struct InOrder {
    Seq seq;
    bool is_ready = false;
    std::vector<Part> parts;
  };
  std::map<std::pair<uint32_t, core::Track>, std::deque<InOrder>> in_order_;
  OperationKernels kernels_;
  std::vector<std::string> data_addresses_;  // of the epoch, by node
  size_t loops_ = 1;                         // of the epoch: data loops of every node
  bool data_epoch_open_ = false;
  Epoch data_epoch_;
  uint64_t operations_done_ = 0;
  // By deliveries that are being told together: metrics cost more than the rest.
  struct Counted {
    uint64_t tensors = 0;
    uint64_t reduced_bytes = 0;
    uint64_t copied_out_bytes = 0;
    OperationKey last;  // operation that has been counted
    bool has_small = false;
  } counted_;
  uint64_t bytes_reduced_ = 0;
  uint64_t submitted_ = 0;        // submissions so far
  std::string last_failed_name_;  // several ranks' submissions of one tensor count as one

  core::Output output_;  // what is not carried out yet
  bool turn_pending_ = false;
  bool has_small_ = false;  // something small was submitted in this turn
  double turn_began_s_ = 0;
  TicksMs now_ms_ = 0;  // as the core was told last
  bool has_thrown_ = false;
  // The core's time: without that for which this daemon was stopped, as far as it was noticed.
  TicksMs running_ms() const { return steady_now_ms() - stopped_ms_; }
  TicksMs stopped_ms_ = 0;
  bool failing_ = false;  // the core has failed; the clients are about to be told
  boost::asio::steady_timer timer_;
  std::optional<TicksMs> armed_for_;
  bool warned_of_device_ = false;    // once: that it cannot be used
  bool warned_of_stranger_ = false;  // once: a stranger shall not fill the log
  std::optional<Status> closing_;
  bool close_waits_ = false;  // for the plan in force to be given up, or for others to let us go
  bool told_closed_ = false;  // the core has been
  std::function<void()> on_closed_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace rueda::engine
