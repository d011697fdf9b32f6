// One job on one node: its epochs, its links to the other nodes, and the collectives of its ranks
// (collectives.h). It is pure: told what happened and what time it is, it says what is to be done.
// The daemon, and the simulator in tests/sim, run the same code.
//
// Life of an epoch:  forming -> running -> (all ranks left) -> forming, one epoch on
//                         \-> suspecting -> failed <-/
// Under policy `fail` the first death ends the job, and every survivor is told who died.
//
// Policy `shrink`: running -> suspecting -> sealed -> running, in the next epoch, with those that
// are left (recovery.h). A node fails if it was left out, or has no majority.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
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
  JobCore(Layout layout, NodeIndex self, JobOptions options);

  // Handles one event. Appends to `output` what has to be done.
  void step(TicksMs now, Event event, Output& output);
  // Takes the submission if it is what the plan in force has, and returns whether it did; then it
  // needs no step(Submitted). This is for submissions that come by the thousand.
  bool submit_again(TicksMs now, LocalRank rank, Ticket ticket, const DescriptorPtr& descriptor) {
    return state_ == JobState::kRunning &&
           sets_.all_ranks().submit_again(now, rank, ticket, descriptor);
  }

  const Layout& layout() const { return layout_; }
  NodeIndex self() const { return self_; }
  JobState state() const { return state_; }
  // The epoch; while forming, the one to come.
  Epoch epoch() const { return epoch_; }
  const Status& failure() const { return failure_; }
  const char* mode() const;
  size_t submissions_in_flight() const { return sets_.in_flight(); }
  size_t attached() const { return ranks_.count(); }
  // Returns this node's global ranks that are not attached.
  std::vector<Rank> missing_ranks() const { return ranks_.missing(); }
  bool is_coordinator() const { return self_ == layout_.coordinator(); }
  // Returns with which nodes this one has control links, and what goes over which.
  const TreeLinks& links() const { return router_.links(); }
  // Returns the node that is going to be this one's next parent, if it moves.
  std::optional<NodeIndex> next_parent() const { return handover_.next_parent(); }
  // Returns, after JobClosed, whether no other node depends on this one any more.
  bool may_go() const { return !epoch_goes_on() || handover_.may_go(); }
  // Returns when TimePassed has to be told, or none if nothing is due before something happens.
  std::optional<TicksMs> wakes_at() const;
  // Returns the set of all ranks, then the added sets, by id.
  std::vector<const Collectives*> process_sets() const { return sets_.every(); }
  // Returns whether a plan of the set of all ranks is in force, which it is also while it is being
  // given up.
  bool is_locked() const { return sets_.all_ranks().is_locked(); }
  bool any_set_locked() const { return sets_.is_any_locked(); }
  const Plan* plan() const { return sets_.all_ranks().plan(); }
  // These are of the set of all ranks.
  const StallInspector& stalls() const { return sets_.all_ranks().stalls(); }
  // Returns whether a rank's goodbye waits for the plan to be given up.
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
  void on(const DataStopped& event, Output& output);
  void on(const JobClosed& event, Output& output);
  void on(const TimePassed& event, Output& output);
  void on(const RankWaits& event, Output& output);
  void on(const TurnEnded& event, Output& output);

  void on_join(NodeIndex from, Epoch epoch, const Join& join, Output& output);
  void on_start(const Message& message, const Start& start, Output& output);
  void on_leave(NodeIndex from, const Leave& leave, Output& output);
  void announce_leaves(Output& output);
  void on_left(Rank rank, Output& output);
  // Takes a message of the running epoch that is neither early nor a repetition.
  void on_numbered(const Message& message, Output& output);

  // --- Forming
  void send_join(Output& output);
  void start_if_complete(Output& output);
  void begin_epoch(const std::vector<std::string>& data_addresses, Output& output);
  void finish_epoch(Output& output);

  // --- Running
  // Returns whether the epoch has begun, and is neither sealed for good nor over.
  bool epoch_goes_on() const {
    return state_ == JobState::kRunning || state_ == JobState::kSuspecting;
  }
  // Launches what the set has ordered, unless the epoch is sealed.
  void launch_ordered(Collectives& set, Output& output);
  // Does what the set has to say and to launch. Returns whether it may have more.
  bool end_turn_of(Collectives& set, Output& output);
  Status on_set_message(const Message& message, Output& output);
  void carry_out(uint32_t set, StallOutput& said, Output& output);

  // --- Policy `shrink`
  bool recovers() const { return options_.recovery.policy == DeathPolicy::kShrink; }
  void on_recovery_message(const Message& message, Output& output);
  // Something is wrong with the node: it may have died.
  void suspect(NodeIndex node, const Status& status, Output& output);
  // Makes this node no member any more, once the others have decided so. Its ranks are told now.
  void withdraw(const Status& status, Output& output);
  void carry_out(RecoveryOutput said, Output& output);
  // Does what the recovery has said while the collectives were at work.
  void carry_out_recovery(Output& output) {
    carry_out(sets_.all_ranks().take_recovery_output(), output);
  }
  void on_sealed(Output& output);
  void adopt(NextEpoch next, Output& output);
  std::optional<TicksMs> recovery_wakes_at() const;

  // --- Ending
  void lift_suspicion(Output& output);
  // The job is over on all nodes.
  void fail(Status status, Output& output);
  // The job is over on this node.
  void end(Status status, Output& output);

  Layout layout_;
  const NodeIndex self_;
  const JobOptions options_;
  MessageRouter router_;
  TicksMs now_ = 0;

  JobState state_ = JobState::kForming;
  Epoch epoch_{1};
  Status failure_;
  LocalRanks ranks_;

  Forming forming_;
  Suspicion suspicion_;

  // These are of the epoch.
  ProcessSets sets_;
  Goodbyes goodbyes_;
  TreeHandover handover_;

  // Policy `shrink`: the recovery of the epoch. Once the job has failed here, it helps the others
  // to decide.
  std::optional<Recovery> recovery_;
  std::vector<Message> early_;  // They are of an epoch that this node has not entered.
};

}  // namespace rueda::core
