// Between protobuf and what the engine says of values that are not finite. What comes from a peer
// is checked here.
#pragma once

#include "daemon/base/status.h"
#include "daemon/engine/ports/control_plane.h"
#include "rueda/v1/control.pb.h"

namespace rueda::service {

v1::NonfiniteMessage to_proto(const engine::NonfiniteMessage& message);
Result<engine::NonfiniteMessage> from_proto(const v1::NonfiniteMessage& message);

}  // namespace rueda::service
