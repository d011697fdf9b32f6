// Processes that ranks have started and that are not the launcher's children: found in /proc, by
// their group or by a variable that they have inherited.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <sys/types.h>

#include "agent/process/process.h"

namespace rueda::agent {

// The variable of each rank's environment by which what it starts is found again, whatever its
// parent, group and session are. Its value is another one for each launcher.
inline constexpr char kLaunchVariable[] = "RUEDA_LAUNCH_ID";

struct Leftover {
  pid_t pid = -1;
  std::string name;
  UniqueFd pidfd;
};

// Living processes, zombies not among them, in one of the groups, or with $RUEDA_LAUNCH_ID=`launch`
// ("" for none) in the environment that they were started with; never this process itself.
std::vector<Leftover> find_leftovers(const std::set<pid_t>& groups, const std::string& launch);

// SIGKILL to all of them, until none is found; gives up after a few seconds. How many there were.
int kill_leftovers(const std::set<pid_t>& groups, const std::string& launch);

// "12 (sleep), 13 (python3)", and how many more.
std::string list_of(const std::vector<Leftover>& leftovers);

}  // namespace rueda::agent
