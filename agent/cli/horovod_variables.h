// Translates Horovod's environment variables, which its users' job scripts set.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace rueda::agent {

// Adds ruedarun's variables for Horovod's to `environment`, except those that are set already.
// Returns a sentence for each variable of Horovod's that is set: what it is taken for, or why it is
// not used.
std::vector<std::string> translate_horovod_variables(
    std::map<std::string, std::string>& environment);

}  // namespace rueda::agent
