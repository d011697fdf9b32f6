// The ways to carry tensors in device memory between nodes. One is chosen for a whole job, and
// every node of the job uses it.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/base/status.h"

namespace rueda::core {

enum class InterNode : uint8_t {
  kRueda,  // The data plane carries them, through host memory.
  kNccl,   // NCCL carries them, from one GPU of each node.
};

// Returns "rueda" or "nccl".
const char* to_string(InterNode way);

// Returns the way with this name. The error lists the names that there are.
Result<InterNode> parse_inter_node(const std::string& name);

}  // namespace rueda::core
