#include "daemon/core/model/coordination.h"

#include <array>

namespace rueda::core {
namespace {

constexpr std::array kModes{Coordination::kNegotiate,   Coordination::kCached,
                            Coordination::kGlobalSleep, Coordination::kNonblocking,
                            Coordination::kEventDriven, Coordination::kLocked};

}  // namespace

const char* to_string(Coordination mode) {
  switch (mode) {
    case Coordination::kNegotiate: return "negotiate";
    case Coordination::kCached: return "cached";
    case Coordination::kGlobalSleep: return "global-sleep";
    case Coordination::kNonblocking: return "nonblocking";
    case Coordination::kEventDriven: return "event-driven";
    case Coordination::kLocked: return "locked";
  }
  return "unknown";
}

Result<Coordination> parse_coordination(const std::string& name) {
  std::string names;
  for (Coordination mode : kModes) {
    if (name == to_string(mode)) return mode;
    names += (names.empty() ? "" : ", ") + std::string(to_string(mode));
  }
  return Status(Code::kInvalidArgument,
                "there is no coordination \"" + name + "\"; the modes are " + names);
}

}  // namespace rueda::core
