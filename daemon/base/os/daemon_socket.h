// Connecting to the daemon of this node, for every program that is its client: librueda, ruedarun
// and ruedactl.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"

namespace rueda {

// Connects to the daemon's unix socket, and checks whose process serves it, because what a client
// sends there (a job's token, gradients, paths of files) is for nobody else. Trusted are root, this
// process's own user, the owner of the socket's folder if nobody else may put a socket there, and
// the user that the environment variable RUEDA_DAEMON_UID names.
//
// `path` is a path of at most 107 bytes, or "@name" for a name in the abstract namespace.
// `timeout_ms` bounds the connecting, and each later blocking send on the socket. The socket is
// blocking, and is closed on exec. Any thread may call this.
//
// Errors: kInvalidArgument (the path), kNotFound, kUnavailable (nobody listens), kPermission (this
// user may not connect, or the daemon's user is not trusted), kTimeout, kResourceExhausted.
Result<UniqueFd> connect_to_daemon(const std::string& path, int64_t timeout_ms);

}  // namespace rueda
