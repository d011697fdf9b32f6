// The token with which this process attaches as its rank, and nothing else.
#pragma once

#include <string>
#include <string_view>

#include "daemon/base/status.h"

namespace rueda::client {

// Returns the bytes of a token in hexadecimal; an error names the variable, RUEDA_JOB_TOKEN.
Result<std::string> parse_token(std::string_view text);

// Finds the token of this process in `job`: `given` unless it is null, or else what is behind the
// descriptor that RUEDA_JOB_TOKEN_FD names, or else RUEDA_JOB_TOKEN. The first call that finds the
// descriptor closes it and removes the variable, so that no child of this process has the token;
// the process keeps it in memory, because it may leave its job and come back. Not thread-safe.
Result<std::string> own_token(const char* given, const std::string& job);

}  // namespace rueda::client
