// Runs a job of one rank, for a process that was started alone on a node without a daemon. The job
// has a launcher of its own, with a private daemon; the launcher's only child stands in for the
// process. See docs/decisions/0038-ranks-that-others-start.md.
#pragma once

#include <string>

#include "agent/cli/options.h"

namespace rueda::agent {

// Runs that launcher until the parent process has ended, and returns the exit code. Standard output
// is as that of register_rank(); errors go to standard error.
int launch_for_lone_rank(Options options);

// The launcher's child is called with this flag, and the id of the process that it stands in for.
inline constexpr char kStandInFlag[] = "--stand-in-for";
// Writes the variables that the launcher has set to standard output, with the token that it has
// inherited, and stays as long as that process does.
int stand_in_for(const std::string& process);

}  // namespace rueda::agent
