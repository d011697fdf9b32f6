#include "daemon/service/members/membership.h"

#include "daemon/base/host_port.h"

namespace rueda::service {

Result<StaticMembership> StaticMembership::parse(const std::vector<std::string>& entries) {
  StaticMembership membership;
  for (const std::string& entry : entries) {
    const size_t equals = entry.find('=');
    if (equals == 0 || equals == std::string::npos ||
        !parse_dial_address(entry.substr(equals + 1)).is_ok()) {
      return Status(Code::kInvalidArgument,
                    "--nodes has \"" + entry + "\"; write node_id=host:port");
    }
    const std::string id = entry.substr(0, equals);
    if (!membership.addresses_.emplace(id, entry.substr(equals + 1)).second) {
      return Status(Code::kInvalidArgument, "--nodes names node " + id + " twice");
    }
  }
  return membership;
}

Result<std::string> StaticMembership::address_of(const std::string& node_id) const {
  const auto it = addresses_.find(node_id);
  if (it == addresses_.end()) {
    return Status(Code::kNotFound, "node " + node_id +
                                       " has no control address: neither the launcher gave one, "
                                       "nor is it in the daemon's --nodes");
  }
  return it->second;
}

std::vector<std::string> StaticMembership::node_ids() const {
  std::vector<std::string> ids;
  for (const auto& [id, address] : addresses_) ids.push_back(id);
  return ids;
}

}  // namespace rueda::service
