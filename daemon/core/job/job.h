// One job on one node, as a state machine: it is told what happened and what time it is, and says
// what is to be done. It does no I/O and belongs to the loop of its caller; the daemon, and the
// simulator in tests/sim, run the same code.
//
// Life of an epoch:  forming -> running -> (all ranks left) -> forming, one epoch on
//                         \-> suspecting -> failed <-/
// Under policy `fail` the first death ends the job, and every survivor is told who died.
//
// Under policy `shrink` an epoch that breaks goes on as the next one, with the nodes that are left:
// running -> suspecting -> sealed -> running (docs/protocol.md, "Recovery"). Recovery (recovery.h)
// decides who goes on; a node that was left out, or is not with a majority, has failed.
//
// The work is elsewhere: Forming gathers the ranks, MessageRouter has the links, ProcessSets and
// Collectives the operations, Goodbyes the ranks that have left, TreeHandover the nodes that leave,
// Suspicion the channels that broke. Here is which event leads to which state, with one handler for
// each event and the questions of the daemon, which is why there are more than 40 methods.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/core/job/collectives.h"
#include "daemon/core/job/forming.h"
#include "daemon/core/job/goodbyes.h"
#include "daemon/core/job/job_events.h"
#include "daemon/core/job/job_options.h"
#include "daemon/core/job/local_ranks.h"
#include "daemon/core/job/message_router.h"
#include "daemon/core/job/process_sets.h"
#include "daemon/core/job/suspicion.h"
#include "daemon/core/job/tree_handover.h"
#include "daemon/core/messages/messages.h"
#include "daemon/core/model/layout.h"
#include "daemon/core/model/tree.h"
#include "daemon/core/recovery/recovery.h"

namespace rueda::core {

enum class JobState { kForming, kRunning, kSuspecting, kSealed, kFailed };
const char* to_string(JobState state);

class JobCore {
 public:
  // The first epoch forms, with all nodes of the layout.
  JobCore(Layout layout, NodeIndex self, JobOptions options);

  // Handles one event at the time `now`, and appends what is to be done to `output`.
  void step_at(TicksUs now, Event event, Output& output);
  // The same, on a clock that has full milliseconds alone.
  void step(TicksMs now, Event event, Output& output) {
    step_at(to_us(now), std::move(event), output);
  }
  // Takes a submission that the plan in force has, which is much cheaper than step(Submitted).
  // Returns false if the plan does not have it; then nothing has been done.
  bool submit_again(TicksMs now, LocalRank rank, Ticket ticket, const DescriptorPtr& descriptor) {
    return state_ == JobState::kRunning &&
           sets_.all_ranks().submit_again(now, rank, ticket, descriptor);
  }

  const Layout& layout() const { return layout_; }
  NodeIndex self() const { return self_; }
  JobState state() const { return state_; }
  // Returns the epoch that runs; while one forms, that one.
  Epoch epoch() const { return epoch_; }
  // Returns why the job has failed; ok if it has not.
  const Status& failure() const { return failure_; }
  // Returns the name of the mode of coordination, for people.
  const char* mode() const { return to_string(options_.agreement.mode); }
  // Returns the number of submissions of this node's ranks that have not ended, over all process
  // sets.
  size_t submissions_in_flight() const { return sets_.in_flight(); }
  // Returns the number of this node's ranks that are attached.
  size_t attached() const { return ranks_.count(); }
  // Returns the global ranks of this node that are not attached.
  std::vector<Rank> missing_ranks() const { return ranks_.missing(); }
  bool is_coordinator() const { return self_ == layout_.coordinator(); }
  // Returns the nodes that this one has control links with, and what goes over which link.
  const TreeLinks& links() const { return router_.links(); }
  // Returns the node that is to be this one's next parent in the tree, if this node moves.
  std::optional<NodeIndex> next_parent() const { return handover_.next_parent(); }
  // Returns, after JobClosed, whether no other node depends on this one any more.
  bool may_go() const { return !epoch_goes_on() || handover_.may_go(); }
  // Returns when TimePassed is wanted; none if not before another event.
  std::optional<TicksUs> wakes_at_us() const;
  // Returns the first full millisecond that is not before that time.
  std::optional<TicksMs> wakes_at() const;
  // Returns the set of all ranks, then the added sets by id.
  std::vector<const Collectives*> process_sets() const { return sets_.every(); }
  // Returns whether a plan of the set of all ranks is in force, or is being given up.
  bool is_locked() const { return sets_.all_ranks().is_locked(); }
  bool any_set_locked() const { return sets_.is_any_locked(); }
  // Returns the plan of the set of all ranks; null if none is in force.
  const Plan* plan() const { return sets_.all_ranks().plan(); }
  // Returns the stall inspector of the set of all ranks.
  const StallInspector& stalls() const { return sets_.all_ranks().stalls(); }
  const Transfers& transfers() const { return sets_.transfers(); }
  // Returns whether a rank's goodbye waits for a plan to be given up.
  bool has_pending_leaves() const { return goodbyes_.has_pending(); }
  // Returns ok if the rank may attach now, or else why it may not.
  Status may_attach(LocalRank rank) const;
  Rank global_rank(LocalRank rank) const { return ranks_.global(rank); }

 private:
  void on(const RankAttached& event, Output& output);
  void on(const RankDetached& event, Output& output);
  void on(const RankLost& event, Output& output);
  void on(const Submitted& event, Output& output);
  void on(const MessageArrived& event, Output& output);
  void on(const NodeLost& event, Output& output);
  void on(const DataChannelLost& event, Output& output);
  void on(const OperationDone& event, Output& output);
  void on(const OperationFailed& event, Output& output);
  void on(const OperationDiverged& event, Output& output);
  void on(const TransferDone& event, Output& output);
  void on(const TransferMessageArrived& event, Output& output);
  void on(const TransferCancelled& event, Output& output);
  void on(const DataStopped& event, Output& output);
  void on(const JobClosed& event, Output& output);
  void on(const JobEnded& event, Output& output) { fail(event.status, output); }
  void on(const TimePassed& event, Output& output);
  void on(const RankWaits& event, Output& output);
  void on(const TurnEnded& event, Output& output);

  // --- The epoch forms, and finishes
  // Tells the parent who is attached here and below; on the coordinator the epoch may start.
  void send_join(Output& output);
  void on_join(NodeIndex from, Epoch epoch, const Join& join, Output& output);
  void start_if_complete(Output& output);
  void on_start(const Message& message, const Start& start, Output& output);
  void begin_epoch(const std::vector<std::string>& data_addresses, Output& output);
  // All ranks have left: the next epoch begins to form.
  void finish_epoch(Output& output);

  // --- Messages of the running epoch
  // Returns whether the epoch has begun, and is neither sealed nor over.
  bool epoch_goes_on() const {
    return state_ == JobState::kRunning || state_ == JobState::kSuspecting;
  }
  // Takes a message that is neither early nor a repetition.
  void on_numbered(const Message& message, Output& output);
  // Takes a message about a process set. An error ends the epoch.
  Status on_set_message(const Message& message, Output& output);
  // Tells other nodes that there are to be channels for transfers.
  void announce_channels(Output& output);

  // --- Goodbyes
  // A rank of the node has said goodbye. The coordinator is told, and announces it.
  void on_leave(NodeIndex from, const Leave& leave, Output& output);
  void announce_leaves(Output& output);
  // The goodbye is in force: no later operation can have the rank.
  void on_left(Rank rank, Output& output);

  // --- The order of operations
  // Sends and launches what the set has ready. Returns whether it may have more.
  bool end_turn_of(Collectives& set, Output& output);
  // Does nothing unless the epoch runs: while it is suspected or sealed nothing is launched.
  void launch_ordered(Collectives& set, Output& output);
  void carry_out(uint32_t set, StallOutput& said, Output& output);

  // --- What goes wrong
  // All suspects have left in good order: nobody is missing, and the epoch runs again.
  void lift_suspicion(Output& output);
  // Something is wrong with the node: the job fails, or the recovery is told.
  void suspect(NodeIndex node, const Status& status, Output& output);
  // This node takes no part any more. Its ranks are told now. With a recovery the other nodes go
  // on, once they have decided so; without one the job fails.
  void withdraw(const Status& status, Output& output);
  // The job is over on all nodes: the neighbours are told.
  void fail(Status status, Output& output);
  // The job is over on this node.
  void end(Status status, Output& output);

  // --- Policy `shrink`
  void on_recovery_message(const Message& message, Output& output);
  void carry_out(RecoveryOutput said, Output& output);
  // Carries out what the recovery has said while the collectives were at work.
  void carry_out_recovery(Output& output) {
    carry_out(sets_.all_ranks().take_recovery_output(), output);
  }
  void on_sealed(Output& output);
  // The next epoch begins, with the members that the recovery has decided on.
  void adopt(NextEpoch next, Output& output);

  Layout layout_;
  const NodeIndex self_;
  const JobOptions options_;
  TicksMs now_ = 0;
  JobState state_ = JobState::kForming;
  Epoch epoch_;
  Status failure_;

  // Each part may refer to the ones before it.
  MessageRouter router_;
  LocalRanks ranks_;
  Forming forming_;
  Suspicion suspicion_;
  ProcessSets sets_;
  Goodbyes goodbyes_;
  TreeHandover handover_;

  // Policy `shrink` has one in each epoch. After this node has failed it helps the others to
  // decide. Under policy `fail`, and while an epoch forms, there is none.
  std::optional<Recovery> recovery_;
  std::vector<Message> early_;  // They are of an epoch that this node has not entered.
};

}  // namespace rueda::core
