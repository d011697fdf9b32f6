// Says how large a message about order is by its fields: names, numbers of 8 bytes and less, words
// of bits. The overhead of protobuf and gRPC is left out.
#pragma once

#include <cstdint>

#include "daemon/core/messages/messages.h"

namespace rueda::scale {

uint64_t bytes_of(const core::AgreementMessage& message);

}  // namespace rueda::scale
