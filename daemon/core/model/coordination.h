// The ways to agree on the order of operations (docs/protocol.md). One is chosen for a whole job,
// and every node of the job uses it.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/base/status.h"

namespace rueda::core {

enum class Coordination : uint8_t {
  kNegotiate,  // Each step sends lists of ready tensors to the coordinator, and the order back.
  // Bits of cached tensors replace the lists, in rounds that a cycle begins: Horovod with its
  // response cache (Pumma et al., section III-B).
  kCached,
  kGlobalSleep,  // As kCached, but all nodes sleep the least sleep of all (there, IV-A, GS).
  // As kCached, but a node does not wait for a round that it has begun: a later cycle looks whether
  // the round is over (there, IV-B, NBCS).
  kNonblocking,
  kEventDriven,  // Bits of cached tensors, without a cycle: what is ready goes at once.
  kLocked,       // As kEventDriven; after enough identical steps nothing is sent (L1 to L13).
};

// Jobs for which neither the launcher nor the daemon names a mode use this one.
constexpr Coordination kDefaultCoordination = Coordination::kLocked;

// Returns whether rounds of the mode are a cycle time apart. The others act when something happens.
constexpr bool has_cycle(Coordination mode) {
  return mode == Coordination::kCached || mode == Coordination::kGlobalSleep ||
         mode == Coordination::kNonblocking;
}

// Returns "negotiate", "cached", "global-sleep", "nonblocking", "event-driven" or "locked".
const char* to_string(Coordination mode);

// Returns the mode with this name. The error lists the names that there are.
Result<Coordination> parse_coordination(const std::string& name);

}  // namespace rueda::core
