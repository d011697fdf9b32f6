// Conversion between protobuf and the engine's messages about timelines. Messages from a peer are
// checked here.
#pragma once

#include "daemon/base/status.h"
#include "daemon/engine/ports/control_plane.h"
#include "daemon/engine/trace/timeline.h"
#include "rueda/v1/agent.pb.h"
#include "rueda/v1/timeline.pb.h"

namespace rueda::service {

v1::TimelineMessage to_proto(const engine::TimelineMessage& message);
Result<engine::TimelineMessage> from_proto(const v1::TimelineMessage& message);

// An error says what is wrong with the path.
Result<engine::TimelineRequest> from_proto(const v1::TimelineRequest& request);

// This is an event for the launcher.
v1::AgentEvent to_proto(const engine::TimelineNews& news);

}  // namespace rueda::service
