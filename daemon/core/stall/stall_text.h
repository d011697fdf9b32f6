// Puts stalls (stall_messages.h) into words: for logs, errors and ruedactl.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/core/messages/stall_messages.h"
#include "daemon/core/model/layout.h"

namespace rueda::core {

// Returns text such as "0-2, 5" for ranks in ascending order.
std::string describe_ranks(const std::vector<Rank>& ranks);

// Returns one sentence, without its full stop: who waits for whom on the tensor of the process set,
// and what the latter did last, which is looked up in `activity` (ascending by rank).
std::string describe_stall(uint32_t process_set, const Layout& layout, const Stall& stall,
                           const std::vector<RankActivity>& activity);

// Returns what is news in the notice, in one line of bounded length, or "" if nothing is.
std::string describe_news(uint32_t process_set, const Layout& layout, const StallNotice& notice);

// Returns a line that says that these go on, or ended in an error. There must be one.
std::string describe_ended(uint32_t process_set, const std::vector<Stall>& stalls);

}  // namespace rueda::core
