// The coordinator's part of the stall inspector (stall.h): gathers what nodes report, asks all of
// them who has submitted it, and puts the answers together.
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
  TicksMs check_ms = 0;  // a tensor that is older is stalled; 0: nothing is looked at
  TicksMs shutdown_ms =
      0;  // a stall that is older ends the job; 0: never. The coordinator's counts

  // When a tensor is first looked at.
  TicksMs overdue_ms() const {
    return shutdown_ms > 0 && shutdown_ms < check_ms ? shutdown_ms : check_ms;
  }
};

struct StallWatchOutput {
  std::optional<StallQuery> query;    // for all nodes, the coordinator's too
  std::optional<StallNotice> notice;  // for all nodes, the coordinator's too
  Status failure;                     // not ok: the job is to end
};

class StallWatch {
 public:
  // The layout, the process set's, outlives the watch.
  StallWatch(uint32_t process_set, const Layout& layout, const StallOptions& options)
      : process_set_(process_set), layout_(layout), options_(options) {}

  void on_report(NodeIndex from, const StallReport& report, TicksMs now, StallWatchOutput& output);
  // An error means that the peer broke the protocol.
  Status on_answer(NodeIndex from, const StallAnswer& answer, TicksMs now,
                   StallWatchOutput& output);
  void on_time(TicksMs now, StallWatchOutput& output);
  bool waits_for_time() const { return !watched_.empty(); }

 private:
  // A tensor that some node has reported.
  struct PollSource {
    std::set<NodeIndex> reporters;
    TicksMs since_ms = 0;
    TicksMs next_news_ms = 0;  // by age
  };
  // One question to all nodes, and what they have answered so far.
  struct Round {
    uint64_t number = 0;
    std::vector<std::string> names;
    std::set<NodeIndex> unanswered;
    std::vector<StallAnswer::Tensor> tensors;  // of all nodes together, in the order of names
    std::map<Rank, RankActivity> ranks;
  };

  // Drops what nobody waits for any more from the last notice.
  void drop_ended(StallWatchOutput& output);
  bool shutdown_is_due(TicksMs now) const;
  std::vector<std::string> oldest() const;
  void begin_round(TicksMs now, StallWatchOutput& output);
  Round ask(std::vector<std::string> names, bool wants_near_misses, StallWatchOutput& output);
  Status check_answer(NodeIndex from, const StallAnswer& answer) const;
  std::vector<std::string> near_names() const;
  void conclude(TicksMs now, StallWatchOutput& output);
  Stall stall_of(size_t index, TicksMs now);
  // Whether it is in another set, or nobody who has submitted the tensor has submitted that name,
  // too.
  bool is_near_miss(const NearMiss& candidate, const std::vector<Rank>& submitted) const;

  const uint32_t process_set_;
  const Layout& layout_;
  const StallOptions options_;
  std::map<NodeIndex, std::set<std::string>> reports_;
  std::map<std::string, PollSource> watched_;
  std::optional<Round> round_;       // about what is watched
  std::optional<Round> near_round_;  // then about names that may be near misses
  uint64_t last_round_ = 0;
  TicksMs next_round_ms_ = 0;
  bool has_unasked_ = false;  // a tensor was reported while a round was on
  StallNotice notice_;        // the last
};

}  // namespace rueda::core
