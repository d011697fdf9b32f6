// Addresses of this machine.
#pragma once

#include <string>

#include "daemon/base/status.h"

namespace rueda::agent {

// This machine's address on its way to `host`. Resolves names, so it may block; sends nothing.
Result<std::string> address_towards(const std::string& host, int port);

// Where other nodes reach this one.
struct OwnHost {
  std::string host;
  // It need not be so: the rendezvous sees where connections come from and go to.
  bool is_guess = false;
};
// As address_towards; where that is of the loopback and `host` is not (Debian's /etc/hosts gives a
// machine's own name such an address, where no other node reaches it), the one of the way out, if
// there is one, as a guess.
Result<OwnHost> own_host_towards(const std::string& host, int port);

// A TCP port that nobody uses right now. Somebody may before the caller does.
Result<int> free_port();

// Whether somebody listens at a unix socket (a path, or @name).
bool is_listening(const std::string& socket);

}  // namespace rueda::agent
