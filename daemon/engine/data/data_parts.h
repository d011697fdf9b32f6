// This says which data jobs carry out a process set's operations on this node, and which part of an
// operation each does. By node there is one data job, which adds up all local ranks; by device
// there is one for each local rank, which is a member of the ring by itself. An operation is done
// when all parts of it are done.
#pragma once

#include <memory>
#include <vector>

#include "daemon/core/job/job_events.h"
#include "daemon/core/model/layout.h"
#include "daemon/core/model/reducer.h"
#include "daemon/engine/operation/build_operation.h"
#include "daemon/engine/operation/operation.h"

namespace rueda::engine {

class DataParts {
 public:
  // `layout` is of the process set; `self`, this node, is a member of the set.
  DataParts(core::Reducer reducer, const core::Layout& layout, NodeIndex self);

  size_t size() const { return selves_.size(); }
  // Returns the largest number of parts that any node has. What the parts of a node share is
  // divided by this number on all nodes, because all slots must have one size.
  size_t max_on_a_node() const { return max_on_a_node_; }
  // Returns the job's node where each member of the ring is, by place in the ring.
  const std::vector<NodeIndex>& ring() const { return ring_; }
  // Returns which member of the ring a part is.
  NodeIndex place(size_t part) const { return ring_layout_.ring_index(selves_[part]); }
  // Builds what a part does of a batch. `find` is asked for the submissions of the node's ranks in
  // the process set. The errors are build_operation()'s.
  Result<std::unique_ptr<Operation>> build(const core::Launch& launch, size_t part,
                                           const FindSubmission& find) const;

 private:
  core::Layout ring_layout_;       // each of its nodes is a member of the ring
  std::vector<NodeIndex> selves_;  // this node's members of the ring, by part
  std::vector<NodeIndex> ring_;
  size_t max_on_a_node_ = 0;
};

}  // namespace rueda::engine
