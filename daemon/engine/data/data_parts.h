// Which data jobs carry out a process set's operations on this node, and what of them each does. By
// node there is one, which adds up all local ranks; by device there is one for each local rank, a
// member of the ring by itself. An operation is done when all of them have done theirs.
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
  // The layout of the process set, and this node in it, which is a member.
  DataParts(core::Reducer reducer, const core::Layout& layout, NodeIndex self);

  size_t size() const { return selves_.size(); }
  // Over all nodes: what is theirs together is divided by this, as all slots must have one size.
  size_t most_on_a_node() const { return most_on_a_node_; }
  // By place in the ring: the job's node where each member is.
  const std::vector<NodeIndex>& ring() const { return ring_; }
  // Which member of the ring a part is.
  NodeIndex place(size_t part) const { return ring_layout_.ring_index(selves_[part]); }
  // `find` is asked for the node's ranks in the process set. Errors are build_operation()'s.
  Result<std::unique_ptr<Operation>> build(const core::Launch& launch, size_t part,
                                           const FindSubmission& find) const;

 private:
  core::Layout ring_layout_;       // each of its nodes is a member of the ring
  std::vector<NodeIndex> selves_;  // in that, by part
  std::vector<NodeIndex> ring_;
  size_t most_on_a_node_ = 0;
};

}  // namespace rueda::engine
