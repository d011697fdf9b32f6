// The ways to agree on the order of operations (docs/protocol.md). One is chosen for a whole job,
// and every node of the job uses it.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/base/status.h"

namespace rueda::core {

enum class Coordination : uint8_t {
  kNegotiate,    // Each step sends lists of ready tensors to the coordinator, and the order back.
  kCached,       // Bits of cached tensors replace the lists (Horovod's response cache).
  kGlobalSleep,  // As kCached, in a cycle whose sleep all nodes agree on (Pumma et al., GS).
  kNonblocking,  // As kCached, but nobody blocks in the synchronisation (Pumma et al., NBCS).
  kLocked,       // After enough identical steps nothing is sent (rules L1 to L13).
};

// Jobs for which neither the launcher nor the daemon names a mode use this one.
constexpr Coordination kDefaultCoordination = Coordination::kLocked;

// Returns "negotiate", "cached", "global-sleep", "nonblocking" or "locked".
const char* to_string(Coordination mode);

// Returns the mode with this name. The error lists the names that there are.
Result<Coordination> parse_coordination(const std::string& name);

}  // namespace rueda::core
