// One job on one node: its epochs, its submissions, the order of its operations. Pure: told what
// happened and what time it is, it says what is to be done. The daemon, and the simulator in
// tests/sim, run the same code.
//
// Life of an epoch:  forming -> running -> (all ranks left) -> forming, one epoch on
//                         \-> suspecting -> failed <-/
// Policy `fail`: the first death ends the job, and every survivor is told who died.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/core/agreement.h"
#include "daemon/core/layout.h"
#include "daemon/core/messages.h"
#include "daemon/core/stall.h"
#include "daemon/core/submissions.h"
#include "daemon/core/track.h"

namespace rueda::core {

struct JobOptions {
  JobId job;
  std::string data_address;  // this node's, told to the others
  AgreementOptions agreement;
  // L5's W: how far ahead of the oldest operation under way a launch may be, in the lockable track
  // (core/track.h has that of the other). The same on all nodes.
  int max_launched_operations = 4;
  TicksMs start_timeout_ms = 60'000;   // for all ranks to attach
  TicksMs join_interval_ms = 300;      // Join is repeated until Start
  TicksMs suspicion_grace_ms = 1'000;  // after a data channel broke: for the true cause to arrive
  StallOptions stall;
};

// --- Events ---------------------------------------------------------------------------------
struct RankAttached {
  LocalRank rank;
};
struct RankDetached {
  LocalRank rank;
};  // said goodbye
struct RankLost {
  LocalRank rank;
  Status status;
};  // died, or broke the rules
struct Submitted {
  LocalSubmission submission;
};
struct MessageArrived {
  Message message;
};
// The control link to the node is gone for good.
struct NodeLost {
  NodeIndex node;
  Status status;
};
// A data channel broke. The cause may be the peer's death, or that it has ended the epoch already.
struct DataChannelLost {
  NodeIndex node;
  Status status;
};
struct OperationDone {
  Seq seq;
};
// The rank sleeps until the submission ends; none: it sleeps no longer. A hint, which need not
// come.
struct RankWaits {
  LocalRank rank;
  std::optional<Ticket> ticket;
};
struct OperationFailed {
  Seq seq;
  Status status;
};
// The job is taken off this node (its launcher went away, the daemon stops).
struct JobClosed {
  Status status;
};
struct TimePassed {};
// Everything known at this moment has been told.
struct TurnEnded {};

using Event = std::variant<RankAttached, RankDetached, RankLost, Submitted, MessageArrived,
                           NodeLost, DataChannelLost, OperationDone, OperationFailed, JobClosed,
                           TimePassed, RankWaits, TurnEnded>;

// --- Output ---------------------------------------------------------------------------------
struct LaunchTensor {
  DescriptorPtr descriptor;
  std::vector<Ticket> tickets;  // by local rank
};

// Carry this operation out; answer with OperationDone or OperationFailed.
struct Launch {
  Epoch epoch;
  Seq seq;
  uint32_t generation = 0;
  // By a plan: other nodes may be far from launching it. No deadline until they show that they
  // have.
  bool locked = false;
  uint64_t plan_hash = 0;
  std::vector<LaunchTensor> tensors;  // of one kind, dtype, op and scale
};

// The end of one submission.
struct Delivery {
  LocalRank rank;
  Ticket ticket;
  Status status;
  Epoch epoch;
  uint32_t contributors = 0;
  Seq seq;
  int64_t bytes = 0;
};

struct EpochStarted {
  Epoch epoch;
  std::vector<std::string> data_addresses;  // by node index
};

struct Output {
  std::vector<std::pair<NodeIndex, Message>> sends;
  std::vector<Cancel> cancels;  // before the launches
  std::vector<Launch> launches;
  std::vector<Delivery> deliveries;
  std::optional<EpochStarted> started;
  std::optional<Epoch> finished;   // every rank has left: the epoch's channels may be closed
  std::optional<Status> failed;    // the job is over; operations under way are to be dropped
  std::vector<std::string> notes;  // what people may want to read in the log
  std::vector<StallLine> stall_lines;
};

enum class JobState { kForming, kRunning, kSuspecting, kFailed };
const char* to_string(JobState state);

class JobCore {
 public:
  JobCore(Layout layout, NodeIndex self, JobOptions options);

  // Handles one event. Appends to output.
  void step(TicksMs now, Event event, Output& output);

  const Layout& layout() const { return layout_; }
  NodeIndex self() const { return self_; }
  JobState state() const { return state_; }
  // While forming: the epoch to come.
  Epoch epoch() const { return epoch_; }
  const Status& failure() const { return failure_; }
  const char* mode() const;
  size_t submissions_in_flight() const { return submissions_.submissions(); }
  size_t attached() const { return attached_.size(); }
  // This node's global ranks that are not attached.
  std::vector<Rank> missing_ranks() const;
  bool is_coordinator() const { return self_ == layout_.coordinator(); }
  // When TimePassed is wanted; none: not before something happens.
  std::optional<TicksMs> wakes_at() const;
  // A plan is in force. While it is being given up, too.
  bool is_locked() const { return agreement_ && agreement_->is_locked(); }
  const Plan* plan() const { return agreement_ ? agreement_->plan() : nullptr; }
  // A rank's goodbye waits for the plan to be given up.
  bool has_pending_leaves() const { return !pending_leaves_.empty(); }
  const StallInspector& stalls() const { return stalls_; }
  // Whether a rank may attach now; if not, why.
  Status may_attach(LocalRank rank) const;
  Rank global_rank(LocalRank rank) const {
    return layout_.node(self_).ranks[static_cast<size_t>(rank.value)];
  }

 private:
  // What the coordinator knows of a node while the epoch forms.
  struct JoinedNode {
    std::set<Rank> attached;
    std::string data_address;
  };

  void on(const RankAttached& event, Output& output);
  void on(const RankDetached& event, Output& output);
  void on(const RankLost& event, Output& output);
  void on(const Submitted& event, Output& output);
  void on(const MessageArrived& event, Output& output);
  void on(const NodeLost& event, Output& output);
  void on(const DataChannelLost& event, Output& output);
  void on(const OperationDone& event, Output& output);
  void on(const OperationFailed& event, Output& output);
  void on(const JobClosed& event, Output& output);
  void on(const TimePassed& event, Output& output);
  void on(const RankWaits& event, Output& output);
  void on(const TurnEnded& event, Output& output);

  void on_join(NodeIndex from, Epoch epoch, const Join& join, Output& output);
  // Why the node may not join: it was told something else about the job than this one.
  Status check_join(NodeIndex from, const Join& join) const;
  void on_start(const Start& start, Output& output);
  void on_leave(NodeIndex from, const Leave& leave, Output& output);
  void announce_leaves(Output& output);
  void on_left(Rank rank, Output& output);
  // False if the message is a repetition; a gap fails the job.
  bool accept_number(const Message& message, Output& output);

  // --- forming
  void send_join(Output& output);
  void start_if_complete(Output& output);
  void begin_epoch(const std::vector<std::string>& data_addresses, Output& output);
  void finish_epoch(Output& output);
  bool nobody_waits() const;
  Status describe_start_timeout() const;

  // --- running
  void order(OrderedOperation operation);
  void cancel(const Cancel& cancelled, Output& output);
  void launch_ordered(Output& output);
  void launch_track(Track track, Output& output);
  bool window_open(Seq seq) const;
  // False if the job had to be failed.
  bool launch(OrderedOperation operation, Output& output);
  void end_operation(Seq seq, const std::vector<std::string>& tensors, const Status& status,
                     Output& output);
  // An operation that this node has launched has the tensor.
  bool is_under_way(const std::string& tensor) const;
  void deliver(const LocalSubmission& submission, const Status& status, Seq seq, Output& output);
  void carry_out(StallOutput& said, Output& output);

  // --- ending
  void lift_suspicion(Output& output);
  void fail(Status status, Output& output);
  bool all_ranks_left(NodeIndex node) const;
  // Whether a submission is in flight that no operation has yet: the coordinator is to end it.
  bool awaits_decree() const;

  void send(NodeIndex to, decltype(Message::body) body, Output& output);
  void send_to_others(const decltype(Message::body)& body, Output& output);

  const Layout layout_;
  const NodeIndex self_;
  const JobOptions options_;
  TicksMs now_ = 0;

  JobState state_ = JobState::kForming;
  Epoch epoch_{1};
  Status failure_;
  std::set<LocalRank> attached_;
  std::set<LocalRank> attached_early_;  // re-attached before the epoch of before has finished

  // Forming.
  std::map<NodeIndex, JoinedNode> joined_;  // coordinator only
  std::optional<TicksMs> start_deadline_;
  TicksMs next_join_ = 0;
  // Suspecting.
  std::set<NodeIndex> suspects_;
  std::vector<Seq> held_done_;  // operations that ended meanwhile
  TicksMs suspicion_deadline_ = 0;
  Status suspicion_;

  // Of the epoch.
  std::unique_ptr<Agreement> agreement_;
  SubmissionTable submissions_;
  StallInspector stalls_;
  std::array<std::deque<OrderedOperation>, kTracks> ordered_;  // not launched yet
  std::map<Seq, std::vector<std::string>> launched_;           // tensors by operation
  std::set<Rank> left_;
  std::vector<std::pair<NodeIndex, Rank>> pending_leaves_;  // coordinator: until nothing is locked
  std::vector<uint64_t> sent_number_;                       // by node: of the last message
  std::vector<uint64_t> received_number_;
};

}  // namespace rueda::core
