// The ways to agree on the order of operations (docs/protocol.md), chosen for a whole job: every
// node of it uses the same one.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/base/status.h"

namespace rueda::core {

enum class Coordination : uint8_t {
  kNegotiate,    // each step: lists of ready tensors to the coordinator, the order back
  kCached,       // bits of cached tensors instead of lists (Horovod's response cache)
  kGlobalSleep,  // cached, in a cycle whose sleep all nodes agree on (Pumma et al., GS)
  kNonblocking,  // cached, and nobody blocks in the synchronisation (Pumma et al., NBCS)
  kLocked,       // after enough identical steps nothing is sent (rules L1 to L13)
};

// Of jobs of which neither launcher nor daemon says how.
constexpr Coordination kDefaultCoordination = Coordination::kLocked;

// "negotiate", "cached", "global-sleep", "nonblocking", "locked".
const char* to_string(Coordination mode);

// The error lists the names.
Result<Coordination> parse_coordination(const std::string& name);

}  // namespace rueda::core
