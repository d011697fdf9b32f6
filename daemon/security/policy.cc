#include "daemon/security/policy.h"

namespace rueda::security {
namespace {

constexpr Scope kNothing = Scope::kNothing;
constexpr Scope kOwn = Scope::kOwn;
constexpr Scope kAll = Scope::kAll;

constexpr std::string_view kJobsAreLocal =
    "jobs are registered over the daemon's unix socket alone";
constexpr std::string_view kForPeers = "this is for other daemons, over the control port";
constexpr std::string_view kUnknown =
    "nothing is known of this connection, or its certificate has been revoked or has ended: "
    "connect again";

constexpr std::string_view kNeedsIdentity =
    "over the network this needs an operator's certificate (ruedactl certs issue operator NAME, "
    "and --tls-dir), or a daemon that was started with --insecure; on the daemon's own machine "
    "there is its unix socket";
constexpr std::string_view kHealthIsElsewhere =
    "health is asked for at the HTTP port (/healthz), or over gRPC at the control port";
constexpr std::string_view kForScrapers =
    "metrics need a certificate of the role metrics or operator (ruedactl certs issue)";

// What each kind of caller may do.
using Scopes = std::array<Scope, kCallerKinds>;
// The columns are nobody, machine, network, node, metrics, remote operator, user, operator.
constexpr Scopes kAtSocket{kNothing, kNothing, kNothing, kNothing, kNothing, kNothing, kOwn, kOwn};
constexpr Scopes kAllAtSocket{kNothing, kNothing, kNothing, kNothing,
                              kNothing, kNothing, kAll,     kAll};
constexpr Scopes kOfDaemon{kNothing, kAll, kAll, kNothing, kNothing, kAll, kAll, kAll};
constexpr Scopes kOfJobs{kNothing, kNothing, kAll, kNothing, kNothing, kAll, kOwn, kAll};
constexpr Scopes kOperators{kNothing, kNothing, kNothing, kNothing, kNothing, kAll, kNothing, kAll};
constexpr Scopes kEnders{kNothing, kNothing, kNothing, kNothing, kNothing, kAll, kOwn, kAll};
constexpr Scopes kPeers{kNothing, kAll, kAll, kAll, kNothing, kNothing, kNothing, kNothing};
constexpr Scopes kAnybody{kAll, kAll, kAll, kAll, kAll, kAll, kAll, kAll};
constexpr Scopes kAnybodyAtPort{kAll, kAll, kAll, kAll, kAll, kAll, kNothing, kNothing};
// What carries frames asks for proofs by itself.
constexpr Scopes kCarriers{kNothing, kNothing, kAll,     kNothing,
                           kNothing, kNothing, kNothing, kNothing};
constexpr Scopes kScrapers{kNothing, kAll, kAll, kNothing, kAll, kAll, kNothing, kNothing};

// The order is that of Action.
constexpr std::array<Rule, kActions> kRules{{
    {Action::kRunJob, "rueda.v1.Agent/Run", kAtSocket, kJobsAreLocal},
    {Action::kDescribe, "rueda.v1.Agent/Describe", kAllAtSocket, kJobsAreLocal},
    {Action::kReadStatus, "rueda.v1.Admin/GetStatus", kOfDaemon, kNeedsIdentity},
    {Action::kReadJobs, "rueda.v1.Admin/ListJobs", kOfJobs, kNeedsIdentity},
    {Action::kReadPlans, "rueda.v1.Admin/ListPlans", kOfJobs, kNeedsIdentity},
    {Action::kReadPeers, "rueda.v1.Admin/ListPeers", kOfDaemon, kNeedsIdentity},
    {Action::kReadStalls, "rueda.v1.Admin/ListStalls", kOfJobs, kNeedsIdentity},
    {Action::kProbeNodes, "rueda.v1.Admin/Probe", kOperators,
     "a probe takes the network of all nodes for minutes: root may ask for it over a daemon's unix "
     "socket without a name, the user that the daemon runs as, and members of --admin-group; over "
     "the network who has an operator's certificate"},
    {Action::kRequestTimeline, "rueda.v1.Admin/RequestTimeline", kAtSocket,
     "timelines are asked for over the daemon's unix socket alone"},
    {Action::kEndJob, "rueda.v1.Admin/EndJob", kEnders,
     "a job is ended over a unix socket of the daemon of one of its nodes, by its user; over the "
     "socket without a name also by root, the user that the daemon runs as, and members of "
     "--admin-group; over the network by who has an operator's certificate"},
    {Action::kLinkDaemons, "rueda.v1.Control/Link", kPeers, kForPeers},
    {Action::kReceiveMeasurement, "rueda.v1.Probe/Receive", kPeers, kForPeers},
    {Action::kSendMeasurement, "rueda.v1.Probe/Send", kPeers, kForPeers},
    {Action::kKeepBandwidths, "rueda.v1.Probe/Keep", kPeers, kForPeers},
    {Action::kExplainErrand, "rueda.v1.Probe/Explain", kPeers, kForPeers},
    {Action::kCheckHealth, "grpc.health.v1.Health/Check", kAnybodyAtPort, kHealthIsElsewhere},
    {Action::kWatchHealth, "grpc.health.v1.Health/Watch", kAnybodyAtPort, kHealthIsElsewhere},
    {Action::kCarryFrames, "rueda.v1.Data/Frames", kCarriers, kForPeers},
    {Action::kScrapeMetrics, "GET /metrics", kScrapers, kForScrapers},
    {Action::kAskHealth, "GET /healthz", kAnybody, ""},
    {Action::kAskReadiness, "GET /readyz", kAnybody, ""},
}};

constexpr bool are_in_order() {
  for (size_t i = 0; i < kRules.size(); ++i) {
    if (kRules[i].action != static_cast<Action>(i)) return false;
  }
  return true;
}
static_assert(are_in_order());

}  // namespace

Caller::Kind kind_of(Role role) {
  switch (role) {
    case Role::kNode: return Caller::Kind::kNode;
    case Role::kOperator: return Caller::Kind::kRemoteOperator;
    case Role::kMetrics: return Caller::Kind::kMetrics;
  }
  return Caller::Kind::kNobody;
}

const std::array<Rule, kActions>& rules() { return kRules; }

Scope scope_of(Action action, Caller::Kind kind) {
  return rules().at(static_cast<size_t>(action)).scopes.at(static_cast<size_t>(kind));
}

Status check(Action action, const Caller& caller) {
  if (scope_of(action, caller.kind) != Scope::kNothing) return Status::ok();
  return {Code::kPermission,
          std::string(caller.kind == Caller::Kind::kNobody && action != Action::kScrapeMetrics
                          ? kUnknown
                          : rules().at(static_cast<size_t>(action)).refusal)};
}

bool reaches(Action action, const Caller& caller, const Principal& owner) {
  switch (scope_of(action, caller.kind)) {
    case Scope::kNothing: return false;
    case Scope::kOwn: return caller.principal.reaches(owner);
    case Scope::kAll: return true;
  }
  return false;
}

}  // namespace rueda::security
