// Conversion between protobuf and the engine's messages about communicators of GPUs. Messages from
// a peer are checked here.
#pragma once

#include "daemon/base/status.h"
#include "daemon/engine/ports/control_plane.h"
#include "rueda/v1/control.pb.h"

namespace rueda::service {

v1::CommunicatorMessage to_proto(const engine::CommunicatorMessage& message);
Result<engine::CommunicatorMessage> from_proto(const v1::CommunicatorMessage& message);

}  // namespace rueda::service
