// Says which of the operations under way is needed first (rule L12). What the next forward pass
// needs first is what the backward pass submitted last; the client may say otherwise. Each node has
// priorities of its own, and needs no agreement: they decide only which chunks go next.
#pragma once

#include <compare>
#include <cstdint>

namespace rueda::engine {

struct SendPriority {
  int32_t priority = 0;    // It is the client's.
  uint64_t submitted = 0;  // It counts the node's submissions.

  auto operator<=>(const SendPriority&) const = default;
};

inline constexpr SendPriority kAtOnce{INT32_MAX, UINT64_MAX};

}  // namespace rueda::engine
