// Who may do what at a daemon: one table, which every RPC is registered with. It is in
// docs/operations.md, too.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include <sys/types.h>

#include "daemon/base/status.h"

namespace rueda::security {

// Who calls, as the daemon has found out by itself; what a caller says of itself does not count.
struct Caller {
  enum class Kind : uint8_t {
    kNobody,    // A connection of which nothing is known.
    kNetwork,   // Whoever reaches the control port.
    kUser,      // A user of this machine, by the unix socket.
    kOperator,  // The same: root, the daemon's own user, or a member of --admin-group.
  };
  Kind kind = Kind::kNobody;
  uid_t uid = static_cast<uid_t>(-1);  // Of a user or an operator.
};
inline constexpr size_t kCallerKinds = 4;

// Every method of the daemon's gRPC servers is one of these.
enum class Action : uint8_t {
  kRunJob,
  kDescribe,
  kReadStatus,
  kReadJobs,
  kReadPlans,
  kReadPeers,
  kReadStalls,
  kProbeNodes,
  kRequestTimeline,
  kLinkDaemons,
  kReceiveMeasurement,
  kSendMeasurement,
  kKeepBandwidths,
  kExplainErrand,
  kCheckHealth,
  kWatchHealth,
  kCarryFrames,
};
inline constexpr size_t kActions = 17;

enum class Scope : uint8_t {
  kNothing,
  kOwn,  // What belongs to jobs that the same user has registered.
  kAll,
};

struct Rule {
  Action action;
  std::string_view method;  // As "rueda.v1.Admin/ListJobs".
  // What each kind of caller may do, by Caller::Kind.
  std::array<Scope, kCallerKinds> scopes;
  // Why one who may not is refused: over the network, and as a user.
  std::string_view refusal;
};
const std::array<Rule, kActions>& rules();

Scope scope_of(Action action, Caller::Kind kind);
// Returns kPermission, with a sentence for the caller, if the caller may not do this at all.
Status check(Action action, const Caller& caller);
// Returns whether the caller may see, or do this with, what belongs to the user.
bool reaches(Action action, const Caller& caller, uid_t owner);

// Tells who is behind a connection. Thread-safe.
class Callers {
 public:
  virtual ~Callers() = default;
  // `peer` is gRPC's name of the connection (grpc::ServerContext::peer()).
  virtual Caller find(const std::string& peer) const = 0;
};

// Takes everybody for the same kind of caller, who is no user of this machine.
class EverybodyIs final : public Callers {
 public:
  explicit EverybodyIs(Caller::Kind kind) : kind_(kind) {}
  Caller find(const std::string& /*peer*/) const override { return {kind_}; }

 private:
  const Caller::Kind kind_;
};

// What an RPC is registered with: nothing is served without one.
struct Door {
  Action action;
  const Callers& callers;
};

}  // namespace rueda::security
