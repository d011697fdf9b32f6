// Runs ruedarun for one rank that mpirun, srun, torchrun or the like has started. librueda starts
// this process, because the library speaks no gRPC itself. See
// docs/decisions/0038-ranks-that-others-start.md.
#pragma once

#include <map>
#include <string>

#include "agent/cli/options.h"

namespace rueda::agent {

// Returns true if the process is the only rank of its job, because nobody started it as a rank, and
// no daemon is named and none runs on the node.
bool needs_own_daemon(const Options& options,
                      const std::map<std::string, std::string>& environment);

// Meets the job's other ranks, registers the job with the node's daemon, writes the variables that
// ruedarun would set for the rank to standard output, as lines NAME=VALUE and then "ready", and
// closes it. The process stays until its parent has ended, and so does the registration. Returns
// the exit code; on failure, the one line on standard output is "error: " and the reason.
int register_rank(const Options& options, const std::map<std::string, std::string>& environment);

}  // namespace rueda::agent
