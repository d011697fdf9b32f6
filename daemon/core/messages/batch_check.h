// Checks whether tensors can be one operation. Whoever makes a batch sees to it; whoever is told of
// a batch, by a coordinator, a plan, or a file, asks here before acting on it: a batch of unlike
// tensors would be carried out with the dtype, the kind and the memory of its first tensor, past
// the end of the others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/core/messages/fusion.h"
#include "daemon/core/model/layout.h"
#include "daemon/core/model/track.h"

namespace rueda::core {

// Returns why these tensors by themselves cannot share an operation, or "" if they can. The time is
// linear in their number.
std::string find_flaw_of_batch(const std::vector<DescriptorPtr>& batch);

// Returns why the batch cannot be an operation on this track of the process set with that id and
// layout, or "" if it can. Beyond the check above, its tensors must move data, belong to the set,
// and have a root that is one of the set's ranks, where there is a root.
std::string find_flaw_of_batch(const std::vector<DescriptorPtr>& batch, Track track,
                               uint32_t process_set, const Layout& layout);

}  // namespace rueda::core
