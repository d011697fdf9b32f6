// Tells which user of this machine is behind a connection of the unix socket that gRPC has.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/mutex.h"
#include "daemon/security/policy.h"
#include "daemon/session/session.h"

namespace rueda::service {

// Thread-safe.
class LocalCallers final : public security::Callers {
 public:
  // Members of the group are operators, beside root and the user that the daemon runs as, but for
  // who comes by a named socket.
  explicit LocalCallers(std::optional<gid_t> admin_group) : admin_group_(admin_group) {}

  // Must be called before gRPC is given the descriptor. `groups` are those that the process has
  // beside its first one.
  void note(int fd, const session::Credentials& peer, const std::vector<gid_t>& groups);
  // The connection's name is "fd:N".
  security::Caller find(const security::Connection& connection) const override;

 private:
  bool is_operator(const session::Credentials& peer, const std::vector<gid_t>& groups) const;

  const std::optional<gid_t> admin_group_;
  mutable Mutex mutex_;
  // A reused descriptor replaces the entry.
  std::map<int, security::Caller> by_fd_ RUEDA_GUARDED_BY(mutex_);
};

}  // namespace rueda::service
