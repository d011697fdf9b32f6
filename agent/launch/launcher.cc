#include "agent/launch/launcher.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <utility>

#include <boost/asio/post.hpp>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/os/sealed_text.h"

namespace rueda::agent {
namespace {

// The time for which output may still come from processes that ended ranks have left running.
constexpr std::chrono::milliseconds kDrain{1000};
constexpr const char* kStartTimeoutVariable = "RUEDA_START_TIMEOUT_MS";
constexpr int64_t kDaemonAnswersMs =
    10'000;                            // The time in which the daemon's own end of a wait comes.
constexpr int64_t kUnsureMs = 10'000;  // A daemon may have been dead for so long unnoticed.
constexpr int64_t kJitterPart = 4;     // A rank waits up to a quarter longer than it is told.

bool is_same_file(int one, int other) {
  struct stat a {};
  struct stat b {};
  return ::fstat(one, &a) == 0 && ::fstat(other, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

std::string user_name() {
  const passwd* const entry = ::getpwuid(::geteuid());
  return entry != nullptr ? entry->pw_name : std::to_string(::geteuid());
}

// Returns the position of the rank among a node's, or -1.
int slot_in(const std::vector<Rank>& ranks, Rank rank) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

// Of a job on several nodes, a launcher knows its own ranks alone: the others' may be enough.
std::optional<ElasticSettings> settings_here(const Options& options) {
  std::optional<ElasticSettings> elastic = options.elastic;
  if (elastic && options.nnodes > 1) elastic->min_ranks = 1;
  return elastic;
}

bool is_ignored(int signal) {
  struct sigaction current {};
  return ::sigaction(signal, nullptr, &current) == 0 && current.sa_handler == SIG_IGN;
}

}  // namespace

Launcher::Launcher(Options options)
    : options_(std::move(options)),
      work_(boost::asio::make_work_guard(loop_)),
      gate_(std::make_shared<LoopGate>(loop_)),
      out_sink_(std::make_unique<OutputSink>(
          STDOUT_FILENO, [this, gate = gate_] { gate->post([this] { resume_output(); }); })),
      err_sink_(is_same_file(STDOUT_FILENO, STDERR_FILENO)
                    ? nullptr
                    : std::make_unique<OutputSink>(
                          STDERR_FILENO,
                          [this, gate = gate_] { gate->post([this] { resume_output(); }); })),
      signals_(loop_),
      start_timer_(loop_),
      timer_(loop_),
      drain_timer_(loop_),
      slots_timer_(loop_),
      supervisor_(options_.grace_ms, settings_here(options_)),
      guardian_(loop_, options_.grace_ms, [this](const std::string& text) { perform(Say{text}); }),
      bringup_(loop_, gate_, options_, err_sink_ ? *err_sink_ : *out_sink_,
               {[this](JobLayout job) { on_layout(std::move(job)); },
                [this](const std::string& text) { apply(supervisor_.on_start_failed(1, text)); },
                [this](const PrivateDaemon& daemon) { guardian_.add_daemon(daemon.pid()); },
                [this](const PrivateDaemon& daemon, ExitStatus status, bool was_ready) {
                  on_daemon_exit(daemon, status, was_ready);
                },
                [this](const PrivateDaemon& daemon) {
                  apply(supervisor_.on_daemon_delivering(daemon.node_id()));
                },
                [this](const std::string& text) {
                  if (options_.is_verbose) perform(Say{text});
                },
                [this](const std::string& text) { perform(Say{text}); }}) {}

Launcher::~Launcher() {
  gate_->close();
  // A user who has interrupted the job wants it to end soon; otherwise the launcher waits longer,
  // until the ranks' output has been written.
  const std::chrono::seconds patience(supervisor_.was_interrupted() ? 2 : 60);
  const std::string lost = out_sink_->finish(patience);
  if (!err_sink_) return;
  if (!lost.empty()) err_sink_->write("ruedarun: standard output: " + lost + "\n");
  err_sink_->finish(patience);
}

int Launcher::run() {
  signals_.add(SIGINT);
  signals_.add(SIGTERM);
  // Batch systems send these signals as a warning (Slurm's --signal), and programs listen for them.
  signals_.add(SIGUSR1);
  signals_.add(SIGUSR2);
  // Under nohup the job goes on when the terminal is closed.
  if (!is_ignored(SIGHUP)) signals_.add(SIGHUP);
  wait_for_signals();
  arm_start_timer();
  guardian_.start();
  if (options_.discovery_script.empty()) {
    is_brought_up_ = true;
    bringup_.start();
  } else {
    discovery_ = std::make_unique<HostDiscovery>(
        loop_, options_.discovery_script,
        HostDiscovery::Events{[this](int slots) { on_slots(slots); },
                              [this](const std::string& text) { perform(Say{text}); }});
    discovery_->start();
  }
  loop_.run();
  return exit_code_;
}

void Launcher::wait_for_signals() {
  signals_.async_wait([this](const boost::system::error_code& error, int signal) {
    if (error) return;
    apply(supervisor_.on_signal(signal));
    wait_for_signals();
  });
}

void Launcher::arm_start_timer() {
  start_timer_.expires_after(std::chrono::milliseconds(options_.start_timeout_ms));
  start_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    const std::string text = is_brought_up_ ? bringup_.overdue_text() : overdue_discovery_text();
    bringup_.give_up(text);
    apply(supervisor_.on_start_failed(1, text));
  });
}

int Launcher::slots_to_begin() const {
  const int least = options_.nnodes == 1 ? options_.elastic->min_ranks : 1;
  return std::max(options_.ranks, least);
}

std::string Launcher::overdue_discovery_text() const {
  const std::string wanted = std::to_string(slots_to_begin());
  const std::string within =
      " within " + std::to_string(options_.start_timeout_ms / 1000) + " s (--start-timeout)";
  const std::string script = "--host-discovery-script " + options_.discovery_script;
  if (!discovery_->slots())
    return script + " gave no answer" + within + ": " + discovery_->failure();
  return script + " did not give this host " + wanted + (wanted == "1" ? " slot" : " slots") +
         within + ", but " + std::to_string(*discovery_->slots()) + "; it is meant by " +
         discovery_->names_text();
}

void Launcher::on_slots(int slots) {
  if (!is_brought_up_) {
    // -np, if it is given, says with how many it begins.
    if (slots < slots_to_begin()) return;
    if (options_.ranks == 0) options_.ranks = std::min(slots, options_.elastic->max_ranks);
    is_brought_up_ = true;
    return bringup_.start();
  }
  if (slots_.empty()) return;  // They are looked at again once the ranks have been started.
  slots = std::min(slots, options_.elastic->max_ranks);
  std::vector<Rank>& known = slots_.front();
  while (known.size() < static_cast<size_t>(slots)) {
    // They are numbered after those of the first generation, and after one another.
    int next = 0;
    for (const NodeLayout& node : job_.nodes) {
      for (const Rank rank : node.ranks) next = std::max(next, rank.value + 1);
    }
    if (!known.empty()) next = std::max(next, known.back().value + 1);
    known.emplace_back(next);
  }
  apply(supervisor_.on_slots_wanted({known.begin(), known.begin() + slots}));
}

void Launcher::perform(const TellSlots& action) {
  registrations_.front().slots = action.slots;
  if (registrations_.front().is_registered) registrations_.front().link->want_slots(action.slots);
}

void Launcher::perform(const AwaitSlots& action) {
  slots_timer_.expires_after(std::chrono::milliseconds(action.after_ms));
  slots_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) apply(supervisor_.on_slots_overdue());
  });
}

void Launcher::on_layout(JobLayout job) {
  job_ = std::move(job);
  for (const LocalNode& node : bringup_.local_nodes()) {
    slots_.push_back(job_.nodes[static_cast<size_t>(place_of(node))].ranks);
  }
  if (options_.is_verbose) perform(Say{"registering " + job_.job_id});
  registrations_.resize(bringup_.local_nodes().size());
  for (size_t i = 0; i < registrations_.size(); ++i) open_link(i);
}

AgentLink::Events Launcher::events_of(size_t index) {
  const std::string id = bringup_.local_nodes()[index].node_id;
  const int number = registrations_[index].number;
  AgentLink::Events events;
  events.on_registered = [this, gate = gate_, index, number] {
    gate->post([this, index, number] {
      if (number == registrations_[index].number) on_registered(index);
    });
  };
  events.on_failed = [this, gate = gate_, id](JobFailure failure) {
    gate->post([this, id, failure = std::move(failure)] {
      apply(supervisor_.on_job_failed(id, failure));
    });
  };
  events.on_rank_silent = [this, gate = gate_, index](Rank slot, std::string text) {
    gate->post([this, index, slot, text = std::move(text)] {
      if (const auto rank = rank_at(index, slot)) apply(supervisor_.on_rank_silent(*rank, text));
    });
  };
  events.on_rank_unneeded = [this, gate = gate_, index](Rank slot) {
    gate->post([this, index, slot] {
      if (const auto rank = rank_at(index, slot)) apply(supervisor_.on_rank_unneeded(*rank));
    });
  };
  // What is posted is kept: it comes before whatever makes it needed.
  events.on_votes = [this, gate = gate_, index](std::string votes) {
    gate->post([this, index, votes = std::move(votes)] { registrations_[index].votes = votes; });
  };
  events.on_note = [this, gate = gate_](std::string text) {
    gate->post([this, text = std::move(text)] { perform(Say{text}); });
  };
  events.on_closed = [this, gate = gate_, index, number](Status status) {
    gate->post([this, index, number, status = std::move(status)] {
      // A daemon may be followed by another before its stream is heard to have ended.
      const bool is_stale = number != registrations_[index].number;
      on_link_closed(index, is_stale ? std::nullopt : std::optional(status));
    });
  };
  return events;
}

const std::vector<Rank>& Launcher::ranks_of(const LocalNode& node) const {
  return slots_[index_of(node.node_id)];
}

int Launcher::place_of(const LocalNode& node) const {
  const auto found = std::find_if(job_.nodes.begin(), job_.nodes.end(), [&](const NodeLayout& one) {
    return one.node_id == node.node_id;
  });
  return found == job_.nodes.end() ? 0 : static_cast<int>(found - job_.nodes.begin());
}

std::optional<Rank> Launcher::rank_at(size_t index, Rank slot) const {
  const std::vector<Rank>& ranks = ranks_of(bringup_.local_nodes()[index]);
  if (slot.value < 0 || static_cast<size_t>(slot.value) >= ranks.size()) return std::nullopt;
  return ranks[static_cast<size_t>(slot.value)];
}

void Launcher::open_link(size_t index) {
  const LocalNode& node = bringup_.local_nodes()[index];
  Registration& own = registrations_[index];
  const bool is_first = place_of(node) == 0 && !job_.is_late();
  take_back_reports(own);
  std::vector<int> ended_slots;
  std::vector<int> finished_slots;
  own.told.clear();
  for (const auto& [rank, failure] : own.ended_meanwhile) {
    (failure.empty() ? finished_slots : ended_slots).push_back(slot_in(ranks_of(node), rank));
    own.told.insert(rank);
  }
  const JobRegistration registration{job_,
                                     place_of(node),
                                     user_name(),
                                     options_.agreement,
                                     options_.start_timeout_ms,
                                     options_.stall_check_ms,
                                     options_.stall_shutdown_ms,
                                     false,
                                     is_first ? options_.timeline : "",
                                     options_.timeline_has_chunks,
                                     options_.checks_finite,
                                     options_.elastic,
                                     own.votes,
                                     std::move(ended_slots),
                                     std::move(finished_slots),
                                     own.slots ? std::max(*own.slots, 1) : 0};
  ++open_links_count_;
  ++own.number;
  own.is_registered = false;
  own.link.reset();
  AgentLink::Events events = events_of(index);
  const std::function<void(Status)> on_closed = events.on_closed;
  Result<std::unique_ptr<AgentLink>> link =
      AgentLink::open(node.socket, registration, std::move(events));
  if (!link.is_ok()) return on_closed(link.status());
  own.link = std::move(link).value();
}

void Launcher::on_registered(size_t index) {
  Registration& registration = registrations_[index];
  registration.is_registered = true;
  if (registered_count_ < registrations_.size()) {
    ++registered_count_;
    if (registered_count_ == registrations_.size() && !is_closing_links_) start_ranks();
    return;
  }
  for (const auto& [rank, failure] : std::exchange(registration.ended_meanwhile, {})) {
    if (!registration.told.contains(rank)) report_slot(rank, failure.empty() ? nullptr : &failure);
  }
  if (registration.slots) registration.link->want_slots(*registration.slots);
  apply(supervisor_.on_node_revived(bringup_.local_nodes()[index].node_id));
}

void Launcher::on_link_closed(size_t index, const std::optional<Status>& how) {
  --open_links_count_;
  if (!how) {
    if (is_closing_links_ && open_links_count_ == 0) apply(supervisor_.on_links_closed());
    return;
  }
  const Status& status = *how;
  Registration& registration = registrations_[index];
  const bool was_registered = std::exchange(registration.is_registered, false);
  const bool is_revival = registered_count_ == registrations_.size() && !was_registered;
  registration.link.reset();
  const std::string& node_id = bringup_.local_nodes()[index].node_id;
  if (is_closing_links_ && open_links_count_ == 0) {
    apply(supervisor_.on_links_closed());
  } else if (!status.is_ok() && is_revival && !is_closing_links_) {
    apply(supervisor_.on_revival_failed(node_id, status.message(), steady_now_ms()));
  } else if (!status.is_ok()) {
    apply(supervisor_.on_link_lost(node_id, status.message(), steady_now_ms()));
  }
}

void Launcher::perform(const ReviveNode& action) {
  const size_t index = index_of(action.node_id);
  registrations_[index].revival = std::make_unique<boost::asio::steady_timer>(
      loop_, std::chrono::milliseconds(action.after_ms));
  registrations_[index].revival->async_wait([this, index](const boost::system::error_code& error) {
    if (error || is_closing_links_ || is_stopping_daemons_) return;
    const int attempt = ++registrations_[index].attempt;
    limit_revival(index);
    bringup_.revive(index, [this, index, attempt](const Status& status) {
      if (is_closing_links_ || attempt != registrations_[index].attempt) return;
      if (status.is_ok()) return open_link(index);
      apply(supervisor_.on_revival_failed(bringup_.local_nodes()[index].node_id, status.message(),
                                          steady_now_ms()));
    });
  });
}

// A daemon may begin, and never serve.
void Launcher::limit_revival(size_t index) {
  Registration& own = registrations_[index];
  own.revival_limit = std::make_unique<boost::asio::steady_timer>(
      loop_, std::chrono::milliseconds(options_.start_timeout_ms));
  own.revival_limit->async_wait(
      [this, index, attempt = own.attempt](const boost::system::error_code& error) {
        Registration& late = registrations_[index];
        const bool is_over = attempt != late.attempt || late.is_registered;
        if (error || is_over || is_closing_links_ || is_stopping_daemons_) return;
        ++late.attempt;
        ++late.number;  // What the link still says is nobody's any more.
        if (late.link) late.link->cancel();
        const std::string why = "it has not taken the job within " +
                                std::to_string(options_.start_timeout_ms / 1000) +
                                " s (--start-timeout)";
        bringup_.give_up_daemon(index, why);
        apply(supervisor_.on_revival_failed(bringup_.local_nodes()[index].node_id, why,
                                            steady_now_ms()));
      });
}

size_t Launcher::index_of(const std::string& node_id) const {
  const std::vector<LocalNode>& nodes = bringup_.local_nodes();
  const auto it = std::find_if(nodes.begin(), nodes.end(),
                               [&](const LocalNode& node) { return node.node_id == node_id; });
  return static_cast<size_t>(it - nodes.begin());
}

void Launcher::report_slot(Rank rank, const std::string* failure) {
  for (size_t i = 0; i < registrations_.size(); ++i) {
    const int position = slot_in(ranks_of(bringup_.local_nodes()[i]), rank);
    if (position < 0) continue;
    const Rank slot{position};
    Registration& registration = registrations_[i];
    if (!registration.is_registered) {
      registration.ended_meanwhile[rank] = failure ? *failure : "";
      registration.told.erase(rank);
      continue;
    }
    registration.reported[rank] = {steady_now_ms(), failure ? *failure : ""};
    if (failure) {
      registration.link->report_rank_failed(slot, *failure);
    } else {
      registration.link->report_rank_ended(slot);
    }
  }
}

// What was said to a daemon right before it was lost may not have been heard, or not kept.
void Launcher::take_back_reports(Registration& registration) {
  for (const auto& [rank, report] : std::exchange(registration.reported, {})) {
    if (steady_now_ms() - report.first > kUnsureMs) continue;
    registration.ended_meanwhile.emplace(rank, report.second);
  }
}

void Launcher::start_ranks() {
  start_timer_.cancel();
  for (const LocalNode& node : bringup_.local_nodes()) {
    if (!node.http_address.empty()) http_addresses_.push_back(node.http_address);
  }
  for (const LocalNode& node : bringup_.local_nodes()) {
    const size_t local_size = job_.nodes[static_cast<size_t>(place_of(node))].ranks.size();
    for (size_t k = 0; k < local_size; ++k) {
      const Status started = start_rank(node, static_cast<int>(k));
      if (started.is_ok()) continue;
      return apply(
          supervisor_.on_start_failed(shell_code_of_spawn_failure(started), started.message()));
    }
  }
  apply(supervisor_.on_all_started());
  if (discovery_ && discovery_->slots() != options_.ranks) on_slots(*discovery_->slots());
}

Status Launcher::start_rank(const LocalNode& node, int local_rank) {
  const Rank rank = ranks_of(node)[static_cast<size_t>(local_rank)];
  auto process = std::make_unique<RankProcess>(
      loop_, rank,
      RankProcess::Events{[this, rank](ExitStatus status) { on_rank_exit(rank, status); },
                          [this] { check_drained(); }});
  Environment environment =
      rank_environment(job_, job_.is_late() ? node.node_index : place_of(node), rank, local_rank,
                       node.socket, http_addresses_);
  if (options_.elastic) environment.emplace_back("RUEDA_ELASTIC", "1");
  if (options_.elastic && std::getenv(kStartTimeoutVariable) == nullptr) {
    // Who attaches may have to wait for others to be started again. The daemon ends the wait.
    environment.emplace_back(kStartTimeoutVariable,
                             std::to_string(options_.elastic->timeout_ms + kDaemonAnswersMs));
  }
  environment.emplace_back(kLaunchVariable, guardian_.launch());
  const Result<UniqueFd> token = add_token(node, rank, local_rank, environment);
  if (!token.is_ok()) return token.status();
  const auto slot = static_cast<size_t>(local_rank);
  const std::vector<int> cpus =
      slot < node.rank_cpus.size() ? node.rank_cpus[slot] : std::vector<int>{};
  const Status started =
      process->start(options_.command, environment, token.value().get(), cpus, options_.has_prefix,
                     *out_sink_, err_sink_ ? *err_sink_ : *out_sink_);
  if (!started.is_ok()) return started;
  registrations_[index_of(node.node_id)].reported.erase(rank);  // It is about another process.
  guardian_.add_group(process->pid());
  supervisor_.on_rank_started(rank, process->pid(), node.node_id);
  ranks_.push_back(std::move(process));
  return Status::ok();
}

Result<UniqueFd> Launcher::add_token(const LocalNode& node, Rank rank, int local_rank,
                                     Environment& environment) const {
  const std::string token =
      token_text(job_, node.node_id, rank, local_rank, options_.elastic.has_value());
  if (options_.has_token_in_environment) {
    environment.emplace_back(kTokenVariable, token);
    return UniqueFd();
  }
  Result<UniqueFd> sealed = make_sealed_text("rueda-rank-token", token);
  if (sealed.is_ok()) {
    environment.emplace_back(kTokenFdVariable, std::to_string(sealed.value().get()));
  }
  return sealed;
}

// Reports that a rank has ended. A rank that fails may have heard of the death of another one,
// which the loop has not seen yet; that death is the cause, and is told to the supervisor first.
void Launcher::on_rank_exit(Rank rank, const ExitStatus& status) {
  if (status.signal == 0 && status.status != 0) {
    for (const auto& process : ranks_) process->look_if_killed();
  }
  apply(supervisor_.on_rank_exit(rank, status, steady_now_ms()));
}

void Launcher::on_daemon_exit(const PrivateDaemon& daemon, ExitStatus status, bool was_ready) {
  guardian_.forget_daemon(daemon.pid());
  if (was_ready) {
    apply(supervisor_.on_daemon_exit(daemon.node_id(), daemon.pid(), status, steady_now_ms()));
  }
  check_daemons();
}

void Launcher::apply(Actions actions) {
  for (Action& action : actions) pending_.push_back(std::move(action));
  if (is_performing_) return;
  is_performing_ = true;
  while (!pending_.empty()) {
    const Action action = std::move(pending_.front());
    pending_.pop_front();
    std::visit([this](const auto& what) { perform(what); }, action);
  }
  is_performing_ = false;
}

void Launcher::perform(const Say& action) {
  (err_sink_ ? *err_sink_ : *out_sink_).write("ruedarun: " + action.text + "\n");
}

void Launcher::perform(const SignalRanks& action) {
  for (const auto& process : ranks_) {
    const bool is_meant =
        std::find(action.ranks.begin(), action.ranks.end(), process->rank()) != action.ranks.end();
    if (is_meant) process->send_signal(action.signal);
  }
}

void Launcher::perform(const StartTimer& action) {
  timer_.expires_after(std::chrono::milliseconds(action.after_ms));
  // A timer that was replaced may have fired already, with its handler still to run.
  timer_.async_wait([this, mine = ++timer_generation_](const boost::system::error_code& error) {
    if (!error && mine == timer_generation_) apply(supervisor_.on_timer());
  });
}

void Launcher::perform(const ReportRankFailed& action) {
  if (options_.elastic) return report_slot(action.rank, &action.text);
  for (const Registration& registration : registrations_) {
    if (registration.link) registration.link->report_rank_failed(action.rank, action.text);
  }
}

void Launcher::perform(const ReportRankEnded& action) { report_slot(action.rank, nullptr); }

void Launcher::perform(const AwaitRestart& action) {
  // Ranks that died together are not started at the same moment.
  static std::minstd_rand random{std::random_device{}()};
  const int64_t jitter_ms = static_cast<int64_t>(random()) % (action.after_ms / kJitterPart + 1);
  boost::asio::steady_timer& timer = restart_timers_.try_emplace(action.rank, loop_).first->second;
  timer.expires_after(std::chrono::milliseconds(action.after_ms + jitter_ms));
  timer.async_wait([this, rank = action.rank](const boost::system::error_code& error) {
    if (!error) apply(supervisor_.on_restart_due(rank));
  });
}

void Launcher::perform(const RestartRank& action) {
  // The process that died has written what it had to.
  std::erase_if(ranks_, [&](const auto& process) {
    if (process->rank() != action.rank) return false;
    process->finish_output();
    return true;
  });
  for (const LocalNode& node : bringup_.local_nodes()) {
    const int slot = slot_in(ranks_of(node), action.rank);
    if (slot < 0) continue;
    const Status started = start_rank(node, slot);
    if (!started.is_ok()) apply(supervisor_.on_restart_failed(action.rank, started.message()));
  }
}

void Launcher::perform(const DrainRanks&) {
  is_draining_ = true;
  drain_timer_.expires_after(kDrain);
  drain_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) end_drain();
  });
  check_drained();
}

void Launcher::check_drained() {
  const bool is_drained = std::all_of(
      ranks_.begin(), ranks_.end(), [](const auto& process) { return process->is_output_ended(); });
  // end_drain() is posted and not called, because this may be called by one of the objects that
  // end_drain() touches.
  if (is_draining_ && is_drained) boost::asio::post(loop_, [this] { end_drain(); });
}

void Launcher::end_drain() {
  if (!is_draining_) return;
  is_draining_ = false;
  drain_timer_.cancel();
  std::vector<Leftover> left = find_leftovers(rank_groups(), "");
  if (left.empty() || options_.grace_ms == 0) return kill_leftover_groups();
  perform(Say{"the ranks have ended and left " + std::to_string(left.size()) +
              (left.size() == 1 ? " process" : " processes") + " running, " + list_of(left) +
              ": SIGTERM, and SIGKILL after --grace"});
  for (const auto& process : ranks_) process->send_signal(SIGTERM);
  await_leftovers(std::move(left));
}

std::set<pid_t> Launcher::rank_groups() const {
  std::set<pid_t> groups;
  for (const auto& process : ranks_) groups.insert(process->pid());
  return groups;
}

void Launcher::await_leftovers(std::vector<Leftover> leftovers) {
  is_awaiting_leftovers_ = true;
  leftover_count_ = leftovers.size();
  drain_timer_.expires_after(std::chrono::milliseconds(options_.grace_ms));
  drain_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) kill_leftover_groups();
  });
  for (Leftover& one : leftovers) {
    auto& watch = leftover_watches_.emplace_back(std::make_unique<ExitWatch>(loop_));
    watch->start(std::move(one.pidfd), [this] {
      if (--leftover_count_ == 0) kill_leftover_groups();
    });
  }
}

void Launcher::kill_leftover_groups() {
  is_awaiting_leftovers_ = false;
  drain_timer_.cancel();
  leftover_watches_.clear();
  for (const auto& process : ranks_) {
    process->send_signal(SIGKILL);
    process->finish_output();
  }
  apply(supervisor_.on_drained());
}

void Launcher::perform(const CloseLinks&) {
  is_closing_links_ = true;
  if (discovery_) discovery_->stop();
  slots_timer_.cancel();
  start_timer_.cancel();
  bringup_.cancel();
  for (const Registration& registration : registrations_) {
    if (registration.link) registration.link->close();
  }
  if (open_links_count_ == 0) apply(supervisor_.on_links_closed());
}

void Launcher::perform(const CancelLinks&) {
  if (is_awaiting_leftovers_) kill_leftover_groups();
  for (const Registration& registration : registrations_) {
    if (registration.link) registration.link->cancel();
  }
}

void Launcher::perform(const SignalDaemons& action) {
  is_stopping_daemons_ = true;
  bringup_.signal_daemons(action.signal);
  check_daemons();
}

void Launcher::check_daemons() {
  if (is_stopping_daemons_ && !bringup_.has_running_daemons()) {
    apply(supervisor_.on_daemons_gone());
  }
}

void Launcher::perform(const Finish& action) {
  exit_code_ = action.exit_code;
  // A job that has ended well may have left a process in a session of its own on purpose.
  const bool may_be_left = exit_code_ != 0 && !ranks_.empty();
  const int killed = may_be_left ? kill_leftovers({}, guardian_.launch()) : 0;
  if (killed > 0) {
    perform(Say{"killed " + std::to_string(killed) +
                (killed == 1 ? " process that a rank" : " processes that ranks") +
                " had left outside of their groups"});
  }
  loop_.stop();
}

void Launcher::resume_output() {
  for (const auto& process : ranks_) process->resume_output();
  bringup_.resume_output();
}

}  // namespace rueda::agent
