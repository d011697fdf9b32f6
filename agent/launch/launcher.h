// Carries out a job on this machine: tells the supervisor of events, and carries out its actions.
// It has one loop, on the thread that calls run().
#pragma once

#include <csignal>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/cli/options.h"
#include "agent/launch/agent_link.h"
#include "agent/launch/bringup.h"
#include "agent/launch/host_discovery.h"
#include "agent/launch/supervisor.h"
#include "agent/process/guardian.h"
#include "agent/process/leftovers.h"
#include "agent/process/output.h"
#include "agent/process/rank_process.h"
#include "daemon/base/loop_gate.h"
#include "daemon/base/os/exit_watch.h"

namespace rueda::agent {

class Launcher {
 public:
  explicit Launcher(Options options);
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // Runs the job. Returns the exit code when nothing of the job is left on this machine.
  int run();

 private:
  // The registration of the job on one of the local nodes.
  struct Registration {
    std::unique_ptr<AgentLink> link;
    int number = 0;  // Counts the links.
    bool is_registered = false;
    std::string votes;         // What the daemon has asked to keep.
    std::optional<int> slots;  // How many are wanted, if a list of hosts says so.
    // The ranks that have ended while the node had no daemon, and how, if badly; and those of them
    // that the next daemon is told with the job, before a process in their place may attach.
    std::map<Rank, std::string> ended_meanwhile;
    std::set<Rank> told;
    std::map<Rank, std::pair<int64_t, std::string>> reported;  // When, and how it had ended.
    std::unique_ptr<boost::asio::steady_timer> revival;
    std::unique_ptr<boost::asio::steady_timer> revival_limit;
    int attempt = 0;  // Counts those to revive the node's daemon.
  };

  void wait_for_signals();
  void arm_start_timer();
  void on_layout(JobLayout job);
  void open_link(size_t index);
  AgentLink::Events events_of(size_t index);
  void on_registered(size_t index);
  // `how` is empty if the stream is not the node's any more.
  void on_link_closed(size_t index, const std::optional<Status>& how);
  size_t index_of(const std::string& node_id) const;
  const std::vector<Rank>& ranks_of(const LocalNode& node) const;
  // Returns the node's index in the job's layout.
  int place_of(const LocalNode& node) const;
  // Returns the rank whose process has this slot on the node, if there is one.
  std::optional<Rank> rank_at(size_t index, Rank slot) const;
  // In an elastic job: tells the daemon of the rank's node that the rank has ended, and how, if
  // badly, as soon as there is a daemon.
  void report_slot(Rank rank, const std::string* failure);
  void take_back_reports(Registration& registration);
  void limit_revival(size_t index);
  void start_ranks();
  // The list of hosts gives this one so many slots.
  void on_slots(int slots);
  // Returns how many slots there must be here for the job to begin.
  int slots_to_begin() const;
  std::string overdue_discovery_text() const;
  Status start_rank(const LocalNode& node, int local_rank);
  // Adds the rank's token to what it is told. The descriptor, if there is one, must be open when
  // the rank is started.
  Result<UniqueFd> add_token(const LocalNode& node, Rank rank, int local_rank,
                             Environment& environment) const;
  void on_rank_exit(Rank rank, const ExitStatus& status);
  void on_daemon_exit(const PrivateDaemon& daemon, ExitStatus status, bool was_ready);

  // Carries out the supervisor's actions. An action that causes an event at once only queues the
  // event's actions.
  void apply(Actions actions);
  void perform(const Say& action);
  void perform(const SignalRanks& action);
  void perform(const StartTimer& action);
  void perform(const ReportRankFailed& action);
  void perform(const ReportRankEnded& action);
  void perform(const AwaitRestart& action);
  void perform(const RestartRank& action);
  void perform(const ReviveNode& action);
  void perform(const TellSlots& action);
  void perform(const AwaitSlots& action);
  void perform(const DrainRanks& action);
  void perform(const CloseLinks& action);
  void perform(const CancelLinks& action);
  void perform(const SignalDaemons& action);
  void perform(const Finish& action);

  void check_drained();
  // Asks processes that ranks have left in their groups to end, then waits for them.
  void end_drain();
  std::set<pid_t> rank_groups() const;
  void await_leftovers(std::vector<Leftover> leftovers);
  void kill_leftover_groups();
  void check_daemons();
  void resume_output();

  Options options_;  // Nothing changes once the daemons are brought up.
  boost::asio::io_context loop_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  const std::shared_ptr<LoopGate> gate_;
  // The sinks of standard output and error. There is one sink if they are the same file, so that
  // lines stay whole.
  std::unique_ptr<OutputSink> out_sink_;
  std::unique_ptr<OutputSink> err_sink_;
  boost::asio::signal_set signals_;
  boost::asio::steady_timer start_timer_;
  boost::asio::steady_timer timer_;
  boost::asio::steady_timer drain_timer_;
  boost::asio::steady_timer slots_timer_;
  uint64_t timer_generation_ = 0;
  Supervisor supervisor_;
  Guardian guardian_;
  Bringup bringup_;
  JobLayout job_;
  std::vector<Registration> registrations_;  // By index among the local nodes.
  // By index among the local nodes, and by slot: the rank that names the process.
  std::vector<std::vector<Rank>> slots_;
  std::unique_ptr<HostDiscovery> discovery_;
  size_t registered_count_ = 0;
  size_t open_links_count_ = 0;
  std::vector<std::unique_ptr<RankProcess>> ranks_;
  std::vector<std::string> http_addresses_;
  std::map<Rank, boost::asio::steady_timer> restart_timers_;
  std::deque<Action> pending_;
  bool is_performing_ = false;
  bool is_brought_up_ = false;  // The daemons, or that has begun.
  bool is_draining_ = false;
  bool is_awaiting_leftovers_ = false;
  std::vector<std::unique_ptr<ExitWatch>> leftover_watches_;
  size_t leftover_count_ = 0;
  bool is_closing_links_ = false;
  bool is_stopping_daemons_ = false;
  int exit_code_ = 0;
};

}  // namespace rueda::agent
