#include "daemon/security/policy.h"

namespace rueda::security {
namespace {

constexpr Scope kNothing = Scope::kNothing;
constexpr Scope kOwn = Scope::kOwn;
constexpr Scope kAll = Scope::kAll;

constexpr std::string_view kJobsAreLocal =
    "jobs are registered over the daemon's unix socket alone";
constexpr std::string_view kForPeers = "this is for other daemons, over the control port";
constexpr std::string_view kUnknown = "nothing is known of this connection: connect again";

// The order is that of Action; the columns are nobody, network, user, operator.
constexpr std::array<Rule, kActions> kRules{{
    {Action::kRunJob, "rueda.v1.Agent/Run", {kNothing, kNothing, kOwn, kOwn}, kJobsAreLocal},
    {Action::kDescribe, "rueda.v1.Agent/Describe", {kNothing, kNothing, kAll, kAll}, kJobsAreLocal},
    {Action::kReadStatus, "rueda.v1.Admin/GetStatus", {kNothing, kAll, kAll, kAll}, kUnknown},
    {Action::kReadJobs, "rueda.v1.Admin/ListJobs", {kNothing, kAll, kOwn, kAll}, kUnknown},
    {Action::kReadPlans, "rueda.v1.Admin/ListPlans", {kNothing, kAll, kOwn, kAll}, kUnknown},
    {Action::kReadPeers, "rueda.v1.Admin/ListPeers", {kNothing, kAll, kAll, kAll}, kUnknown},
    {Action::kReadStalls, "rueda.v1.Admin/ListStalls", {kNothing, kAll, kOwn, kAll}, kUnknown},
    {Action::kProbeNodes,
     "rueda.v1.Admin/Probe",
     {kNothing, kNothing, kNothing, kAll},
     "a probe takes the network of all nodes for minutes: root may ask for it over a daemon's unix "
     "socket, the user that the daemon runs as, and members of --admin-group"},
    {Action::kRequestTimeline,
     "rueda.v1.Admin/RequestTimeline",
     {kNothing, kNothing, kOwn, kOwn},
     "timelines are asked for over the daemon's unix socket alone"},
    {Action::kLinkDaemons,
     "rueda.v1.Control/Link",
     {kNothing, kAll, kNothing, kNothing},
     kForPeers},
    {Action::kReceiveMeasurement,
     "rueda.v1.Probe/Receive",
     {kNothing, kAll, kNothing, kNothing},
     kForPeers},
    {Action::kSendMeasurement,
     "rueda.v1.Probe/Send",
     {kNothing, kAll, kNothing, kNothing},
     kForPeers},
    {Action::kKeepBandwidths,
     "rueda.v1.Probe/Keep",
     {kNothing, kAll, kNothing, kNothing},
     kForPeers},
    {Action::kExplainErrand,
     "rueda.v1.Probe/Explain",
     {kNothing, kAll, kNothing, kNothing},
     kForPeers},
    {Action::kCheckHealth, "grpc.health.v1.Health/Check", {kAll, kAll, kAll, kAll}, ""},
    {Action::kWatchHealth, "grpc.health.v1.Health/Watch", {kAll, kAll, kAll, kAll}, ""},
    {Action::kCarryFrames, "rueda.v1.Data/Frames", {kNothing, kAll, kNothing, kNothing}, kForPeers},
}};

constexpr bool are_in_order() {
  for (size_t i = 0; i < kRules.size(); ++i) {
    if (kRules[i].action != static_cast<Action>(i)) return false;
  }
  return true;
}
static_assert(are_in_order());

}  // namespace

const std::array<Rule, kActions>& rules() { return kRules; }

Scope scope_of(Action action, Caller::Kind kind) {
  return rules().at(static_cast<size_t>(action)).scopes.at(static_cast<size_t>(kind));
}

Status check(Action action, const Caller& caller) {
  if (scope_of(action, caller.kind) != Scope::kNothing) return Status::ok();
  const bool is_known = caller.kind != Caller::Kind::kNobody;
  return {Code::kPermission,
          std::string(is_known ? rules().at(static_cast<size_t>(action)).refusal : kUnknown)};
}

bool reaches(Action action, const Caller& caller, uid_t owner) {
  switch (scope_of(action, caller.kind)) {
    case Scope::kNothing: return false;
    case Scope::kOwn: return caller.uid == owner || caller.uid == 0;
    case Scope::kAll: return true;
  }
  return false;
}

}  // namespace rueda::security
