// The coordinator's count while a lock is undone (rules L7 and L9): how far each node is, and from
// where on operations are cancelled.
#pragma once

#include <cstddef>
#include <map>
#include <utility>

#include "daemon/core/messages/messages.h"

namespace rueda::core {

class UnlockTally {
 public:
  // What a node said first stands.
  void add(NodeIndex node, Frozen frozen) { nodes_.emplace(node, std::move(frozen)); }
  size_t count() const { return nodes_.size(); }
  void clear() { nodes_.clear(); }

  // L7's u: 1 + the minimum of what the nodes have launched, but no more than where they have gone
  // different ways (L9). What is complete anywhere was launched by all, as the same. lock_first: of
  // the lock. At least one node has been added.
  Seq first_not_common(Seq lock_first) const;

 private:
  std::map<NodeIndex, Frozen> nodes_;
};

}  // namespace rueda::core
