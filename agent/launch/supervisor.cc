#include "agent/launch/supervisor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <signal.h>

namespace rueda::agent {
namespace {

std::string signal_name(int signal) {
  const char* const name = ::sigabbrev_np(signal);
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

std::string count_of(size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace

std::vector<Rank> Supervisor::running_ranks() const {
  std::vector<Rank> out;
  for (const auto& [rank, state] : ranks_) {
    if (state.is_running) out.emplace_back(rank);
  }
  return out;
}

void Supervisor::signal_running_ranks(int signal, Actions& out) {
  std::vector<Rank> running = running_ranks();
  if (running.empty()) return;
  for (Rank rank : running) ranks_[rank].sent_signal = signal;
  out.emplace_back(SignalRanks{signal, std::move(running)});
}

void Supervisor::on_rank_started(Rank rank, pid_t pid, const std::string& node_id) {
  RankState& state = ranks_[rank];
  state.pid = pid;
  state.node_id = node_id;
  state.is_running = true;
  state.awaits_restart = false;
}

Actions Supervisor::on_all_started() {
  if (phase_ == Phase::kStarting) phase_ = Phase::kRunning;
  return {};
}

Actions Supervisor::on_start_failed(int exit_code, const std::string& text) {
  if (phase_ != Phase::kStarting) return {};
  Actions out;
  out.emplace_back(Say{text});
  exit_code_ = exit_code;
  if (running_ranks().empty()) {
    close_links(out);
  } else {
    phase_ = Phase::kKilling;
    signal_running_ranks(SIGKILL, out);
  }
  return out;
}

void Supervisor::begin_ending(int exit_code, Actions& out) {
  exit_code_ = exit_code;
  phase_ = Phase::kGrace;
  out.emplace_back(StartTimer{grace_ms_});
}

std::string Supervisor::end_of(Rank rank, const ExitStatus& status) const {
  const RankState& state = ranks_.at(rank);
  return "rank " + std::to_string(rank.value) + " (pid " + std::to_string(state.pid) +
         ") on node " + state.node_id + " " + status.to_string();
}

void Supervisor::on_rank_failed(Rank rank, const ExitStatus& status, Actions& out) {
  const std::string text = end_of(rank, status);
  if (phase_ == Phase::kRunning || phase_ == Phase::kStarting) {
    culprit_ = rank;
    out.emplace_back(Say{text + "; ending the job"});
    out.emplace_back(ReportRankFailed{rank, text});
    begin_ending(status.shell_code(), out);
  } else if (wants_rank_code_) {
    exit_code_ = status.shell_code();
    // The other ranks fail with the error that they were told; the code of the rank that was blamed
    // says more.
    if (!suspect_ || *suspect_ == rank) blame(rank, status, out);
  }
}

void Supervisor::blame(Rank rank, const ExitStatus& status, Actions& out) {
  exit_code_ = status.shell_code();
  wants_rank_code_ = false;
  // Whoever was blamed before is one of the others.
  if (culprit_ && *culprit_ != rank) ++ended_alone_count_;
  culprit_ = rank;
  out.emplace_back(Say{end_of(rank, status)});
}

Actions Supervisor::on_other_blamed(const JobFailure& failure) {
  Actions out;
  const bool is_other = culprit_ && failure.origin_rank && *failure.origin_rank != *culprit_;
  if (phase_ != Phase::kGrace || !is_other || is_ended_by_request_) return out;
  const auto found = ranks_.find(*failure.origin_rank);
  if (found == ranks_.end()) return out;
  if (found->second.is_running) {
    suspect_ = failure.origin_rank;
    wants_rank_code_ = true;
  } else if (found->second.failure) {
    --ended_alone_count_;  // It was counted as one of the others.
    blame(found->first, *found->second.failure, out);
  }
  return out;
}

// --- Elastic jobs --------------------------------------------------------------------------------

int Supervisor::expected_ranks() const {
  return static_cast<int>(std::count_if(ranks_.begin(), ranks_.end(), [](const auto& entry) {
    return entry.second.is_running || entry.second.awaits_restart;
  }));
}

int Supervisor::least_ranks() const {
  const int slots = static_cast<int>(slots_.value_or(ranks_.size()));
  return std::min(elastic_->min_ranks, std::max(slots, 1));  // Slots that are gone may come again.
}

bool Supervisor::has_anybody_ended_well() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const auto& entry) { return entry.second.has_ended_well; });
}

bool Supervisor::go_on_without(Rank rank, const ExitStatus& status, int64_t now_ms, Actions& out) {
  RankState& state = ranks_[rank];
  // Its rank may be another one by now, which the daemon deals.
  const std::string text = "slot " + std::to_string(rank.value) + " (pid " +
                           std::to_string(state.pid) + ") on node " + state.node_id + " " +
                           status.to_string();
  std::erase_if(state.died_ms, [&](int64_t at) { return now_ms - at > kRestartWindowMs; });
  state.died_ms.push_back(now_ms);
  const auto deaths = static_cast<int>(state.died_ms.size());
  // Whoever is started when others have finished would wait for them in vain.
  const bool is_finishing = has_anybody_ended_well();
  state.awaits_restart = !is_finishing && deaths <= elastic_->max_restarts;
  if (!is_finishing && expected_ranks() < least_ranks()) {
    const std::string least = "--min-np " + std::to_string(elastic_->min_ranks);
    out.emplace_back(Say{(elastic_->min_ranks == 1 ? std::string("no rank is")
                                                   : "fewer ranks than " + least + " are") +
                         " left here, and none is started again more than --max-restarts " +
                         std::to_string(elastic_->max_restarts) + " times in 10 minutes"});
    return false;
  }
  const size_t others = running_ranks().size();
  std::string then =
      "; " + std::to_string(others) + (others == 1 ? " other goes on" : " others go on");
  if (state.awaits_restart) {
    const int64_t after_ms =
        std::min(kFirstBackoffMs << std::min(deaths - 1, 16), kLongestBackoffMs);
    then += ", and it is started again in " + std::to_string(after_ms / 1000) + " s";
    out.emplace_back(Say{text + then});
    out.emplace_back(ReportRankFailed{rank, text});
    out.emplace_back(AwaitRestart{rank, after_ms});
    return true;
  }
  if (!is_finishing) {
    then += ", and it is given up: it was started again " + std::to_string(elastic_->max_restarts) +
            " times (--max-restarts) in 10 minutes";
  }
  if (!has_anybody_ended_well()) exit_code_ = status.shell_code();
  out.emplace_back(Say{text + then});
  out.emplace_back(ReportRankFailed{rank, text});
  return true;
}

bool Supervisor::go_on_without_daemon(const std::string& node_id, const std::string& text,
                                      int64_t now_ms, Actions& out) {
  NodeState& node = nodes_[node_id];
  if (std::exchange(node.is_away, true)) return true;  // It has been heard of already.
  node.away_since_ms = now_ms;
  node.attempts = 0;
  std::erase_if(node.lost_ms, [&](int64_t at) { return now_ms - at > kRestartWindowMs; });
  node.lost_ms.push_back(now_ms);
  if (static_cast<int>(node.lost_ms.size()) > elastic_->max_restarts) {
    out.emplace_back(Say{text + ", as often as " + std::to_string(node.lost_ms.size()) +
                         " times in 10 minutes (--max-restarts)"});
    return false;
  }
  out.emplace_back(Say{text + "; its ranks go on with the daemon that follows it"});
  out.emplace_back(ReviveNode{node_id, 0});
  return true;
}

Actions Supervisor::on_node_revived(const std::string& node_id) {
  Actions out;
  nodes_[node_id].is_away = false;
  if (phase_ == Phase::kRunning) out.emplace_back(Say{"node " + node_id + " has a daemon again"});
  return out;
}

Actions Supervisor::on_revival_failed(const std::string& node_id, const std::string& text,
                                      int64_t now_ms) {
  Actions out;
  if (phase_ != Phase::kRunning) return out;
  NodeState& node = nodes_[node_id];
  if (now_ms - node.away_since_ms < elastic_->timeout_ms) {
    const int64_t after_ms =
        std::min(kFirstRevivalMs << std::min(node.attempts++, 16), kFirstBackoffMs);
    out.emplace_back(ReviveNode{node_id, after_ms});
    return out;
  }
  out.emplace_back(Say{"node " + node_id + " has no daemon again within --elastic-timeout: " +
                       text + "; ending the job"});
  begin_ending(1, out);
  end_if_none_runs(out);
  return out;
}

void Supervisor::end_if_nobody_is_left(Actions& out) {
  if (phase_ != Phase::kRunning || !running_ranks().empty()) return;
  if (has_anybody_ended_well()) exit_code_ = 0;
  if (has_anybody_ended_well()) return on_ranks_gone(out);
  if (expected_ranks() > 0) return;
  if (slots_ == 0u) return await_slots(out);
  on_ranks_gone(out);
}

bool Supervisor::end_if_none_runs(Actions& out) {
  if (!running_ranks().empty()) return false;
  on_ranks_gone(out);
  return true;
}

Actions Supervisor::on_rank_silent(Rank rank, const std::string& text) {
  Actions out;
  const auto found = ranks_.find(rank);
  if (phase_ != Phase::kRunning || found == ranks_.end() || !found->second.is_running) return out;
  out.emplace_back(Say{text + ": killing it (--rank-timeout)"});
  // Its end counts as its own, so that it is started again.
  out.emplace_back(SignalRanks{SIGKILL, {rank}});
  return out;
}

Actions Supervisor::on_rank_unneeded(Rank rank) {
  Actions out;
  const auto found = ranks_.find(rank);
  if (phase_ != Phase::kRunning || found == ranks_.end() || !found->second.is_running) return out;
  if (found->second.is_unwanted) {
    out.emplace_back(Say{"slot " + std::to_string(rank.value) + " has left: ending it"});
    out.emplace_back(SignalRanks{SIGKILL, {rank}});
    return out;
  }
  if (std::exchange(found->second.is_unneeded, true)) return out;
  out.emplace_back(Say{"slot " + std::to_string(rank.value) +
                       " comes too late: others have ended well; "
                       "ending it"});
  out.emplace_back(SignalRanks{SIGKILL, {rank}});
  return out;
}

Actions Supervisor::on_slots_wanted(const std::vector<Rank>& slots) {
  Actions out;
  if (phase_ != Phase::kRunning || has_anybody_ended_well()) return out;
  slots_ = slots.size();
  out.emplace_back(Say{"this host has " + count_of(slots.size(), "slot") + " now"});
  out.emplace_back(TellSlots{static_cast<int>(slots.size())});
  for (const Rank slot : slots) {
    const auto [found, is_new] = ranks_.try_emplace(slot);
    RankState& state = found->second;
    const bool was_unwanted = std::exchange(state.is_unwanted, false);
    // Whoever has died is started again after a while, or has been given up.
    if (!is_new && (!was_unwanted || state.is_running)) continue;
    state.is_running = false;
    state.awaits_restart = true;
    out.emplace_back(RestartRank{slot});
  }
  for (auto& [slot, state] : ranks_) {
    if (std::find(slots.begin(), slots.end(), slot) != slots.end()) continue;
    state.is_unwanted = true;
    state.awaits_restart = false;
  }
  end_if_nobody_is_left(out);
  return out;
}

void Supervisor::await_slots(Actions& out) {
  out.emplace_back(Say{"no slot is left on this host; waiting for its next ones for " +
                       std::to_string(elastic_->timeout_ms / 1000) + " s (--elastic-timeout)"});
  out.emplace_back(AwaitSlots{elastic_->timeout_ms});
}

Actions Supervisor::on_slots_overdue() {
  Actions out;
  if (phase_ != Phase::kRunning || expected_ranks() > 0) return out;
  out.emplace_back(Say{"no slot has come; leaving the job"});
  on_ranks_gone(out);
  return out;
}

Actions Supervisor::on_restart_due(Rank rank) {
  Actions out;
  RankState& state = ranks_[rank];
  if (!state.awaits_restart) return out;
  if (phase_ == Phase::kRunning && !has_anybody_ended_well()) {
    out.emplace_back(RestartRank{rank});
  } else {
    state.awaits_restart = false;
  }
  return out;
}

Actions Supervisor::on_restart_failed(Rank rank, const std::string& text) {
  Actions out;
  ranks_[rank].awaits_restart = false;
  if (phase_ != Phase::kRunning) return out;
  out.emplace_back(Say{"slot " + std::to_string(rank.value) + " cannot be started again: " + text});
  exit_code_ = 1;
  if (expected_ranks() < least_ranks() && !has_anybody_ended_well()) {
    begin_ending(1, out);
    end_if_none_runs(out);
  }
  return out;
}

Actions Supervisor::on_rank_exit(Rank rank, const ExitStatus& status, int64_t now_ms) {
  Actions out;
  const auto found = ranks_.find(rank);
  if (found == ranks_.end() || !found->second.is_running) return out;
  RankState& state = found->second;
  state.is_running = false;
  // Whoever comes too late has nothing to do, however it ends.
  state.has_ended_well = status.is_success() || state.is_unneeded;
  if (elastic_ && phase_ == Phase::kRunning) {
    if (state.is_unwanted && !status.is_success()) {
      // Its daemon may still wait for it.
      out.emplace_back(ReportRankFailed{rank, "slot " + std::to_string(rank.value) + " has left"});
      end_if_nobody_is_left(out);
      return out;
    }
    if (state.has_ended_well) {
      out.emplace_back(ReportRankEnded{rank});
      end_if_nobody_is_left(out);
      return out;
    }
    if (go_on_without(rank, status, now_ms, out)) {
      end_if_nobody_is_left(out);
      return out;
    }
  }
  if (state.sent_signal == 0 && !status.is_success()) {
    state.failure = status;
    on_rank_failed(rank, status, out);
  }
  if (phase_ > Phase::kRunning && culprit_ != rank) {
    if (state.sent_signal == 0) {
      ++ended_alone_count_;
    } else {
      ++ended_by_signal_counts_[state.sent_signal];
    }
  }
  // More ranks may follow while the job is starting.
  if (phase_ != Phase::kStarting && running_ranks().empty()) on_ranks_gone(out);
  return out;
}

Actions Supervisor::on_ended_by_request(const std::string& line) {
  if (phase_ >= Phase::kStoppingDaemons || user_signal_count_ > 0 ||
      std::exchange(is_ended_by_request_, true)) {
    return {};
  }
  if (phase_ == Phase::kStarting) return on_start_failed(kEndedByRequest, line);
  Actions out;
  out.emplace_back(Say{line + "; ending the job"});
  if (phase_ == Phase::kRunning) {
    begin_ending(kEndedByRequest, out);
    end_if_none_runs(out);
  }
  exit_code_ = kEndedByRequest;
  wants_rank_code_ = false;
  return out;
}

Actions Supervisor::on_job_failed(const std::string& reporting_node, const JobFailure& failure) {
  const std::string line = "the daemon of node " + reporting_node + " reports: " + failure.text;
  if (failure.is_by_request) return on_ended_by_request(line);
  if (phase_ == Phase::kStarting) return on_start_failed(1, line);
  if (phase_ != Phase::kRunning) return on_other_blamed(failure);
  Actions out;
  out.emplace_back(Say{line + "; ending the job"});
  begin_ending(1, out);
  if (end_if_none_runs(out)) return out;
  wants_rank_code_ = true;
  if (failure.origin_rank) {
    const auto found = ranks_.find(*failure.origin_rank);
    if (found != ranks_.end() && found->second.is_running) suspect_ = failure.origin_rank;
  }
  return out;
}

Actions Supervisor::on_link_lost(const std::string& node_id, const std::string& text,
                                 int64_t now_ms) {
  if (phase_ == Phase::kStarting) {
    return on_start_failed(1, "the daemon of node " + node_id + " did not take the job: " + text);
  }
  if (phase_ != Phase::kRunning) return {};
  Actions out;
  const std::string lost = "lost the daemon of node " + node_id + ": " + text;
  if (elastic_ && go_on_without_daemon(node_id, lost, now_ms, out)) return out;
  out.emplace_back(Say{lost + "; ending the job"});
  begin_ending(1, out);
  end_if_none_runs(out);
  return out;
}

Actions Supervisor::on_daemon_exit(const std::string& node_id, pid_t pid, const ExitStatus& status,
                                   int64_t now_ms) {
  if (phase_ >= Phase::kStoppingDaemons) return {};
  const std::string line =
      "the daemon of node " + node_id + " (pid " + std::to_string(pid) + ") " + status.to_string();
  if (phase_ == Phase::kStarting) return on_start_failed(1, line);
  if (phase_ != Phase::kRunning) {
    // The end of the daemon is the cause; whatever was blamed first (a lost stream, another node's
    // report) followed from it.
    if (wants_rank_code_) exit_code_ = 1;
    wants_rank_code_ = false;
    Actions out;
    out.emplace_back(Say{line});
    return out;
  }
  Actions out;
  if (elastic_ && go_on_without_daemon(node_id, line, now_ms, out)) return out;
  out.emplace_back(Say{line + "; ending the job"});
  begin_ending(1, out);
  end_if_none_runs(out);
  return out;
}

Actions Supervisor::on_signal(int signal) {
  Actions out;
  if (signal == SIGUSR1 || signal == SIGUSR2) {
    const size_t listening = running_ranks().size();
    out.emplace_back(Say{"got " + signal_name(signal) + "; " +
                         (listening == 0 ? "no rank runs that it could be passed on to"
                                         : "passing it on to " + count_of(listening, "rank"))});
    signal_running_ranks(signal, out);
    return out;
  }
  ++user_signal_count_;
  if (user_signal_count_ > 1) {
    out.emplace_back(Say{"got " + signal_name(signal) + " again; killing what is left"});
    if (phase_ < Phase::kDraining) {
      phase_ = Phase::kKilling;
      signal_running_ranks(SIGKILL, out);
    } else {
      out.emplace_back(CancelLinks{});
      out.emplace_back(SignalDaemons{SIGKILL});
    }
    return out;
  }
  if (phase_ >= Phase::kDraining) return out;
  if (phase_ <= Phase::kRunning) exit_code_ = 128 + signal;
  wants_rank_code_ = false;
  const size_t running_count = running_ranks().size();
  if (running_count == 0) {
    out.emplace_back(Say{"got " + signal_name(signal) + "; " +
                         (ranks_.empty() ? "nothing has been started" : "no rank runs")});
    close_links(out);
    return out;
  }
  out.emplace_back(Say{"got " + signal_name(signal) + "; passing it on to " +
                       count_of(running_count, "rank") + " (once more kills at once)"});
  phase_ = Phase::kInterrupted;
  signal_running_ranks(signal, out);
  out.emplace_back(StartTimer{grace_ms_});
  return out;
}

Actions Supervisor::on_timer() {
  Actions out;
  switch (phase_) {
    case Phase::kGrace:
      phase_ = Phase::kTerminating;
      signal_running_ranks(SIGTERM, out);
      out.emplace_back(StartTimer{grace_ms_});
      break;
    case Phase::kInterrupted:
    case Phase::kTerminating:
      phase_ = Phase::kKilling;
      signal_running_ranks(SIGKILL, out);
      break;
    case Phase::kClosingLinks: out.emplace_back(CancelLinks{}); break;
    case Phase::kStoppingDaemons:
      out.emplace_back(Say{"a private daemon has not stopped within " +
                           std::to_string(grace_ms_ / 1000) + " s (--grace); killing it"});
      out.emplace_back(SignalDaemons{SIGKILL});
      break;
    case Phase::kStarting:
    case Phase::kRunning:
    case Phase::kKilling:
    case Phase::kDraining:
    case Phase::kDone: break;
  }
  return out;
}

void Supervisor::summarise(Actions& out) const {
  size_t others_count = static_cast<size_t>(ended_alone_count_);
  for (const auto& [signal, count] : ended_by_signal_counts_) {
    others_count += static_cast<size_t>(count);
  }
  if (others_count == 0) return;
  std::string how;
  const auto add = [&](int count, const std::string& way) {
    how += (how.empty() ? "" : ", ") + std::to_string(count) + " " + way;
  };
  if (ended_alone_count_ > 0) add(ended_alone_count_, "by itself");
  for (const auto& [signal, count] : ended_by_signal_counts_) {
    add(count, "after " + signal_name(signal));
  }
  out.emplace_back(
      Say{count_of(others_count, culprit_ ? "other rank" : "rank") + " ended: " + how});
}

void Supervisor::on_ranks_gone(Actions& out) {
  if (phase_ > Phase::kRunning) summarise(out);
  phase_ = Phase::kDraining;
  out.emplace_back(DrainRanks{});
}

Actions Supervisor::on_drained() {
  Actions out;
  if (phase_ == Phase::kDraining) close_links(out);
  return out;
}

void Supervisor::close_links(Actions& out) {
  phase_ = Phase::kClosingLinks;
  out.emplace_back(StartTimer{kCloseLinksMs});
  out.emplace_back(CloseLinks{});
  if (user_signal_count_ > 1) out.emplace_back(CancelLinks{});
}

Actions Supervisor::on_links_closed() {
  Actions out;
  if (phase_ == Phase::kClosingLinks) stop_daemons(out);
  return out;
}

void Supervisor::stop_daemons(Actions& out) {
  phase_ = Phase::kStoppingDaemons;
  out.emplace_back(StartTimer{grace_ms_});
  out.emplace_back(SignalDaemons{user_signal_count_ > 1 ? SIGKILL : SIGTERM});
}

// A daemon that keeps reporting that it delivers is not killed, because other nodes wait for its
// data. Their timeouts end the wait.
Actions Supervisor::on_daemon_delivering(const std::string& node_id) {
  Actions out;
  if (phase_ != Phase::kStoppingDaemons || user_signal_count_ > 1) return out;
  if (delivering_.insert(node_id).second) {
    out.emplace_back(
        Say{"the daemon of node " + node_id +
            " still hands on data that other nodes wait for; waiting for it (" +
            (user_signal_count_ == 0 ? "two signals kill it)" : "a signal kills it)")});
  }
  out.emplace_back(StartTimer{grace_ms_});
  return out;
}

Actions Supervisor::on_daemons_gone() {
  if (phase_ != Phase::kStoppingDaemons) return {};
  phase_ = Phase::kDone;
  Actions out;
  out.emplace_back(Finish{exit_code_});
  return out;
}

}  // namespace rueda::agent
