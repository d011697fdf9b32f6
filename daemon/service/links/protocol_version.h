// The version of the control protocol (control.proto). Both ends of a link must have the same.
#pragma once

#include <cstdint>

namespace rueda::service {

constexpr uint32_t kProtocolVersion = 14;

}  // namespace rueda::service
