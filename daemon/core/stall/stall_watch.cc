#include "daemon/core/stall/stall_watch.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "daemon/core/stall/stall_text.h"

namespace rueda::core {

void StallWatch::on_report(NodeIndex from, const StallReport& report, TicksMs now,
                           StallWatchOutput& output) {
  std::set<std::string> names;
  for (const StallReport::Tensor& tensor : report.tensors) {
    names.insert(tensor.name);
    const auto [it, is_new] = watched_.try_emplace(tensor.name);
    PollSource& watched = it->second;
    const TicksMs since_ms = now - tensor.age_ms;
    watched.since_ms = is_new ? since_ms : std::min(watched.since_ms, since_ms);
    watched.reporters.insert(from);
    has_unasked_ |= is_new;
  }
  for (const std::string& name : std::exchange(reports_[from], names)) {
    if (names.contains(name)) continue;
    const auto it = watched_.find(name);
    it->second.reporters.erase(from);
    if (it->second.reporters.empty()) watched_.erase(it);
  }
  drop_ended(output);
  if (has_unasked_ && !round_) begin_round(now, output);
}

void StallWatch::drop_ended(StallWatchOutput& output) {
  const size_t dropped = std::erase_if(
      notice_.stalls, [&](const Stall& stall) { return !watched_.contains(stall.tensor); });
  if (dropped == 0) return;
  for (Stall& stall : notice_.stalls) stall.is_news = false;
  output.notice = notice_;
}

void StallWatch::on_time(TicksMs now, StallWatchOutput& output) {
  if (watched_.empty()) return;
  // A round that does not end waits for a node that is about to be lost, so the next one may begin.
  if (now >= next_round_ms_ || (!round_ && shutdown_is_due(now))) begin_round(now, output);
}

bool StallWatch::shutdown_is_due(TicksMs now) const {
  return options_.shutdown_ms > 0 &&
         std::any_of(notice_.stalls.begin(), notice_.stalls.end(), [&](const Stall& stall) {
           return now - watched_.at(stall.tensor).since_ms >= options_.shutdown_ms;
         });
}

// --- Rounds --------------------------------------------------------------------------------------

std::vector<std::string> StallWatch::oldest() const {
  std::vector<std::pair<TicksMs, std::string>> by_age;
  for (const auto& [name, watched] : watched_) by_age.emplace_back(watched.since_ms, name);
  std::sort(by_age.begin(), by_age.end());
  if (by_age.size() > kMaxStalls) by_age.resize(kMaxStalls);
  std::vector<std::string> names;
  for (auto& [since_ms, name] : by_age) names.push_back(std::move(name));
  return names;
}

void StallWatch::begin_round(TicksMs now, StallWatchOutput& output) {
  has_unasked_ = false;
  next_round_ms_ = now + options_.overdue_ms();
  near_round_.reset();
  round_ = ask(oldest(), true, output);
}

StallWatch::Round StallWatch::ask(std::vector<std::string> names, bool wants_near_misses,
                                  StallWatchOutput& output) {
  Round round;
  round.number = ++last_round_;
  round.names = std::move(names);
  round.tensors.resize(round.names.size());
  round.unanswered.insert(layout_.members().begin(), layout_.members().end());
  output.query = StallQuery{round.number, wants_near_misses, round.names};
  return round;
}

Status StallWatch::check_answer(NodeIndex from, const StallAnswer& answer) const {
  const auto is_there = [&](Rank rank) {
    return layout_.has_rank(rank) && layout_.node_of(rank) == from;
  };
  bool is_good = true;
  for (const RankActivity& activity : answer.ranks) is_good &= is_there(activity.rank);
  for (const StallAnswer::Tensor& tensor : answer.tensors) {
    is_good &= std::all_of(tensor.submitted.begin(), tensor.submitted.end(), is_there);
    for (const NearMiss& miss : tensor.near_misses) is_good &= is_there(miss.rank);
  }
  if (is_good) return Status::ok();
  return Status(Code::kInternal, "node " + layout_.node(from).node_id +
                                     " spoke for ranks of another node in its answer on stalls");
}

Status StallWatch::on_answer(NodeIndex from, const StallAnswer& answer, TicksMs now,
                             StallWatchOutput& output) {
  if (Status good = check_answer(from, answer); !good.is_ok()) return good;
  std::optional<Round>& round = near_round_ ? near_round_ : round_;
  // The answer is to an older query.
  if (!round || answer.round != round->number) return Status::ok();
  if (answer.tensors.size() != round->names.size()) {
    return Status(Code::kInternal, "node " + layout_.node(from).node_id + " was asked about " +
                                       std::to_string(round->names.size()) +
                                       " stalled tensors and answered on " +
                                       std::to_string(answer.tensors.size()));
  }
  if (round->unanswered.erase(from) == 0) return Status::ok();
  for (size_t i = 0; i < answer.tensors.size(); ++i) {
    const StallAnswer::Tensor& part = answer.tensors[i];
    StallAnswer::Tensor& whole = round->tensors[i];
    std::copy(part.submitted.begin(), part.submitted.end(), std::back_inserter(whole.submitted));
    std::copy(part.near_misses.begin(), part.near_misses.end(),
              std::back_inserter(whole.near_misses));
  }
  for (const RankActivity& activity : answer.ranks) round->ranks[activity.rank] = activity;
  if (!round->unanswered.empty()) return Status::ok();
  for (StallAnswer::Tensor& tensor : round->tensors) {
    std::sort(tensor.submitted.begin(), tensor.submitted.end());
  }
  if (!near_round_) {
    if (std::vector<std::string> names = near_names(); !names.empty()) {
      near_round_ = ask(std::move(names), false, output);
      return Status::ok();
    }
  }
  conclude(now, output);
  return Status::ok();
}

std::vector<std::string> StallWatch::near_names() const {
  std::set<std::string> names;
  for (const StallAnswer::Tensor& tensor : round_->tensors) {
    for (const NearMiss& miss : tensor.near_misses) {
      const bool is_in_doubt = miss.process_set == process_set_;
      if (is_in_doubt && names.size() < kMaxStalls) names.insert(miss.name);
    }
  }
  return {names.begin(), names.end()};
}

// --- What the answers say ------------------------------------------------------------------------

void StallWatch::conclude(TicksMs now, StallWatchOutput& output) {
  StallNotice notice;
  std::set<Rank> missing;
  for (size_t i = 0; i < round_->names.size(); ++i) {
    // A tensor that has ended meanwhile is no stall, nor is one that every rank has submitted: it
    // waits for the network.
    const size_t submitted = round_->tensors[i].submitted.size();
    const bool is_stalled =
        submitted > 0 && submitted < static_cast<size_t>(layout_.member_ranks());
    if (!is_stalled || !watched_.contains(round_->names[i])) continue;
    notice.stalls.push_back(stall_of(i, now));
    missing.insert(notice.stalls.back().missing.begin(), notice.stalls.back().missing.end());
  }
  for (Rank rank : missing) {
    notice.ranks.push_back(std::move(round_->ranks[rank]));
    notice.ranks.back().rank = rank;
  }
  round_.reset();
  near_round_.reset();
  const bool was_nothing = notice_.stalls.empty() && notice.stalls.empty();
  notice_ = std::move(notice);
  for (const Stall& stall : notice_.stalls) {
    if (options_.shutdown_ms == 0 || stall.age_ms < options_.shutdown_ms) continue;
    const Rank first = stall.missing.front();
    output.failure =
        Status(Code::kShutDown,
               describe_stall(process_set_, layout_, stall, notice_.ranks) +
                   "; no stall may be longer than " + std::to_string(options_.shutdown_ms / 1000) +
                   " s (RUEDA_STALL_SHUTDOWN_TIME_SECONDS)",
               Origin{layout_.node(layout_.node_of(first)).node_id, first});
    return;
  }
  if (!was_nothing) output.notice = notice_;
  if (has_unasked_) begin_round(now, output);
}

Stall StallWatch::stall_of(size_t index, TicksMs now) {
  StallAnswer::Tensor& answered = round_->tensors[index];
  Stall stall;
  stall.tensor = round_->names[index];
  PollSource& watched = watched_.at(stall.tensor);
  stall.age_ms = now - watched.since_ms;
  stall.is_news = stall.age_ms >= watched.next_news_ms;
  if (stall.is_news) watched.next_news_ms = 2 * stall.age_ms;
  for (const Rank rank : layout_.ranks()) {
    const bool is_submitted =
        std::binary_search(answered.submitted.begin(), answered.submitted.end(), rank);
    std::vector<Rank>& named = is_submitted ? stall.submitted : stall.missing;
    int& more = is_submitted ? stall.more_submitted : stall.more_missing;
    if (named.size() < kMaxStallRanks) {
      named.push_back(rank);
    } else {
      ++more;
    }
  }
  for (NearMiss& miss : answered.near_misses) {
    const bool is_named = std::binary_search(stall.missing.begin(), stall.missing.end(), miss.rank);
    if (stall.near_misses.size() < kMaxNearMisses && is_named &&
        is_near_miss(miss, answered.submitted)) {
      stall.near_misses.push_back(std::move(miss));
    }
  }
  return stall;
}

bool StallWatch::is_near_miss(const NearMiss& candidate, const std::vector<Rank>& submitted) const {
  if (candidate.process_set != process_set_) return true;
  if (!near_round_) return false;
  const std::vector<std::string>& names = near_round_->names;
  const auto it = std::lower_bound(names.begin(), names.end(), candidate.name);
  if (it == names.end() || *it != candidate.name) return false;
  const std::vector<Rank>& of_it =
      near_round_->tensors[static_cast<size_t>(it - names.begin())].submitted;
  std::vector<Rank> both;
  std::set_intersection(of_it.begin(), of_it.end(), submitted.begin(), submitted.end(),
                        std::back_inserter(both));
  return both.empty() && std::binary_search(of_it.begin(), of_it.end(), candidate.rank);
}

}  // namespace rueda::core
