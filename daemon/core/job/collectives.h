// The collectives of one process set on one node: what its ranks have submitted, the order in which
// that is carried out, and how it ends. Each set has an order of its own, and a lock (rules L2,
// L10). The coordinator also calls the order of sets in which it has no rank. The job (job.h) knows
// which messages count, whether the epoch is sealed and whom to tell of a failure. The class is
// pure.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/job/job_events.h"
#include "daemon/core/job/job_options.h"
#include "daemon/core/job/plan_fast_path.h"
#include "daemon/core/model/layout.h"
#include "daemon/core/model/track.h"
#include "daemon/core/order/agreement.h"
#include "daemon/core/order/begun_groups.h"
#include "daemon/core/order/submissions.h"
#include "daemon/core/recovery/recovery.h"
#include "daemon/core/stall/stall.h"

namespace rueda::core {

class Collectives {
 public:
  // `layout` is the set's; `locals` are the local ranks of its ranks on this node, in their order.
  // Layout, options and activity are the job's, and must outlive this object.
  Collectives(uint32_t id, const Layout& layout, std::vector<LocalRank> locals, NodeIndex self,
              const JobOptions& options, NodeActivity& activity);

  // An epoch runs from here on. `recovery` must outlive the epoch. If it is null, whatever is done
  // is delivered, and nothing is held for those who might go on (policy `fail`).
  void begin(Epoch epoch, TicksUs now, Recovery* recovery);
  // The epoch goes on as the next one. Operations that have ended in `next` are not forgotten,
  // those launched by all are carried over, and the rest is agreed on anew.
  void adopt(const NextEpoch& next, TicksUs now, Output& output);
  // The epoch is over, with nothing in flight: forgets all of it.
  void end();
  // The job has failed: ends all submissions with the cause.
  void fail(const Status& cause, Output& output);
  void set_now(TicksUs now);

  // --- This node's ranks
  bool has(LocalRank rank) const { return position_of(rank).has_value(); }
  size_t submissions_of(LocalRank rank) const;
  size_t in_flight() const;  // The number of submissions that have not ended.
  // Returns whether the rank has joined: from its join on, until the join has ended (L11).
  bool has_joined(LocalRank rank) const;
  bool has_anybody_joined() const { return submissions_.joined() > 0; }
  // Takes in a submission of one of this node's ranks. If it is refused, it ends with an error in
  // `output`.
  void submit(LocalSubmission submission, Output& output);
  // Takes the submission if it is what the plan in force has, and returns whether it did; else it
  // has to be given to submit(). The set must be that of all ranks. The call is cheap, because most
  // submissions come this way.
  bool submit_again(TicksMs now, LocalRank rank, Ticket ticket, const DescriptorPtr& descriptor) {
    return is_on_fast_path_ && fast_path_->take(now, rank, ticket, descriptor);
  }
  // Ends the submission here and now, with an error.
  void refuse(const LocalSubmission& submission, const Status& status, Output& output);
  // The rank sleeps until the submission with this ticket ends; with no ticket it is awake.
  void set_waited(LocalRank rank, std::optional<Ticket> ticket);
  // The rank has said goodbye, with nothing in flight.
  void on_local_left(LocalRank rank);

  // --- The other nodes. An error ends the epoch
  Status on_message(NodeIndex from, const AgreementMessage& message);
  Status on_message(NodeIndex from, const StallMessage& message, StallOutput& said);
  void on_node_gone(NodeIndex node) { agreement_->on_node_gone(node); }
  // From this place in the order on, no operation can have the rank.
  void on_rank_left(Rank rank, Output& output);
  // Tells the agreement that the peer launched another batch under this number
  // (Agreement::on_diverged()).
  Status on_diverged(Seq seq, uint32_t generation, NodeIndex peer) {
    return agreement_->on_diverged(seq, generation, peer);
  }
  // Makes this node follow the plan no longer, and returns how far it is (Agreement::withdraw()).
  Frozen withdraw() { return agreement_->withdraw(); }

  // --- Time
  std::optional<TicksUs> wakes_at_us() const;
  void on_time(StallOutput& said);

  // --- Order
  // Returns what the agreement has to say now, after cancelling what it cancels. The caller hands
  // what it ordered to order(), when all else that it said has been done.
  AgreementOutput end_turn(Output& output);
  void order(std::vector<OrderedOperation> operations);
  // Returns the descriptor of the change that the operation makes in the job, or null if it moves
  // data, or fails.
  DescriptorPtr change_of(const OrderedOperation& operation) const;
  // Launches what the window has room for, and ends a join unless others hold it. An error ends the
  // epoch.
  Status launch_ordered(Output& output);
  // The set must be that of all ranks: notes whether joins of other sets have not ended here.
  void hold_join(bool is_held) { is_join_held_ = is_held; }
  // The data plane has completed the operation, so there may be more to launch. An error ends the
  // epoch.
  Status on_done(Seq seq, Output& output);
  // Delivers a done operation, when the recovery says so. Without recovery, on_done() delivers.
  void deliver(const CompletedOperation& completed, Output& output);
  // Returns what the recovery has said to launches and ends since the last call.
  RecoveryOutput take_recovery_output() { return std::exchange(recovery_output_, {}); }

  uint32_t id() const { return id_; }
  const Layout& layout() const { return layout_; }
  const std::vector<LocalRank>& locals() const { return locals_; }
  const SubmissionTable& submissions() const { return submissions_; }
  const StallInspector& stalls() const { return stalls_; }
  const std::set<Rank>& left() const { return left_; }
  // Returns whether a submission is in flight that no operation has yet, so that the coordinator
  // has to end it.
  bool awaits_decree() const;
  // Returns whether a plan is in force, which it is also while it is being given up.
  bool is_locked() const { return agreement_ && agreement_->is_locked(); }
  const Plan* plan() const { return agreement_ ? agreement_->plan() : nullptr; }

 private:
  // The fast path is left when its oldest submission has waited for 1/kFastPathsInPatience, a
  // quarter, of AgreementOptions::patience_ms.
  static constexpr TicksMs kFastPathsInPatience = 4;

  void report_if_ready(const std::string& tensor);
  // Reports the join of this node's ranks, if all of them have joined. A join comes after all that
  // its ranks have submitted. Until the operations of the fast path have ended the join is not
  // reported, because these may still be cancelled, and reported then.
  void report_join();
  void tell_apart(OrderedOperation& operation);
  // Returns whether this node gives zeros to the operation's tensor at this place.
  static bool gives_zeros(const OrderedOperation& operation, size_t place) {
    return place < operation.descriptors.size() && operation.descriptors[place];
  }
  void cancel(const Cancel& cancelled, Output& output);
  bool may_end_join(const OrderedOperation& join) const;
  Status launch_track(Track track, Output& output);
  bool window_open(Seq seq) const;
  Status launch(OrderedOperation operation, Output& output);
  Status find_tensors(const OrderedOperation& operation, Launch& launch);
  CompletedOperation result_of(const OrderedOperation& operation) const;
  void end_operation(const OrderedOperation& operation, const CompletedOperation& result,
                     Output& output);
  // Returns whether an operation that this node has launched has the tensor.
  bool is_under_way(const std::string& tensor) const;
  void end_submission(const LocalSubmission& submission, const Status& status,
                      const CompletedOperation& result, uint32_t value, Output& output);
  void deliver(LocalRank rank, Ticket ticket, const Status& status,
               const CompletedOperation& result, uint32_t value, Output& output);
  int64_t bytes_of(const OrderedOperation& operation) const;
  // --- Helpers of adopt()
  BegunGroups begun_groups(const std::set<std::string>& carried) const;
  std::set<std::string> carry_over(const NextEpoch& next);
  void fail_refused(const NextEpoch& next, const std::set<std::string>& carried, Output& output);
  void forget_order();
  // --- A plan that repeats as it was
  // Returns true if the fast path has taken the submission: it is what the plan has, and nothing is
  // in flight that is not.
  bool take_fast_path(const LocalSubmission& submission);
  std::optional<NextInPlan> next_on_fast_path() const;
  bool may_stay_on_fast_path() const;
  void launch_fast(std::vector<OrderedOperation>& ordered);
  // Puts all that is in flight on the fast path into the tables. The fast path begins again once
  // nothing is in flight.
  void leave_fast_path();
  std::optional<ReadyTensor> enter(LocalSubmission submission);
  void to_tables(OrderedOperation& operation);
  void fill(const OrderedOperation& operation, Launch& launch) const;
  void end_fast(const OrderedOperation& operation, const CompletedOperation& result,
                Output& output);
  // Returns when the fast path is left because its oldest submission has been in flight for so
  // long: whoever waits for it may be stalled, or hold up others.
  std::optional<TicksMs> fast_path_ends_at() const;
  // Returns the rank's position among the ranks that the set has on this node, by which the set
  // knows it; none if the set does not have the rank.
  std::optional<LocalRank> position_of(LocalRank rank) const;
  // Returns whether this node is the one that tells the coordinator which operations have ended,
  // because the coordinator has no rank in the set and does not see them end.
  bool tells_what_ended() const;

  const uint32_t id_;
  const Layout& layout_;
  const std::vector<LocalRank> locals_;  // By position in the set.
  const NodeIndex self_;
  const JobOptions& options_;
  TicksMs now_ = 0;
  Epoch epoch_;
  std::unique_ptr<Agreement> agreement_;  // The agreement of this epoch.
  SubmissionTable submissions_;
  StallInspector stalls_;
  // Operations that are not launched yet.
  std::array<std::deque<OrderedOperation>, kTracks> ordered_;
  std::map<Seq, OrderedOperation> launched_;
  // It is made for the plan of fast_path_generation_, and kept while the fast path is not in use.
  std::optional<PlanFastPath> fast_path_;
  uint32_t fast_path_generation_ = 0;
  bool is_on_fast_path_ = false;          // What is in flight of the plan is in fast_path_.
  std::map<Seq, OrderedOperation> done_;  // Done and not delivered yet.
  std::vector<Seq> ended_;                // Operations that the coordinator has to be told of.
  bool is_join_held_ = false;
  Rank last_joined_;  // The last rank of this node that has joined.
  Recovery* recovery_ = nullptr;
  // Used with recovery: groups of which some tensors have ended.
  BegunGroups ended_groups_;
  RecoveryOutput recovery_output_;
  std::set<Rank> left_;
};

}  // namespace rueda::core
