// Decides what to do about everything that can happen to a job, as a pure state machine: events in,
// actions out. It has no process, clock or socket; the launcher tells it of events and carries out
// its actions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include <sys/types.h>

#include "agent/cli/elastic_settings.h"
#include "agent/process/process.h"
#include "daemon/base/ids.h"
#include "daemon/base/status.h"

namespace rueda::agent {

// Asks the launcher to print one line of its own.
struct Say {
  std::string text;
  bool operator==(const Say&) const = default;
};
// Asks for a signal to the process groups of these ranks.
struct SignalRanks {
  int signal = 0;
  std::vector<Rank> ranks;
  bool operator==(const SignalRanks&) const = default;
};
// Asks for a call of on_timer() after this time, which replaces a timer that has not fired yet.
struct StartTimer {
  int64_t after_ms = 0;
  bool operator==(const StartTimer&) const = default;
};
// Asks the launcher to tell the daemons which rank ended the job.
struct ReportRankFailed {
  Rank rank;
  std::string text;
  bool operator==(const ReportRankFailed&) const = default;
};
// Asks the launcher to tell the daemons, of an elastic job, that the rank has ended well. Here, and
// wherever elastic jobs are meant, a rank stands for the process's slot, which had that rank in the
// first generation.
struct ReportRankEnded {
  Rank rank;
  bool operator==(const ReportRankEnded&) const = default;
};
// Asks for a call of on_restart_due() after about this time.
struct AwaitRestart {
  Rank rank;
  int64_t after_ms = 0;
  bool operator==(const AwaitRestart&) const = default;
};
// Asks the launcher to start the rank again; it calls on_rank_started() or on_restart_failed().
struct RestartRank {
  Rank rank;
  bool operator==(const RestartRank&) const = default;
};
// Asks the launcher to find the daemon of this node again after this time, or to start it again if
// it is private, and to register the elastic job with it; it calls on_node_revived() or
// on_revival_failed().
struct ReviveNode {
  std::string node_id;
  int64_t after_ms = 0;
  bool operator==(const ReviveNode&) const = default;
};
// Asks the launcher to tell the daemon how many slots there are now.
struct TellSlots {
  int slots = 0;
  bool operator==(const TellSlots&) const = default;
};
// Asks for a call of on_slots_overdue() after this time.
struct AwaitSlots {
  int64_t after_ms = 0;
  bool operator==(const AwaitSlots&) const = default;
};
// Asks the launcher to take the last output of the ranks and to end what they left running; it then
// calls on_drained().
struct DrainRanks {
  bool operator==(const DrainRanks&) const = default;
};
// Asks the launcher to give up preparations that are not finished, and to close the streams to the
// daemons; it then calls on_links_closed().
struct CloseLinks {
  bool operator==(const CloseLinks&) const = default;
};
// Asks the launcher to cut streams that did not close.
struct CancelLinks {
  bool operator==(const CancelLinks&) const = default;
};
// Asks for a signal to the private daemons; when none is left, the launcher calls
// on_daemons_gone().
struct SignalDaemons {
  int signal = 0;
  bool operator==(const SignalDaemons&) const = default;
};
// Asks the launcher to end with this exit code; nothing of the job is left.
struct Finish {
  int exit_code = 0;
  bool operator==(const Finish&) const = default;
};

using Action = std::variant<Say, SignalRanks, StartTimer, ReportRankFailed, ReportRankEnded,
                            AwaitRestart, RestartRank, ReviveNode, TellSlots, AwaitSlots,
                            DrainRanks, CloseLinks, CancelLinks, SignalDaemons, Finish>;
using Actions = std::vector<Action>;

// Holds a daemon's report that the job has failed.
struct JobFailure {
  std::string text;
  std::string origin_node;
  std::optional<Rank> origin_rank;
  bool is_by_request = false;  // Somebody has ended the job, for good.
};

// The exit code of the launcher of a job that somebody has ended, whatever its ranks make of it: it
// is that of a job that was ended from outside by SIGTERM.
inline constexpr int kEndedByRequest = 143;

class Supervisor {
 public:
  // The time that a stream to a daemon may take to close.
  static constexpr int64_t kCloseLinksMs = 2000;

  // Of an elastic job, ranks are started again when they die, and the others go on.
  explicit Supervisor(int64_t grace_ms, std::optional<ElasticSettings> elastic = std::nullopt)
      : grace_ms_(grace_ms), elastic_(elastic) {}

  // While starting, on_rank_started() is called for each rank, then on_all_started();
  // on_start_failed() may be called at any time.
  void on_rank_started(Rank rank, pid_t pid, const std::string& node_id);
  Actions on_all_started();
  Actions on_start_failed(int exit_code, const std::string& text);

  // `now_ms` is read by elastic jobs alone, on any clock that does not go back.
  Actions on_rank_exit(Rank rank, const ExitStatus& status, int64_t now_ms = 0);
  // A rank of an elastic job stands still, as the text says.
  Actions on_rank_silent(Rank rank, const std::string& text);
  // A rank of an elastic job waits to take part, and need not: others have ended well, or its slot
  // is not wanted.
  Actions on_rank_unneeded(Rank rank);
  Actions on_restart_due(Rank rank);
  // An elastic job on one node is to have these slots from now on, as the host's list says.
  Actions on_slots_wanted(const std::vector<Rank>& slots);
  Actions on_slots_overdue();
  Actions on_restart_failed(Rank rank, const std::string& text);
  Actions on_job_failed(const std::string& reporting_node, const JobFailure& failure);
  // Reports that a stream to a daemon ended although this side did not close it.
  Actions on_link_lost(const std::string& node_id, const std::string& text, int64_t now_ms = 0);
  // Reports that a private daemon ended.
  Actions on_daemon_exit(const std::string& node_id, pid_t pid, const ExitStatus& status,
                         int64_t now_ms = 0);
  Actions on_node_revived(const std::string& node_id);
  Actions on_revival_failed(const std::string& node_id, const std::string& text, int64_t now_ms);
  // Reports that the launcher was told to end, by SIGINT, SIGTERM or SIGHUP.
  Actions on_signal(int signal);
  // Returns true if the launcher was told to end by a signal.
  bool was_interrupted() const { return user_signal_count_ > 0; }
  Actions on_timer();
  Actions on_drained();
  Actions on_links_closed();
  // Reports that a private daemon, which was told to stop, is still sending data that its ranks
  // left behind.
  Actions on_daemon_delivering(const std::string& node_id);
  Actions on_daemons_gone();

 private:
  enum class Phase {
    kStarting,
    kRunning,
    kGrace,        // the job has failed; its ranks may still end by themselves
    kInterrupted,  // the user's signal was passed on
    kTerminating,  // SIGTERM was sent
    kKilling,      // SIGKILL was sent
    kDraining,
    kClosingLinks,
    kStoppingDaemons,
    kDone,
  };
  struct RankState {
    pid_t pid = -1;
    std::string node_id;
    bool is_running = true;
    // The last signal that the launcher sent to the rank; 0 means none.
    int sent_signal = 0;
    bool has_ended_well = false;
    bool awaits_restart = false;
    bool is_unneeded = false;
    bool is_unwanted = false;  // Its slot is not the job's any more.
    // How it has ended badly by itself, if it has.
    std::optional<ExitStatus> failure;
    std::vector<int64_t> died_ms;  // When it died, within the last kRestartWindowMs.
  };

  // A node of an elastic job, whose daemon may die and be followed by another.
  struct NodeState {
    bool is_away = false;
    int64_t away_since_ms = 0;
    int attempts = 0;              // To find its daemon again, since then.
    std::vector<int64_t> lost_ms;  // When it was lost, within the last kRestartWindowMs.
  };

  std::vector<Rank> running_ranks() const;
  void signal_running_ranks(int signal, Actions& out);
  void begin_ending(int exit_code, Actions& out);
  void on_rank_failed(Rank rank, const ExitStatus& status, Actions& out);
  std::string end_of(Rank rank, const ExitStatus& status) const;
  // Says that the end of the job came of this rank, whose code is the launcher's.
  void blame(Rank rank, const ExitStatus& status, Actions& out);
  // A rank's end has ended the job, and now a daemon says that another one's did.
  Actions on_other_blamed(const JobFailure& failure);
  // Somebody has ended the job, as ranks may have shown already by their own ends.
  Actions on_ended_by_request(const std::string& line);
  // A rank of an elastic job died while the job runs. Returns false if the job cannot go on.
  bool go_on_without(Rank rank, const ExitStatus& status, int64_t now_ms, Actions& out);
  // The daemon of a node is lost, for this reason, while the job runs. Returns false if the job
  // cannot go on.
  bool go_on_without_daemon(const std::string& node_id, const std::string& text, int64_t now_ms,
                            Actions& out);
  // Returns how many ranks run or will be started again.
  int expected_ranks() const;
  // Returns how many must run, or be started again, for the job to go on.
  int least_ranks() const;
  bool has_anybody_ended_well() const;
  // Ends an elastic job of which nobody runs or will run any more.
  void end_if_nobody_is_left(Actions& out);
  void await_slots(Actions& out);
  // The job ends. In an elastic job it may be that no rank runs whose end would be waited for: all
  // wait to be started again. Returns whether that is so.
  bool end_if_none_runs(Actions& out);
  void on_ranks_gone(Actions& out);
  void summarise(Actions& out) const;
  void close_links(Actions& out);
  void stop_daemons(Actions& out);

  int64_t grace_ms_;
  std::optional<ElasticSettings> elastic_;
  Phase phase_ = Phase::kStarting;
  int exit_code_ = 0;
  int user_signal_count_ = 0;
  bool is_ended_by_request_ = false;
  std::map<Rank, RankState> ranks_;
  std::map<std::string, NodeState> nodes_;
  std::optional<size_t> slots_;       // How many are wanted here, if a list of hosts says so.
  std::set<std::string> delivering_;  // nodes whose daemons were reported to be delivering
  // The rank whose failure began the end. It is left out of the summary of the others.
  std::optional<Rank> culprit_;
  // True while the exit code comes only from a daemon's report of a failure: the rank's own code is
  // better.
  bool wants_rank_code_ = false;
  // The local rank that a daemon blamed.
  std::optional<Rank> suspect_;
  int ended_alone_count_ = 0;
  // The numbers of ranks that ended, by the last signal that the launcher sent to them.
  std::map<int, int> ended_by_signal_counts_;
};

}  // namespace rueda::agent
