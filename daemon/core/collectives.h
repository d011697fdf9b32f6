// The collectives of one process set on one node: what its ranks have submitted, the order in which
// it is carried out, and how it ends. Which messages count, whether the epoch is sealed and whom to
// tell of a failure is the job's to know (job.h). Pure.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/agreement.h"
#include "daemon/core/job_events.h"
#include "daemon/core/job_options.h"
#include "daemon/core/layout.h"
#include "daemon/core/stall.h"
#include "daemon/core/submissions.h"
#include "daemon/core/track.h"

namespace rueda::core {

class Collectives {
 public:
  // Layout and options outlive it.
  Collectives(const Layout& layout, NodeIndex self, const JobOptions& options);

  // An epoch runs from here on.
  void begin(Epoch epoch, TicksMs now);
  // It is over, with nothing in flight: forgets all of it.
  void end();
  // The job has failed: ends all submissions with the cause.
  void fail(const Status& cause, Output& output);
  void set_now(TicksMs now);

  // --- This node's ranks
  void submit(LocalSubmission submission, Output& output);
  // Ends it here and now, with an error.
  void refuse(const LocalSubmission& submission, const Status& status, Output& output);
  void set_waited(LocalRank rank, std::optional<Ticket> ticket);
  // It has said goodbye, with nothing in flight.
  void on_local_left(LocalRank rank) { stalls_.on_left(rank); }

  // --- The other nodes. An error ends the epoch.
  Status on_message(NodeIndex from, const AgreementMessage& message);
  Status on_message(NodeIndex from, const StallMessage& message, StallOutput& said);
  void on_node_gone(NodeIndex node) { agreement_->on_node_gone(node); }
  // From this place in the order on, no operation can have the rank.
  void on_rank_left(Rank rank, Output& output);
  // See Agreement.
  Status on_diverged(Seq seq, uint32_t generation, NodeIndex peer) {
    return agreement_->on_diverged(seq, generation, peer);
  }
  Frozen withdraw() { return agreement_->withdraw(); }

  // --- Time
  std::optional<TicksMs> wakes_at() const;
  void on_time(StallOutput& said);

  // --- Order
  // What the agreement has to say now; what it cancels is cancelled. What it ordered is for
  // order(), when all else that it said has been done.
  AgreementOutput end_turn(Output& output);
  void order(std::vector<OrderedOperation> operations);
  // Launches what the window has room for. An error ends the epoch.
  Status launch_ordered(Output& output);
  // The data plane has completed the operation. An error ends the epoch.
  Status on_done(Seq seq, Output& output);

  const SubmissionTable& submissions() const { return submissions_; }
  const StallInspector& stalls() const { return stalls_; }
  const std::set<Rank>& left() const { return left_; }
  // Whether a submission is in flight that no operation has yet: the coordinator is to end it.
  bool awaits_decree() const;
  // A plan is in force. While it is being given up, too.
  bool is_locked() const { return agreement_ && agreement_->is_locked(); }
  const Plan* plan() const { return agreement_ ? agreement_->plan() : nullptr; }

 private:
  void cancel(const Cancel& cancelled, Output& output);
  Status launch_track(Track track, Output& output);
  bool window_open(Seq seq) const;
  Status launch(OrderedOperation operation, Output& output);
  void end_operation(Seq seq, const std::vector<std::string>& tensors, const Status& status,
                     Output& output);
  // An operation that this node has launched has the tensor.
  bool is_under_way(const std::string& tensor) const;
  void deliver(const LocalSubmission& submission, const Status& status, Seq seq, Output& output);
  void forget_order();

  const Layout& layout_;
  const NodeIndex self_;
  const JobOptions& options_;
  TicksMs now_ = 0;
  Epoch epoch_;
  std::unique_ptr<Agreement> agreement_;  // of the epoch
  SubmissionTable submissions_;
  StallInspector stalls_;
  std::array<std::deque<OrderedOperation>, kTracks> ordered_;  // not launched yet
  std::map<Seq, std::vector<std::string>> launched_;           // tensors by operation
  std::set<Rank> left_;
};

}  // namespace rueda::core
