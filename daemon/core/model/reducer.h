// Who is a member of the ring, chosen for a whole job: every node of it uses the same.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/base/status.h"

namespace rueda::core {

enum class Reducer : uint8_t {
  kNode,    // two steps: a node adds up its ranks, and the sum goes round the nodes
  kDevice,  // one step: each rank is a member by itself, and what it gives goes round the ranks
};

// "node", "device".
const char* to_string(Reducer reducer);

// The error lists the names.
Result<Reducer> parse_reducer(const std::string& name);

}  // namespace rueda::core
