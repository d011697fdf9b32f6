// The choice of who is a member of the ring. It is made for a whole job, and every node of the job
// uses the same.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/base/status.h"

namespace rueda::core {

enum class Reducer : uint8_t {
  kNode,    // In two steps: a node adds up its ranks, and the sum goes round the nodes.
  kDevice,  // In one step: each rank is a member, and its values go round the ranks.
};

// Returns "node" or "device".
const char* to_string(Reducer reducer);

// Returns the reducer with this name. The error lists the names that there are.
Result<Reducer> parse_reducer(const std::string& name);

}  // namespace rueda::core
