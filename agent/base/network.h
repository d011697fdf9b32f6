// Addresses of this machine.
#pragma once

#include <string>

#include "daemon/base/status.h"

namespace rueda::agent {

// Returns the address from which this machine reaches `host`. It resolves names, so it may block;
// it sends nothing.
Result<std::string> address_towards(const std::string& host, int port);

// Names the host under which other nodes reach this one.
struct OwnHost {
  std::string host;
  // True if the host is only a guess: the rendezvous sees where connections really come from and go
  // to.
  bool is_guess = false;
};
// Returns address_towards(host). If that is a loopback address and `host` is not one (Debian's
// /etc/hosts gives a machine's own name such an address, which no other node reaches), it returns
// the address of the way out, if there is one, as a guess.
Result<OwnHost> own_host_towards(const std::string& host, int port);

// Returns a TCP port that nobody uses now. Somebody may take it before the caller does.
Result<int> free_port();

// Returns true if somebody listens at a unix socket (a path, or @name).
bool is_listening(const std::string& socket);

}  // namespace rueda::agent
