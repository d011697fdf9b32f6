// Whether tensors can be one operation. Whoever makes a batch sees to it; whoever is told of one,
// by a coordinator, a plan, or a file, asks here before it acts on it: a batch of unlike tensors
// would be carried out with the dtype, the kind and the memory of its first one, past the end of
// the others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/core/messages/fusion.h"
#include "daemon/core/model/layout.h"
#include "daemon/core/model/track.h"

namespace rueda::core {

// Why these cannot share an operation, by themselves; empty: they can. Linear in their number.
std::string find_flaw_of_batch(const std::vector<DescriptorPtr>& batch);

// Likewise, as an operation on this track of the process set with that id and layout: its tensors
// move data, are the set's, and have a root that is one of its ranks, where there is one.
std::string find_flaw_of_batch(const std::vector<DescriptorPtr>& batch, Track track,
                               uint32_t process_set, const Layout& layout);

}  // namespace rueda::core
