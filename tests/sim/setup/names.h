// Says how checkers, faults and scenarios name things.
#pragma once

#include <string>

#include "daemon/base/ids.h"
#include "daemon/core/model/track.h"

namespace rueda::sim {

inline std::string name_of(int node) { return "n" + std::to_string(node); }
inline std::string name_of(NodeIndex node) { return "n" + std::to_string(node.value); }
inline std::string name_of(Rank rank) { return "rank " + std::to_string(rank.value); }
inline std::string name_of(Seq seq) {
  const bool is_decreed = core::track_of(seq) == core::Track::kDecreed;
  return (is_decreed ? "operation b" : "operation ") + std::to_string(core::number_of(seq));
}

}  // namespace rueda::sim
