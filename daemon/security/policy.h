// Who may do what at a daemon: one table, which every RPC is registered with. It is in
// docs/operations.md, too.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/base/principal.h"
#include "daemon/base/status.h"
#include "daemon/security/identity.h"

namespace rueda::security {

// Who calls, as the daemon has found out by itself; what a caller says of itself does not count.
struct Caller {
  enum class Kind : uint8_t {
    kNobody,   // A connection of which nothing is known.
    kMachine,  // Whoever reaches the ports of a daemon without certificates that listens on the
               // loopback: any user of this machine.
    kNetwork,  // Whoever reaches the ports of a daemon with --insecure.
    kNode,     // With certificates: another daemon, ...
    kMetrics,  // ... who scrapes metrics, ...
    kRemoteOperator,  // ... and an operator.
    kUser,            // A process of this machine, by a unix socket.
    kOperator,  // The same, by a socket without a name: root, the daemon's own user, or a member
                // of --admin-group.
  };
  Kind kind = Kind::kNobody;
  Principal principal;  // Of a user or an operator at a socket.
  std::string name;     // In the certificate: a node's id, for one.
};
inline constexpr size_t kCallerKinds = 8;
// Returns what someone with such a certificate is.
Caller::Kind kind_of(Role role);

// Every method of the daemon's servers of calls, and every page of its HTTP server, is one of
// these.
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
  kEndJob,
  kLinkDaemons,
  kReceiveMeasurement,
  kSendMeasurement,
  kKeepBandwidths,
  kExplainErrand,
  kCheckHealth,
  kWatchHealth,
  kCarryFrames,
  kScrapeMetrics,
  kAskHealth,
  kAskReadiness,
};
inline constexpr size_t kActions = 21;

enum class Scope : uint8_t {
  kNothing,
  kOwn,  // What belongs to jobs that the same principal has registered.
  kAll,
};

struct Rule {
  Action action;
  std::string_view method;  // As "rueda.v1.Admin/ListJobs", or "GET /metrics".
  // What each kind of caller may do, by Caller::Kind.
  std::array<Scope, kCallerKinds> scopes;
  // Why one who may not is refused.
  std::string_view refusal;
};
const std::array<Rule, kActions>& rules();

Scope scope_of(Action action, Caller::Kind kind);
// Returns kPermission, with a sentence for the caller, if the caller may not do this at all.
Status check(Action action, const Caller& caller);
// Returns whether the caller may see, or do this with, what belongs to the owner.
bool reaches(Action action, const Caller& caller, const Principal& owner);

struct Connection {
  std::string peer;  // gRPC's name of it (grpc::ServerContext::peer()).
  std::string pem;   // The other end's certificate, which has been verified; "" without one.
};

// Tells who is behind a connection. Thread-safe.
class Callers {
 public:
  virtual ~Callers() = default;
  virtual Caller find(const Connection& connection) const = 0;
};

// Takes everybody for the same kind of caller, who is no user of this machine.
class EverybodyIs final : public Callers {
 public:
  explicit EverybodyIs(Caller::Kind kind) : kind_(kind) {}
  Caller find(const Connection& /*connection*/) const override {
    Caller everybody;
    everybody.kind = kind_;
    return everybody;
  }

 private:
  const Caller::Kind kind_;
};

// What an RPC is registered with: nothing is served without one.
struct Door {
  Action action;
  const Callers& callers;
};

}  // namespace rueda::security
