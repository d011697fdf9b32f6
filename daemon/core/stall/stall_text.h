// Stalls (stall_messages.h) in words: for logs, errors and ruedactl.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/core/messages/stall_messages.h"
#include "daemon/core/model/layout.h"

namespace rueda::core {

// "0-2, 5" of ranks in ascending order.
std::string describe_ranks(const std::vector<Rank>& ranks);

// One sentence, without its full stop: who waits for whom on the tensor of the process set, and
// what the latter did last, which is looked up in `activity` (ascending by rank).
std::string describe_stall(uint32_t process_set, const Layout& layout, const Stall& stall,
                           const std::vector<RankActivity>& activity);

// What is news in the notice, in one line of bounded length; empty: nothing is.
std::string describe_news(uint32_t process_set, const Layout& layout, const StallNotice& notice);

// That these go on, or ended in an error. Not empty.
std::string describe_ended(uint32_t process_set, const std::vector<Stall>& stalls);

}  // namespace rueda::core
