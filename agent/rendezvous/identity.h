// A new job's name and secret.
#pragma once

#include <string>

#include "agent/rendezvous/rendezvous.h"
#include "daemon/base/status.h"

namespace rueda::agent {

// Random, but for the address of rank 0's node, where a port is free on this one.
Result<JobIdentity> make_identity(const std::string& master_addr);

}  // namespace rueda::agent
