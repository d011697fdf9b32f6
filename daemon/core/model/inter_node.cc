#include "daemon/core/model/inter_node.h"

namespace rueda::core {

const char* to_string(InterNode way) { return way == InterNode::kNccl ? "nccl" : "rueda"; }

Result<InterNode> parse_inter_node(const std::string& name) {
  for (const InterNode way : {InterNode::kRueda, InterNode::kNccl}) {
    if (name == to_string(way)) return way;
  }
  return Status(Code::kInvalidArgument,
                "there is no way between nodes \"" + name + "\"; the ways are rueda, nccl");
}

}  // namespace rueda::core
