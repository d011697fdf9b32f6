#include "daemon/core/order/begun_groups.h"

#include <iterator>

namespace rueda::core {

void BegunGroups::note(const TensorDescriptor& tensor) {
  if (tensor.group.empty()) return;
  const auto group = turns_.try_emplace(tensor.group).first;
  std::map<std::string, uint32_t>& turns = group->second;
  ++turns[tensor.name];
  if (turns.size() < tensor.group_size) return;
  for (auto it = turns.begin(); it != turns.end();) {
    it = --it->second == 0 ? turns.erase(it) : std::next(it);
  }
  if (turns.empty()) turns_.erase(group);
}

bool BegunGroups::lack(const TensorDescriptor& tensor) const {
  const auto group = turns_.find(tensor.group);
  return group != turns_.end() && !group->second.contains(tensor.name);
}

}  // namespace rueda::core
