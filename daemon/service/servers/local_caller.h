// Tells who is behind a connection of the unix socket.
#pragma once

#include <optional>
#include <vector>

#include <sys/types.h>

#include "daemon/security/policy.h"
#include "daemon/session/session.h"

namespace rueda::service {

// Members of the group are operators, beside root and the user that the daemon runs as, but for who
// comes by a named socket. `groups` are those that the process has beside its first one.
security::Caller local_caller(const session::Credentials& peer, const std::vector<gid_t>& groups,
                              std::optional<gid_t> admin_group);

}  // namespace rueda::service
