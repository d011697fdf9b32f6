// Between protobuf and what the engine says of timelines. What comes from a peer is checked here.
#pragma once

#include "daemon/base/status.h"
#include "daemon/engine/ports/control_plane.h"
#include "daemon/engine/trace/timeline.h"
#include "rueda/v1/agent.pb.h"
#include "rueda/v1/timeline.pb.h"

namespace rueda::service {

v1::TimelineMessage to_proto(const engine::TimelineMessage& message);
Result<engine::TimelineMessage> from_proto(const v1::TimelineMessage& message);

// The error says what is wrong with the path.
Result<engine::TimelineRequest> from_proto(const v1::TimelineRequest& request);

// For the launcher.
v1::AgentEvent to_proto(const engine::TimelineNews& news);

}  // namespace rueda::service
