#include "daemon/core/job/local_ranks.h"

#include <utility>

namespace rueda::core {

std::vector<Rank> LocalRanks::attached() const {
  std::vector<Rank> ranks;
  for (const LocalRank rank : attached_) ranks.push_back(global(rank));
  return ranks;
}

std::vector<Rank> LocalRanks::missing() const {
  std::vector<Rank> ranks;
  for (size_t i = 0; i < all().size(); ++i) {
    if (!attached_.contains(LocalRank{static_cast<int32_t>(i)})) ranks.push_back(all()[i]);
  }
  return ranks;
}

void LocalRanks::begin_next_epoch() { attached_ = std::exchange(early_, {}); }

}  // namespace rueda::core
