#include "daemon/core/modes/ready_pool.h"

#include <algorithm>
#include <utility>

namespace rueda::core {

const ReadyTensor& ReadyPool::add(ReadyTensor tensor) {
  const std::string_view name = tensor.descriptor->name;
  return lockable_.emplace(name, std::move(tensor)).first->second;
}

std::vector<const ReadyTensor*> ReadyPool::by_name() const {
  std::vector<const ReadyTensor*> tensors;
  for (const auto& [name, tensor] : lockable_) tensors.push_back(&tensor);
  std::sort(tensors.begin(), tensors.end(), [](const ReadyTensor* a, const ReadyTensor* b) {
    const bool joins = a->descriptor->kind == CollectiveKind::kJoin;
    const bool other_joins = b->descriptor->kind == CollectiveKind::kJoin;
    return joins != other_joins ? other_joins : a->descriptor->name < b->descriptor->name;
  });
  return tensors;
}

void ReadyPool::forget(const OrderedOperation& operation) {
  for (const std::string& name : operation.tensors) {
    lockable_.erase(name);
    decreed_.erase(name);
  }
}

void ReadyPool::bind(Seq operation, const std::vector<std::string>& names) {
  std::vector<Pool::node_type>& bound = bound_[operation];
  bound.reserve(names.size());
  for (const std::string& name : names) bound.push_back(lockable_.extract(name));
}

void ReadyPool::unbind_from(Seq first) {
  for (auto it = bound_.lower_bound(first); it != bound_.end(); ++it) {
    for (Pool::node_type& tensor : it->second) lockable_.insert(std::move(tensor));
  }
  bound_.clear();
}

}  // namespace rueda::core
