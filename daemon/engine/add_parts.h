// Where each rank has a part of the values to itself (base/parts.h): what of them lies where.
#pragma once

#include <vector>

#include "daemon/core/descriptor.h"
#include "daemon/core/layout.h"
#include "daemon/engine/operation.h"

namespace rueda::engine {

// Adds the tensor's parts to the operation, whose kind and root node are set, in the order in which
// they travel, and its rounds. `layout` is the process set's, `self` this node in it; `buffers` are
// those of its ranks, all of them.
void add_parts(const core::TensorDescriptor& tensor, const core::Layout& layout, NodeIndex self,
               const std::vector<RankBuffers>& buffers, Operation& operation);

}  // namespace rueda::engine
