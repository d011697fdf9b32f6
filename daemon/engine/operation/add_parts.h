// Finds what lies where, if each rank has a part of the values to itself (base/parts.h).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "daemon/core/model/descriptor.h"
#include "daemon/core/model/layout.h"
#include "daemon/engine/operation/operation.h"

namespace rueda::engine {

// The bytes that one rank has given place for; 0 if it gives nothing, or gets nothing.
struct Reach {
  size_t input = 0;
  size_t output = 0;
};

// Adds the tensor's parts to the operation, whose kind and root node are set, in the order in which
// they travel, and its rounds. `layout` is the process set's, `self` this node in it; `buffers` are
// those of its ranks, all of them, and `reaches` how far each goes. Returns what is wrong if some
// part would go further, or "" if none does.
std::string add_parts(const core::TensorDescriptor& tensor, const core::Layout& layout,
                      NodeIndex self, const std::vector<RankBuffers>& buffers,
                      const std::vector<Reach>& reaches, Operation& operation);

}  // namespace rueda::engine
