// Which of the operations under way is needed first (rule L12). What the next forward pass needs
// first is what the backward pass submitted last; the client may say otherwise. Each node has its
// own, and needs no agreement: it decides only which chunks go next.
#pragma once

#include <compare>
#include <cstdint>

namespace rueda::engine {

struct SendPriority {
  int32_t priority = 0;    // the client's
  uint64_t submitted = 0;  // counts the node's submissions

  auto operator<=>(const SendPriority&) const = default;
};

inline constexpr SendPriority kAtOnce{INT32_MAX, UINT64_MAX};

}  // namespace rueda::engine
