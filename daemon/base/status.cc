#include "daemon/base/status.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace rueda {

namespace detail {
void check_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "rueda: bug: check failed: %s at %s:%d\n", expression, file, line);
  std::abort();
}
}  // namespace detail

const char* to_string(Code code) {
  switch (code) {
    case Code::kOk: return "OK";
    case Code::kInvalidArgument: return "INVALID_ARGUMENT";
    case Code::kMismatch: return "MISMATCH";
    case Code::kDuplicateName: return "DUPLICATE_NAME";
    case Code::kTimeout: return "TIMEOUT";
    case Code::kRankLost: return "RANK_LOST";
    case Code::kNodeLost: return "NODE_LOST";
    case Code::kDaemonLost: return "DAEMON_LOST";
    case Code::kShutDown: return "SHUT_DOWN";
    case Code::kVersion: return "VERSION";
    case Code::kPermission: return "PERMISSION";
    case Code::kNotFound: return "NOT_FOUND";
    case Code::kResourceExhausted: return "RESOURCE_EXHAUSTED";
    case Code::kUnavailable: return "UNAVAILABLE";
    case Code::kInternal: return "INTERNAL";
  }
  return "UNKNOWN";
}

const Status::Error& Status::error() const {
  static const Error none;
  return error_ ? *error_ : none;
}

std::string Status::to_string() const {
  if (is_ok()) return "OK";
  return std::string(rueda::to_string(code())) + ": " + message();
}

std::string errno_text(const std::string& what, int error) {
  char text[128];
  return what + ": " + ::strerror_r(error, text, sizeof(text));
}

}  // namespace rueda
