// Conversion between protobuf and the engine's messages about values that are not finite. Messages
// from a peer are checked here.
#pragma once

#include "daemon/base/status.h"
#include "daemon/engine/ports/control_plane.h"
#include "rueda/v1/control.pb.h"

namespace rueda::service {

v1::NonfiniteMessage to_proto(const engine::NonfiniteMessage& message);
Result<engine::NonfiniteMessage> from_proto(const v1::NonfiniteMessage& message);

}  // namespace rueda::service
