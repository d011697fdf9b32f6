// The tensors that are ready on this node, as the `locked` mode keeps them: those that no operation
// has yet, and those of the plan's operations under way, which come back if the plan is given up
// (rules L4 and L7 of docs/protocol.md).
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "daemon/core/order/agreement.h"

namespace rueda::core {

class ReadyPool {
 public:
  // Adds a tensor of the lockable track. The reference is valid until an operation has the tensor.
  const ReadyTensor& add(ReadyTensor tensor);
  // Adds the name of a tensor of the decreed track.
  void add_decreed(const std::string& name) { decreed_.insert(name); }

  // Returns whether no lockable tensor waits for an operation.
  bool is_empty() const { return lockable_.empty(); }
  // Returns the lockable tensors that wait, in an order that repeats exactly: by name, and a join
  // after all that its ranks submitted.
  std::vector<const ReadyTensor*> by_name() const;
  // Returns the names of decreed tensors that wait.
  const std::set<std::string>& decreed() const { return decreed_; }

  // Forgets the tensors of an operation that was decreed.
  void forget(const OrderedOperation& operation);
  // Gives the tensors, all of which wait here, to an operation of the plan.
  void bind(Seq operation, const std::vector<std::string>& names);
  // Forgets the tensors of an operation of the plan.
  void forget_bound(Seq operation) { bound_.erase(operation); }
  // Takes the tensors of operations from `first` on back, and forgets those of earlier ones.
  void unbind_from(Seq first);

 private:
  // The keys are the descriptors' names.
  using Pool = std::unordered_map<std::string_view, ReadyTensor>;

  Pool lockable_;
  std::set<std::string> decreed_;
  std::map<Seq, std::vector<Pool::node_type>> bound_;
};

}  // namespace rueda::core
