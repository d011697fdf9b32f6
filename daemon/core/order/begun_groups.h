// Groups of which some tensors have their place in the order and others do not: a group becomes
// ready as one, but is carried out as several operations when its dtypes differ, or by a plan.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "daemon/core/model/descriptor.h"

namespace rueda::core {

class BegunGroups {
 public:
  // Notes that the tensor has its place in the order. A tensor without a group changes nothing.
  void note(const TensorDescriptor& tensor);
  // Returns whether others of its group have their place in a turn of the group in which this
  // tensor has none yet. Then the tensor must not wait for them.
  bool lack(const TensorDescriptor& tensor) const;
  bool empty() const { return turns_.empty(); }

 private:
  // By group: the tensors that have a place, and in how many unfinished turns of the group. A plan
  // may be in the group's next turn with one tensor while another tensor of this turn is under way.
  std::map<std::string, std::map<std::string, uint32_t>> turns_;
};

}  // namespace rueda::core
