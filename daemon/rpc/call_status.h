// How a call ends, whatever carries it: gRPC over the network, or frames at the unix socket. This
// header has nothing of gRPC's.
#pragma once

#include <cstdint>
#include <string>

namespace rueda {

// The values are gRPC's.
enum class CallCode : uint16_t {
  kOk = 0,
  kCancelled = 1,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kUnimplemented = 12,
  kUnavailable = 14,
};

struct CallStatus {
  CallCode code = CallCode::kOk;
  std::string text;  // A sentence for whoever has called; "" if all went well.

  bool is_ok() const { return code == CallCode::kOk; }
};

}  // namespace rueda
