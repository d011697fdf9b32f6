// Finds tensors that some ranks have submitted and others have not, for too long, and says who is
// missing and what they did last. A wait for the application has no other deadline than the one
// here (StallOptions::shutdown_ms); waits for peers are watched elsewhere.
//
// It goes by what ranks have submitted and not by what nodes have reported to be put in order, so
// it is the same for every way to agree, locked schedules included.
//
//   member                          coordinator
//     | StallReport(tensors) --------> |   tensors have been pending here for too long
//     | <-------- StallQuery(tensors)  |   to all: which of your ranks have submitted them?
//     | StallAnswer -----------------> |
//     | <---------- StallQuery(names)  |   to all: are names that are almost like these in flight
//     | StallAnswer -----------------> |   where ranks wait, too? Then they are other tensors
//     | <-------------- StallNotice    |   to all, for the log, ruedactl and the metric
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/messages/stall_messages.h"
#include "daemon/core/model/layout.h"
#include "daemon/core/order/submissions.h"
#include "daemon/core/stall/node_activity.h"
#include "daemon/core/stall/stall_watch.h"

namespace rueda::core {

struct StallLine {
  bool is_warning = false;  // If false, it is good news.
  std::string text;
};

struct StallOutput {
  std::vector<std::pair<NodeIndex, StallMessage>> sends;
  std::vector<StallLine> lines;  // Lines for this node's log.
  Status failure;                // If it is not ok, the job has to end.
};

// The stall inspector of one process set on one node; on the coordinator's node it plays both
// parts. It is pure.
class StallInspector {
 public:
  // `layout` is the set's, `submissions` are this node's, and `activity` is of all sets. All of
  // them must outlive the inspector.
  StallInspector(uint32_t process_set, const Layout& layout, NodeIndex self,
                 const StallOptions& options, const SubmissionTable& submissions,
                 NodeActivity& activity);
  ~StallInspector() { activity_.in_flight.erase(process_set_); }
  StallInspector(const StallInspector&) = delete;
  StallInspector& operator=(const StallInspector&) = delete;

  // An epoch begins or ends: forgets everything but what ranks did last, which the job forgets
  // itself.
  void reset();

  // A rank of this node has submitted something.
  void on_submitted(const LocalSubmission& submission);
  // The submission has ended without an error.
  void on_completed(const LocalSubmission& submission, TicksMs now);
  // The rank has said goodbye.
  void on_left(LocalRank rank);
  // Takes a message. An error means that the peer broke the protocol.
  Status on_message(NodeIndex from, const StallMessage& message, TicksMs now, StallOutput& output);
  void on_time(TicksMs now, StallOutput& output);

  // Returns when on_time() has to be called: every second while something is in flight or stalled.
  // Returns none if nothing is, so an idle job costs nothing.
  std::optional<TicksMs> wakes_at() const;
  // The number of stalled tensors.
  size_t count() const { return notice_.stalls.size(); }
  // Returns what is stalled in the job, with the ages that it has by now.
  StallNotice stalls(TicksMs now) const;

 private:
  struct Pending {
    TicksMs since_ms = 0;
    std::string name;

    auto operator<=>(const Pending&) const = default;
  };

  // The error for a message that this node has no use for.
  Status misdirected(NodeIndex from, const char* what) const;
  bool names_ranks_of_the_job(const StallNotice& notice) const;
  // Returns what has been in flight for too long on this node.
  std::set<Pending> overdue(TicksMs now) const;
  void report(TicksMs now, StallOutput& output);
  StallAnswer answer(const StallQuery& query, TicksMs now);
  // Returns names in flight here that are near misses of `name`, and on which ranks. `others` are
  // names in flight here; what is left of the budget bounds how many of them are compared.
  using NamedTensors = std::vector<std::pair<const std::string*, const PendingTensor*>>;
  std::vector<NearMiss> near_misses(const std::string& name, const NamedTensors& others);
  RankActivity activity_of(size_t local, TicksMs now) const;
  NodeActivity::OfRank& activity_of(LocalRank rank) {
    return *of_local_[static_cast<size_t>(rank.value)];
  }
  void on_notice(const StallNotice& notice, TicksMs now, StallOutput& output);
  // Carries out what the coordinator's part has said.
  void act_on(const StallWatchOutput& said, TicksMs now, StallOutput& output);
  void send_to_others(const StallMessage& message, StallOutput& output) const;

  const uint32_t process_set_;
  const Layout& layout_;
  const NodeIndex self_;
  const StallOptions options_;
  const SubmissionTable& submissions_;
  NodeActivity& activity_;
  std::vector<NodeActivity::OfRank*> of_local_;  // The index is the local rank.
  std::set<Pending> reported_;                   // What the coordinator was told last.
  StallNotice notice_;                           // The last notice.
  TicksMs noticed_ms_ = 0;
  TicksMs next_look_ms_ = 0;
  // The cells of comparisons (near_miss.h) that are left of the second that began at
  // budgeted_at_ms_: a coordinator may ask as often as it likes.
  int64_t near_miss_budget_ = 0;
  std::optional<TicksMs> budgeted_at_ms_;
  std::optional<StallWatch> watch_;  // Set on the coordinator's node alone.
};

}  // namespace rueda::core
