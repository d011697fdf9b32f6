#include "daemon/service/servers/local_caller.h"

#include <algorithm>
#include <charconv>

#include <unistd.h>

namespace rueda::service {

bool LocalCallers::is_operator(const session::Credentials& peer,
                               const std::vector<gid_t>& groups) const {
  if (peer.principal.is_named()) return false;  // A pod's root is no operator of its node.
  if (peer.uid == 0 || peer.uid == ::geteuid()) return true;
  if (!admin_group_) return false;
  if (peer.gid == *admin_group_) return true;
  return std::find(groups.begin(), groups.end(), *admin_group_) != groups.end();
}

void LocalCallers::note(int fd, const session::Credentials& peer,
                        const std::vector<gid_t>& groups) {
  using Kind = security::Caller::Kind;
  const security::Caller caller{
      is_operator(peer, groups) ? Kind::kOperator : Kind::kUser, peer.principal, {}};
  const MutexLock lock(mutex_);
  by_fd_[fd] = caller;
}

security::Caller LocalCallers::find(const security::Connection& connection) const {
  const std::string& peer = connection.peer;
  int fd = -1;
  if (!peer.starts_with("fd:")) return {};
  std::from_chars(peer.data() + 3, peer.data() + peer.size(), fd);
  const MutexLock lock(mutex_);
  const auto it = by_fd_.find(fd);
  return it == by_fd_.end() ? security::Caller{} : it->second;
}

}  // namespace rueda::service
