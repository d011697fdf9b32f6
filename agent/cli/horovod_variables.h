// Translates Horovod's environment variables, which its users' job scripts set.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace rueda::agent {

// Returns whether the mode of coordination with this name has a cycle; false for "", which leaves
// the mode to the daemon.
bool has_cycle(const std::string& coordination);

// Adds ruedarun's variables for Horovod's to `environment`, except those that are set already.
// `coordination` is the mode of the job, or "" if it is the daemon's; HOROVOD_CYCLE_TIME is used by
// modes with a cycle alone. Returns a sentence for each variable of Horovod's that is set: what it
// is taken for, or why it is not used.
std::vector<std::string> translate_horovod_variables(
    std::map<std::string, std::string>& environment, const std::string& coordination = {});

}  // namespace rueda::agent
