// Lists of hosts in horovodrun's form. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/base/status.h"

namespace rueda::agent {

struct HostRanks {
  std::string host;
  int ranks = 0;

  bool operator==(const HostRanks&) const = default;
};

// Parses "a:4,b:2"; a host without a number takes one rank.
Result<std::vector<HostRanks>> parse_hosts(const std::string& text);

// Deals `ranks` to the hosts in their order, or as many as they take if `ranks` is nullopt; leaves
// out hosts that get none.
Result<std::vector<HostRanks>> deal_to_hosts(const std::vector<HostRanks>& hosts,
                                             std::optional<int> ranks);

}  // namespace rueda::agent
