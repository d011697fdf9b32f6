#include "daemon/core/stall/stall.h"

#include <algorithm>
#include <tuple>

#include "daemon/core/stall/near_miss.h"
#include "daemon/core/stall/stall_text.h"

namespace rueda::core {
namespace {

// The number of names that are compared for one question. A training step has hundreds of tensors.
constexpr size_t kMaxNamesCompared = 4096;
// The number of cells that may be computed in each kBudgetMs, so that the names of one job take a
// few milliseconds a second of the loop.
constexpr TicksMs kBudgetMs = 1'000;
constexpr int64_t kMaxCellsCompared = 1 << 20;

constexpr TicksMs kLookMs = 1'000;

TicksMs since_of(const PendingTensor& tensor) {
  TicksMs since_ms = 0;
  bool is_first = true;
  for (const auto& submission : tensor.by_local_rank) {
    if (!submission) continue;
    since_ms = is_first ? submission->submitted_ms : std::min(since_ms, submission->submitted_ms);
    is_first = false;
  }
  return since_ms;
}

}  // namespace

StallInspector::StallInspector(uint32_t process_set, const Layout& layout, NodeIndex self,
                               const StallOptions& options, const SubmissionTable& submissions,
                               NodeActivity& activity)
    : process_set_(process_set),
      layout_(layout),
      self_(self),
      options_(options),
      submissions_(submissions),
      activity_(activity) {
  activity_.in_flight[process_set_] = &submissions_;
  for (const Rank rank : layout_.node(self_).ranks) of_local_.push_back(&activity_.ranks[rank]);
  reset();
}

void StallInspector::reset() {
  reported_.clear();
  notice_ = {};
  if (self_ == layout_.coordinator()) watch_.emplace(process_set_, layout_, options_);
}

// --- What happens here ---------------------------------------------------------------------------

void StallInspector::on_submitted(const LocalSubmission& submission) {
  activity_of(submission.rank).submitted = {submission.descriptor, process_set_,
                                            submission.submitted_ms};
  // The look is due a while after the first submission that follows a pause.
  if (next_look_ms_ < submission.submitted_ms) next_look_ms_ = submission.submitted_ms + kLookMs;
}

void StallInspector::on_completed(const LocalSubmission& submission, TicksMs now) {
  NodeActivity::OfRank& activity = activity_of(submission.rank);
  activity.completed = {submission.descriptor, process_set_, now};
  // On the fast path of a plan on_submitted() is not called for each submission.
  if (activity.submitted.at_ms < submission.submitted_ms) {
    activity.submitted = {submission.descriptor, process_set_, submission.submitted_ms};
  }
}

void StallInspector::on_left(LocalRank rank) { activity_of(rank).has_left = true; }

std::optional<TicksMs> StallInspector::wakes_at() const {
  const bool is_watching =
      submissions_.submissions() > 0 || !reported_.empty() || (watch_ && watch_->waits_for_time());
  if (options_.check_ms == 0 || !is_watching) return std::nullopt;
  return next_look_ms_;
}

void StallInspector::on_time(TicksMs now, StallOutput& output) {
  const std::optional<TicksMs> wanted = wakes_at();
  if (!wanted || now < *wanted) return;
  next_look_ms_ = now + kLookMs;
  report(now, output);
  if (!watch_) return;
  StallWatchOutput said;
  watch_->on_time(now, said);
  act_on(said, now, output);
}

std::set<StallInspector::Pending> StallInspector::overdue(TicksMs now) const {
  std::set<Pending> found;
  for (const auto& [name, tensor] : submissions_.pending()) {
    if (*name == kJoinName) continue;
    const TicksMs since_ms = since_of(*tensor);
    if (now - since_ms < options_.overdue_ms()) continue;
    found.insert({since_ms, *name});
    if (found.size() > kMaxStalls) found.erase(std::prev(found.end()));
  }
  return found;
}

void StallInspector::report(TicksMs now, StallOutput& output) {
  std::set<Pending> found = overdue(now);
  if (found == reported_) return;
  reported_ = std::move(found);
  StallReport report;
  for (const Pending& item : reported_) report.tensors.push_back({item.name, now - item.since_ms});
  if (!watch_) {
    output.sends.emplace_back(layout_.coordinator(), std::move(report));
    return;
  }
  StallWatchOutput said;
  watch_->on_report(self_, report, now, said);
  act_on(said, now, output);
}

// --- Messages ------------------------------------------------------------------------------------

Status StallInspector::misdirected(NodeIndex from, const char* what) const {
  return Status(Code::kInternal, "node " + layout_.node(from).node_id + " sent " + what +
                                     " to node " + layout_.node(self_).node_id +
                                     ", which has no use for it");
}

bool StallInspector::names_ranks_of_the_job(const StallNotice& notice) const {
  const auto is_there = [&](Rank rank) { return layout_.has_rank(rank); };
  return std::all_of(notice.stalls.begin(), notice.stalls.end(), [&](const Stall& stall) {
    return std::all_of(stall.submitted.begin(), stall.submitted.end(), is_there) &&
           std::all_of(stall.missing.begin(), stall.missing.end(), is_there);
  });
}

Status StallInspector::on_message(NodeIndex from, const StallMessage& message, TicksMs now,
                                  StallOutput& output) {
  StallWatchOutput said;
  if (const auto* report = std::get_if<StallReport>(&message)) {
    if (!watch_) return misdirected(from, "a report of stalls");
    watch_->on_report(from, *report, now, said);
  } else if (const auto* answered = std::get_if<StallAnswer>(&message)) {
    if (!watch_) return misdirected(from, "an answer on stalls");
    if (Status good = watch_->on_answer(from, *answered, now, said); !good.is_ok()) return good;
  } else if (watch_) {
    return misdirected(from, "a coordinator's word on stalls");
  } else if (const auto* query = std::get_if<StallQuery>(&message)) {
    output.sends.emplace_back(from, answer(*query, now));
  } else if (const auto* notice = std::get_if<StallNotice>(&message)) {
    if (!names_ranks_of_the_job(*notice)) {
      return Status(Code::kInternal,
                    "the coordinator on node " + layout_.node(from).node_id +
                        " sent word on stalls of ranks that the job does not have");
    }
    on_notice(*notice, now, output);
  }
  act_on(said, now, output);
  return Status::ok();
}

void StallInspector::act_on(const StallWatchOutput& said, TicksMs now, StallOutput& output) {
  if (said.notice) {
    send_to_others(*said.notice, output);
    on_notice(*said.notice, now, output);
  }
  if (!said.failure.is_ok()) output.failure = said.failure;
  if (!said.query) return;
  send_to_others(*said.query, output);
  StallWatchOutput next;
  const Status own = watch_->on_answer(self_, answer(*said.query, now), now, next);
  RUEDA_CHECK(own.is_ok());
  act_on(next, now, output);
}

void StallInspector::send_to_others(const StallMessage& message, StallOutput& output) const {
  for (const NodeIndex node : layout_.members()) {
    if (node != self_) output.sends.emplace_back(node, message);
  }
}

StallAnswer StallInspector::answer(const StallQuery& query, TicksMs now) {
  const std::vector<Rank>& ranks = layout_.node(self_).ranks;
  if (!budgeted_at_ms_ || now - *budgeted_at_ms_ >= kBudgetMs) {
    near_miss_budget_ = kMaxCellsCompared;
    budgeted_at_ms_ = now;
  }
  NamedTensors others;
  if (query.wants_near_misses && near_miss_budget_ > 0) {
    others = submissions_.pending(kMaxNamesCompared);
  }
  StallAnswer answer;
  answer.round = query.round;
  for (const std::string& name : query.names) {
    StallAnswer::Tensor& item = answer.tensors.emplace_back();
    for (size_t i = 0; i < ranks.size(); ++i) {
      const LocalRank local{static_cast<int32_t>(i)};
      // Nobody waits for a rank that has joined, so it counts as one that has submitted.
      if (submissions_.has(local, name) || submissions_.has_joined(local)) {
        item.submitted.push_back(ranks[i]);
      }
    }
    if (query.wants_near_misses && item.submitted.size() < ranks.size()) {
      item.near_misses = near_misses(name, others);
    }
  }
  for (size_t i = 0; i < ranks.size(); ++i) answer.ranks.push_back(activity_of(i, now));
  return answer;
}

// Only names in flight are looked at: a name that has completed is one that every rank knows.
std::vector<NearMiss> StallInspector::near_misses(const std::string& name,
                                                  const NamedTensors& others) {
  const std::vector<Rank>& ranks = layout_.node(self_).ranks;
  const PendingTensor* const stalled = submissions_.find(name);
  std::vector<std::tuple<Rank, int, NearMiss>> found;  // The nearest of a rank comes first.
  // The very name in another set is 0 away.
  for (const auto& [set, table] : activity_.in_flight) {
    const PendingTensor* const there = set == process_set_ ? nullptr : table->find(name);
    if (!there) continue;
    for (const LocalSubmission& submission : there->present()) {
      const Rank rank = table->ranks()[static_cast<size_t>(submission.rank.value)];
      const auto it = std::find(ranks.begin(), ranks.end(), rank);
      if (it == ranks.end()) continue;
      const auto local = static_cast<size_t>(it - ranks.begin());
      if (!stalled || !stalled->by_local_rank[local]) found.push_back({rank, 0, {rank, name, set}});
    }
  }
  for (const auto& [other, tensor] : others) {
    const std::optional<int> distance = near_miss_distance(name, *other, near_miss_budget_);
    if (!distance) continue;
    for (size_t i = 0; i < ranks.size(); ++i) {
      const bool is_missing = !stalled || !stalled->by_local_rank[i];
      if (!is_missing || !tensor->by_local_rank[i]) continue;
      found.push_back({ranks[i], *distance, {ranks[i], *other, process_set_}});
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<NearMiss> nearest;
  size_t of_rank = 0;
  for (auto& [rank, distance, miss] : found) {
    of_rank = !nearest.empty() && nearest.back().rank == rank ? of_rank + 1 : 1;
    if (of_rank > kMaxNearMissesOfRank || nearest.size() == kMaxNearMisses) continue;
    nearest.push_back(std::move(miss));
  }
  return nearest;
}

RankActivity StallInspector::activity_of(size_t local, TicksMs now) const {
  const NodeActivity::OfRank& from = *of_local_[local];
  RankActivity activity;
  activity.rank = layout_.node(self_).ranks[local];
  activity.has_left = from.has_left;
  if (from.submitted.tensor) {
    activity.last_submitted = from.submitted.tensor->name;
    activity.submitted_set = from.submitted.process_set;
    activity.submitted_ago_ms = now - from.submitted.at_ms;
  }
  if (from.completed.tensor) {
    activity.last_completed = from.completed.tensor->name;
    activity.completed_set = from.completed.process_set;
    activity.completed_ago_ms = now - from.completed.at_ms;
  }
  return activity;
}

void StallInspector::on_notice(const StallNotice& notice, TicksMs now, StallOutput& output) {
  std::set<std::string> stalled;
  for (const Stall& stall : notice.stalls) stalled.insert(stall.tensor);
  std::vector<Stall> ended = stalls(now).stalls;
  std::erase_if(ended, [&](const Stall& stall) { return stalled.contains(stall.tensor); });
  if (!ended.empty()) output.lines.push_back({false, describe_ended(process_set_, ended)});
  if (std::string news = describe_news(process_set_, layout_, notice); !news.empty()) {
    output.lines.push_back({true, std::move(news)});
  }
  notice_ = notice;
  noticed_ms_ = now;
}

StallNotice StallInspector::stalls(TicksMs now) const {
  StallNotice notice = notice_;
  const TicksMs passed_ms = now - noticed_ms_;
  for (Stall& stall : notice.stalls) stall.age_ms += passed_ms;
  for (RankActivity& activity : notice.ranks) {
    activity.submitted_ago_ms += passed_ms;
    activity.completed_ago_ms += passed_ms;
  }
  return notice;
}

}  // namespace rueda::core
