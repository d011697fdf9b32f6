// Groups of which some tensors have got their place in the order and others not: a group becomes
// ready as one, and is carried out as several operations when its dtypes differ, or by a plan.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "daemon/core/model/descriptor.h"

namespace rueda::core {

class BegunGroups {
 public:
  // The tensor has its place. One without a group changes nothing.
  void note(const TensorDescriptor& tensor);
  // Others of its group have theirs, in a turn in which this one has none: it is not to wait for
  // them.
  bool lack(const TensorDescriptor& tensor) const;
  bool empty() const { return turns_.empty(); }

 private:
  // By group: the tensors with a place, and in how many turns that are not whole. A plan may be in
  // the next turn with one while another of this turn is under way.
  std::map<std::string, std::map<std::string, uint32_t>> turns_;
};

}  // namespace rueda::core
