// What carries tensors in device memory between nodes, chosen for a whole job: every node of it
// uses the same.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/base/status.h"

namespace rueda::core {

enum class InterNode : uint8_t {
  kRueda,  // the data plane, through host memory
  kNccl,   // NCCL, from one GPU of each node
};

// "rueda", "nccl".
const char* to_string(InterNode way);

// The error lists the names.
Result<InterNode> parse_inter_node(const std::string& name);

}  // namespace rueda::core
