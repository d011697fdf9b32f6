#include "daemon/core/stall/stall_text.h"

#include <algorithm>

namespace rueda::core {
namespace {

// A log line is for people, so it names only so many tensors and ranks.
constexpr size_t kMaxTensorsInLine = 4;
constexpr size_t kMaxRanksInSentence = 4;

std::string quoted(const std::string& name) { return '"' + name + '"'; }

std::string seconds(TicksMs ms) { return std::to_string(ms / 1000) + " s"; }

std::string and_more(size_t more) {
  return more == 0 ? "" : " and " + std::to_string(more) + " more";
}

std::string name_of(uint32_t process_set) {
  return process_set == 0 ? "the set of all ranks" : "process set " + std::to_string(process_set);
}

// Names the tensor, its process set, only where that is not the one that the text is about, and its
// age.
std::string describe_act(const std::string& tensor, uint32_t in, uint32_t process_set,
                         TicksMs ago_ms) {
  return quoted(tensor) + (in == process_set ? "" : " in " + name_of(in)) + " " + seconds(ago_ms) +
         " ago";
}

std::string describe_activity(uint32_t process_set, const Stall& stall,
                              const RankActivity& activity) {
  if (activity.has_left) return "it has left the job";
  if (activity.last_submitted.empty()) return "it has not submitted any tensor";
  const std::string text =
      "last submitted " + describe_act(activity.last_submitted, activity.submitted_set, process_set,
                                       activity.submitted_ago_ms);
  if (activity.last_completed.empty()) return text + ", has completed none";
  // The rank's part of the stalled operation may have ended while what it passes on is still on its
  // way.
  const bool may_be_this_one = activity.last_completed == stall.tensor &&
                               activity.completed_set == process_set &&
                               activity.completed_ago_ms < stall.age_ms;
  return text + ", last completed " +
         describe_act(activity.last_completed, activity.completed_set, process_set,
                      activity.completed_ago_ms) +
         (may_be_this_one ? ", perhaps this one: then its data is still on the way" : "");
}

std::string describe_near_misses(uint32_t process_set, const Stall& stall, Rank rank) {
  std::string similar;
  std::string sets;
  for (const NearMiss& miss : stall.near_misses) {
    if (miss.rank != rank) continue;
    if (miss.process_set == process_set) {
      similar += (similar.empty() ? "" : ", ") + quoted(miss.name);
    } else {
      sets += (sets.empty() ? "" : " and ") + name_of(miss.process_set);
    }
  }
  return (sets.empty() ? "" : "; has this name in flight in " + sets) +
         (similar.empty() ? "" : "; has the similar name " + similar + " in flight");
}

std::string describe_missing(uint32_t process_set, const Layout& layout, const Stall& stall,
                             Rank rank, const std::vector<RankActivity>& activity) {
  const auto it =
      std::lower_bound(activity.begin(), activity.end(), rank,
                       [](const RankActivity& one, Rank other) { return one.rank < other; });
  const bool is_known = it != activity.end() && it->rank == rank;
  return "rank " + std::to_string(rank.value) + " on node " +
         layout.node(layout.node_of(rank)).node_id +
         (is_known ? " (" + describe_activity(process_set, stall, *it) +
                         describe_near_misses(process_set, stall, rank) + ")"
                   : "");
}

}  // namespace

std::string describe_ranks(const std::vector<Rank>& ranks) {
  std::string text;
  for (size_t begin = 0, end = 0; begin < ranks.size(); begin = end) {
    end = begin + 1;
    while (end < ranks.size() && ranks[end].value == ranks[end - 1].value + 1) ++end;
    text += (text.empty() ? "" : ", ") + std::to_string(ranks[begin].value);
    if (end - begin > 1) text += "-" + std::to_string(ranks[end - 1].value);
  }
  return text;
}

std::string describe_stall(uint32_t process_set, const Layout& layout, const Stall& stall,
                           const std::vector<RankActivity>& activity) {
  const bool is_one = stall.submitted.size() == 1 && stall.more_submitted == 0;
  std::string text = "tensor " + quoted(stall.tensor) +
                     (process_set == 0 ? "" : " of " + name_of(process_set)) + " was submitted " +
                     seconds(stall.age_ms) + " ago by rank" + (is_one ? " " : "s ") +
                     describe_ranks(stall.submitted) +
                     and_more(static_cast<size_t>(stall.more_submitted)) + ", and not by ";
  const size_t named = std::min(stall.missing.size(), kMaxRanksInSentence);
  for (size_t i = 0; i < named; ++i) {
    text += (i == 0 ? "" : ", ") +
            describe_missing(process_set, layout, stall, stall.missing[i], activity);
  }
  return text + and_more(stall.missing.size() - named + static_cast<size_t>(stall.more_missing));
}

std::string describe_news(uint32_t process_set, const Layout& layout, const StallNotice& notice) {
  std::string text;
  size_t count = 0;
  for (const Stall& stall : notice.stalls) {
    if (!stall.is_news || ++count > kMaxTensorsInLine) continue;
    text += (text.empty() ? "" : "; ") + describe_stall(process_set, layout, stall, notice.ranks);
  }
  if (count > kMaxTensorsInLine) {
    text += "; and so with " + std::to_string(count - kMaxTensorsInLine) +
            " more tensors, which ruedactl stalls lists";
  }
  return text;
}

std::string describe_ended(uint32_t process_set, const std::vector<Stall>& stalls) {
  const size_t named = std::min(stalls.size(), kMaxTensorsInLine);
  std::string names;
  TicksMs longest_ms = 0;
  for (size_t i = 0; i < stalls.size(); ++i) {
    if (i < named) names += (i == 0 ? "" : ", ") + quoted(stalls[i].tensor);
    longest_ms = std::max(longest_ms, stalls[i].age_ms);
  }
  const bool is_one = stalls.size() == 1;
  return std::string(is_one ? "tensor " : "tensors ") + names + and_more(stalls.size() - named) +
         (process_set == 0 ? "" : " of " + name_of(process_set)) + (is_one ? " waits" : " wait") +
         " no longer, after " + seconds(longest_ms);
}

}  // namespace rueda::core
