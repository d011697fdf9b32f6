#include "daemon/engine/trace/stall_snapshot.h"

#include <algorithm>
#include <utility>

#include "daemon/core/stall/stall_text.h"

namespace rueda::engine {

std::vector<StallSnapshot> snapshot_stalls(const JobId& job, uint32_t process_set,
                                           const core::Layout& layout,
                                           const core::StallNotice& notice) {
  std::vector<StallSnapshot> snapshots;
  for (const core::Stall& stall : notice.stalls) {
    StallSnapshot snapshot{job,
                           process_set,
                           stall,
                           {},
                           core::describe_stall(process_set, layout, stall, notice.ranks)};
    for (Rank rank : stall.missing) {
      StallSnapshot::MissingRank missing;
      missing.node_id = layout.node(layout.node_of(rank)).node_id;
      missing.activity.rank = rank;
      const auto known =
          std::find_if(notice.ranks.begin(), notice.ranks.end(),
                       [&](const core::RankActivity& one) { return one.rank == rank; });
      if (known != notice.ranks.end()) missing.activity = *known;
      for (const core::NearMiss& miss : stall.near_misses) {
        if (miss.rank != rank) continue;
        if (miss.process_set == process_set) {
          missing.similar_names.push_back(miss.name);
        } else {
          missing.other_sets.push_back(miss.process_set);
        }
      }
      snapshot.missing.push_back(std::move(missing));
    }
    snapshots.push_back(std::move(snapshot));
  }
  return snapshots;
}

}  // namespace rueda::engine
