// Conversion between the protobuf of stalls and the core's plain structs (convert.h). Bounds are
// checked here.
#pragma once

#include "daemon/base/status.h"
#include "daemon/core/messages/stall_messages.h"
#include "rueda/v1/control.pb.h"

namespace rueda::service {

void put_stall(const core::StallMessage& from, v1::JobMessage& to);

Result<core::StallMessage> read_stall(const v1::StallReport& from);
Result<core::StallMessage> read_stall(const v1::StallQuery& from);
Result<core::StallMessage> read_stall(const v1::StallAnswer& from);
Result<core::StallMessage> read_stall(const v1::StallNotice& from);

}  // namespace rueda::service
