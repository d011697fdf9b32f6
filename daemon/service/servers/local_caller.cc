#include "daemon/service/servers/local_caller.h"

#include <algorithm>

#include <unistd.h>

namespace rueda::service {
namespace {

bool is_operator(const session::Credentials& peer, const std::vector<gid_t>& groups,
                 std::optional<gid_t> admin_group) {
  if (peer.principal.is_named()) return false;  // A pod's root is no operator of its node.
  if (peer.uid == 0 || peer.uid == ::geteuid()) return true;
  if (!admin_group) return false;
  if (peer.gid == *admin_group) return true;
  return std::find(groups.begin(), groups.end(), *admin_group) != groups.end();
}

}  // namespace

security::Caller local_caller(const session::Credentials& peer, const std::vector<gid_t>& groups,
                              std::optional<gid_t> admin_group) {
  using Kind = security::Caller::Kind;
  const bool is_one = is_operator(peer, groups, admin_group);
  return {is_one ? Kind::kOperator : Kind::kUser, peer.principal, {}};
}

}  // namespace rueda::service
