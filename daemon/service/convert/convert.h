// Conversion between protobuf and the core's plain structs. Messages from a peer are checked here:
// after this, enumerations have known values and numbers lie in their ranges.
#pragma once

#include "daemon/base/status.h"
#include "daemon/engine/job/job_runner.h"
#include "daemon/engine/ports/control_plane.h"
#include "daemon/service/members/membership.h"
#include "rueda/v1/agent.pb.h"
#include "rueda/v1/control.pb.h"

namespace rueda::service {

v1::JobMessage to_proto(const engine::Envelope& envelope);
Result<engine::Envelope> from_proto(const v1::JobMessage& message);

// The caller fills in the job's owner, because it knows the connection's credentials. Nodes for
// which the launcher has no control address are looked up in the membership.
Result<engine::JobSpec> from_proto(const v1::JobSpec& spec, const Membership& membership);

}  // namespace rueda::service
