// The filter of system calls.
#pragma once

#include "daemon/base/status.h"

namespace rueda::security {

// Lets the calling thread, and those that it will start, make only the system calls of the list in
// seccomp.cc. All others fail: with EPERM, or with ENOSYS where libraries then do without. The
// process also gains no privileges by executing programs any more. The error is kUnavailable if the
// kernel takes no filters.
Status enter_seccomp();

}  // namespace rueda::security
