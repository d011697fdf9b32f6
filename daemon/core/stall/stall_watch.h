// The coordinator's part of the stall inspector (stall.h). It gathers what nodes report, asks all
// nodes who has submitted it, and puts the answers together.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/core/messages/stall_messages.h"
#include "daemon/core/model/layout.h"

namespace rueda::core {

struct StallOptions {
  TicksMs check_ms = 0;  // A tensor that is older is stalled; 0: nothing is looked at.
  // A stall that is older ends the job; 0: never. Only the coordinator's value counts.
  TicksMs shutdown_ms = 0;

  // Returns the age at which a tensor is first looked at.
  TicksMs overdue_ms() const {
    return shutdown_ms > 0 && shutdown_ms < check_ms ? shutdown_ms : check_ms;
  }
};

struct StallWatchOutput {
  std::optional<StallQuery> query;    // For all nodes, the coordinator's too.
  std::optional<StallNotice> notice;  // For all nodes, the coordinator's too.
  Status failure;                     // If it is not ok, the job has to end.
};

class StallWatch {
 public:
  // `layout` is the process set's, and must outlive the watch.
  StallWatch(uint32_t process_set, const Layout& layout, const StallOptions& options)
      : process_set_(process_set), layout_(layout), options_(options) {}

  // Takes in what has been in flight for too long on the node.
  void on_report(NodeIndex from, const StallReport& report, TicksMs now, StallWatchOutput& output);
  // Takes an answer to the last query. An error means that the peer broke the protocol.
  Status on_answer(NodeIndex from, const StallAnswer& answer, TicksMs now,
                   StallWatchOutput& output);
  void on_time(TicksMs now, StallWatchOutput& output);
  bool waits_for_time() const { return !watched_.empty(); }

 private:
  // A tensor that some node has reported.
  struct PollSource {
    std::set<NodeIndex> reporters;
    TicksMs since_ms = 0;
    TicksMs next_news_ms = 0;  // The age at which it is news again.
  };
  // One question to all nodes, and what they have answered so far.
  struct Round {
    uint64_t number = 0;
    std::vector<std::string> names;
    std::set<NodeIndex> unanswered;
    // The answers of all nodes together, in the order of `names`.
    std::vector<StallAnswer::Tensor> tensors;
    std::map<Rank, RankActivity> ranks;
  };

  // Drops from the last notice what nobody waits for any more.
  void drop_ended(StallWatchOutput& output);
  bool shutdown_is_due(TicksMs now) const;
  std::vector<std::string> oldest() const;
  // Asks all nodes about the oldest of watched_.
  void begin_round(TicksMs now, StallWatchOutput& output);
  Round ask(std::vector<std::string> names, bool wants_near_misses, StallWatchOutput& output);
  Status check_answer(NodeIndex from, const StallAnswer& answer) const;
  // Returns names that may be near misses, about which all nodes have to be asked, too.
  std::vector<std::string> near_names() const;
  // All nodes have answered: makes the notice, or fails the job if it is time.
  void conclude(TicksMs now, StallWatchOutput& output);
  Stall stall_of(size_t index, TicksMs now);
  // Returns whether the candidate is in another set, or nobody who has submitted the tensor has
  // submitted that name, too.
  bool is_near_miss(const NearMiss& candidate, const std::vector<Rank>& submitted) const;

  const uint32_t process_set_;
  const Layout& layout_;
  const StallOptions options_;
  std::map<NodeIndex, std::set<std::string>> reports_;
  std::map<std::string, PollSource> watched_;
  std::optional<Round> round_;       // The round about what is watched.
  std::optional<Round> near_round_;  // The round after it, about names that may be near misses.
  uint64_t last_round_ = 0;
  TicksMs next_round_ms_ = 0;
  bool has_unasked_ = false;  // A tensor was reported while a round was on.
  StallNotice notice_;        // The last notice.
};

}  // namespace rueda::core
