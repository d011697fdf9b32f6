// How large a message about order is, as its fields go: names, numbers of 8 bytes and less, words
// of bits. What protobuf and gRPC add is not in it.
#pragma once

#include <cstdint>

#include "daemon/core/messages/messages.h"

namespace rueda::scale {

uint64_t bytes_of(const core::AgreementMessage& message);

}  // namespace rueda::scale
