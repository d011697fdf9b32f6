// Finds and ends processes that ranks have started and that are not the launcher's children. They
// are found in /proc, by their group or by a variable that they have inherited.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <sys/types.h>

#include "agent/process/process.h"

namespace rueda::agent {

// The variable in each rank's environment by which processes that the rank starts are found,
// whatever their parent, group and session are. Its value differs for each launcher.
inline constexpr char kLaunchVariable[] = "RUEDA_LAUNCH_ID";

struct Leftover {
  pid_t pid = -1;
  std::string name;
  UniqueFd pidfd;
};

// Returns living processes (no zombies) that are in one of the groups, or that were started with
// $RUEDA_LAUNCH_ID=`launch` in their environment ("" means no such variable is looked for); never
// this process itself.
std::vector<Leftover> find_leftovers(const std::set<pid_t>& groups, const std::string& launch);

// Sends SIGKILL to all of them until none is found, and gives up after a few seconds. Returns how
// many there were.
int kill_leftovers(const std::set<pid_t>& groups, const std::string& launch);

// Returns a list such as "12 (sleep), 13 (python3)", and how many more there are.
std::string list_of(const std::vector<Leftover>& leftovers);

}  // namespace rueda::agent
