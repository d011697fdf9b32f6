#include "daemon/core/job/goodbyes.h"

#include <algorithm>

namespace rueda::core {

bool Goodbyes::concerns(const Collectives& set) const {
  return std::any_of(pending_.begin(), pending_.end(),
                     [&](const auto& goodbye) { return set.layout().has_rank(goodbye.second); });
}

std::vector<Rank> Goodbyes::take_pending() {
  std::vector<Rank> ranks;
  for (const auto& [node, rank] : pending_) ranks.push_back(rank);
  pending_.clear();
  return ranks;
}

bool Goodbyes::has_left(NodeIndex node) const {
  const std::vector<Rank>& ranks = layout_.node(node).ranks;
  return std::all_of(ranks.begin(), ranks.end(), [&](Rank rank) {
    return left().contains(rank) ||
           std::find(pending_.begin(), pending_.end(), std::pair(node, rank)) != pending_.end();
  });
}

bool Goodbyes::has_everybody_left() const {
  const std::vector<Rank> ranks = layout_.ranks();
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](Rank rank) { return left().contains(rank) || sealed_.contains(rank); });
}

void Goodbyes::forget() {
  pending_.clear();
  sealed_.clear();
}

}  // namespace rueda::core
