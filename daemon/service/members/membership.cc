#include "daemon/service/members/membership.h"

#include <algorithm>

#include "daemon/base/host_port.h"
#include "daemon/base/one_line.h"

namespace rueda::service {

Result<StaticMembership> StaticMembership::parse(const std::vector<std::string>& entries,
                                                 bool is_binding) {
  StaticMembership membership;
  membership.is_binding_ = is_binding;
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
  if (it == addresses_.end() && is_binding_) {
    return Status(Code::kPermission, "node " + one_line(node_id) +
                                         " is not in the daemon's --nodes, and with --dial nodes "
                                         "it knows no other: add it there");
  }
  if (it == addresses_.end()) {
    return Status(Code::kNotFound, "node " + node_id +
                                       " has no control address: neither the launcher gave one, "
                                       "nor is it in the daemon's --nodes");
  }
  return it->second;
}

Status StaticMembership::check_dial(const std::string& address) const {
  const bool is_known = std::any_of(addresses_.begin(), addresses_.end(),
                                    [&](const auto& node) { return node.second == address; });
  if (!is_binding_ || is_known) return Status::ok();
  return Status(Code::kPermission, "the address " + one_line(address) +
                                       " is not in the daemon's --nodes, and with --dial nodes it "
                                       "connects to no other: write it there as others tell it");
}

std::vector<std::string> StaticMembership::node_ids() const {
  std::vector<std::string> ids;
  for (const auto& [id, address] : addresses_) ids.push_back(id);
  return ids;
}

}  // namespace rueda::service
