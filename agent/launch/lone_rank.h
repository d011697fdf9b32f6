// A job of one rank, for a process that was started alone and a node without a daemon: a launcher
// of its own, with a private daemon, whose only child stands in for the process. See
// docs/decisions/0038-ranks-that-others-start.md.
#pragma once

#include <string>

#include "agent/cli/options.h"

namespace rueda::agent {

// Runs that launcher until the parent process has ended, and returns the exit code. Standard output
// is as register_rank() has it; what goes wrong is said on standard error.
int launch_for_lone_rank(Options options);

// What the launcher's child is called with: a flag, and the process that it stands in for.
inline constexpr char kStandInFlag[] = "--stand-in-for";
// Says to standard output what the launcher has put into the environment, and stays as long as that
// process does.
int stand_in_for(const std::string& process);

}  // namespace rueda::agent
