// The coordinator's count while a lock is undone (rules L7 and L9): how far each node is, and from
// which operation on operations are cancelled.
#pragma once

#include <cstddef>
#include <map>
#include <utility>

#include "daemon/core/messages/messages.h"

namespace rueda::core {

class UnlockTally {
 public:
  // Adds what a node said. If it has said something before, that stands.
  void add(NodeIndex node, Frozen frozen) { nodes_.emplace(node, std::move(frozen)); }
  size_t count() const { return nodes_.size(); }
  void clear() { nodes_.clear(); }

  // Returns L7's u: 1 + the minimum of what the nodes have launched, but no more than where they
  // have gone different ways (L9). What is complete anywhere was launched by all, as the same
  // operation. `lock_first` is the lock's first operation. At least one node must have been added.
  Seq first_not_common(Seq lock_first) const;

 private:
  std::map<NodeIndex, Frozen> nodes_;
};

}  // namespace rueda::core
