#include "agent/cli/hosts.h"

#include <algorithm>
#include <sstream>

#include "agent/base/text.h"
#include "daemon/base/limits.h"

namespace rueda::agent {

Result<std::vector<HostRanks>> parse_hosts(const std::string& text) {
  std::vector<HostRanks> hosts;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    const bool has_count = word.find(':') != std::string::npos;
    const auto parsed = parse_host_port(has_count ? word : word + ":1");
    if (!parsed || parsed->host.empty() || parsed->port < 1 ||
        parsed->port > limits::kMaxLocalRanks) {
      return Status(Code::kInvalidArgument, "-H has \"" + word + "\"; write HOST:RANKS, 1 to " +
                                                std::to_string(limits::kMaxLocalRanks) +
                                                " ranks each, by commas");
    }
    hosts.push_back({parsed->host, parsed->port});
  }
  if (hosts.empty()) return Status(Code::kInvalidArgument, "-H names no host");
  return hosts;
}

Result<std::vector<HostRanks>> deal_to_hosts(const std::vector<HostRanks>& hosts,
                                             std::optional<int> ranks) {
  std::vector<HostRanks> out;
  int room = 0;
  for (const HostRanks& host : hosts) {
    const int count = ranks ? std::clamp(*ranks - room, 0, host.ranks) : host.ranks;
    room += host.ranks;
    if (count > 0) out.push_back({host.host, count});
  }
  if (ranks && *ranks > room) {
    return Status(Code::kInvalidArgument, "-np " + std::to_string(*ranks) + " is more than the " +
                                              std::to_string(room) + " ranks that -H has room for");
  }
  return out;
}

}  // namespace rueda::agent
