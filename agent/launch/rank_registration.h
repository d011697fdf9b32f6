// ruedarun for one rank that mpirun, srun, torchrun or the like has started: librueda runs it,
// because it speaks no gRPC itself. See docs/decisions/0038-ranks-that-others-start.md.
#pragma once

#include <map>
#include <string>

#include "agent/cli/options.h"

namespace rueda::agent {

// Whether the process is the only rank of its job, as it is when nobody has started it as one, and
// the node's daemon is not named and not there.
bool needs_own_daemon(const Options& options,
                      const std::map<std::string, std::string>& environment);

// Meets the job's other ranks, registers the job with the node's daemon, writes what ruedarun would
// put into the rank's environment to standard output, as lines NAME=VALUE and then "ready", and
// closes it. Stays until the parent process has ended; then the registration does. Returns the exit
// code; on failure, the one line on standard output is "error: " and why.
int register_rank(const Options& options, const std::map<std::string, std::string>& environment);

}  // namespace rueda::agent
