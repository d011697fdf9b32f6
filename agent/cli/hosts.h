// horovodrun's lists of hosts. Pure functions.
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

// "a:4,b:2"; a host without a number takes one rank.
Result<std::vector<HostRanks>> parse_hosts(const std::string& text);

// Fills the hosts in their order with `ranks`, or with as many as they take; leaves out those that
// get none.
Result<std::vector<HostRanks>> deal_to_hosts(const std::vector<HostRanks>& hosts,
                                             std::optional<int> ranks);

}  // namespace rueda::agent
