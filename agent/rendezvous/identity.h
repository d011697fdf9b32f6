// Makes a new job's name and secret.
#pragma once

#include <cstdint>
#include <string>

#include "agent/rendezvous/rendezvous.h"
#include "daemon/base/status.h"

namespace rueda::agent {

// Makes a random identity. Its master address is the given one, the address of rank 0's node, with
// a port that is free on this node.
Result<JobIdentity> make_identity(const std::string& master_addr);

// Returns a number for a life of a job on this machine, greater than those of all lives before, as
// long as the clock is not set back: microseconds since 1970.
uint64_t new_incarnation();

}  // namespace rueda::agent
