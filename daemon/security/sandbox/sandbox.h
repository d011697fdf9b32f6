// The daemon's sandbox: what it gives up before it serves anybody, so that who takes it over by a
// mistake in it does not have all that its user has (docs/decisions/0084-the-daemons-sandbox.md).
//
// seccomp refuses system calls that the daemon never makes, with EPERM, and Landlock all files but
// those that it needs. Both hold for this process for ever, and for what it starts; nothing that
// was open before is touched.
#pragma once

#include <string>
#include <vector>

#include "daemon/base/status.h"

namespace rueda::security {

struct SandboxOptions {
  // "auto": what the kernel has; "yes": all of it, or the program does not start; "no": none.
  std::string mode = "auto";
  // The unix sockets, which are made and removed within the sandbox; '@' begins an abstract name.
  std::vector<std::string> sockets;
  std::string tls_dir;  // The folder of certificates; empty: there is none.
};

// What is in force.
struct Sandbox {
  bool has_seccomp = false;
  bool has_landlock = false;
  // Why a part that was asked for is not in force, as a sentence; empty: all of it is.
  std::string trouble;
};

// Enters the sandbox. The process must have no other threads, because Landlock confines the calling
// thread and those that it starts. The error, with "yes" alone, names the part that cannot be had
// and the remedy.
Result<Sandbox> enter_sandbox(const SandboxOptions& options);

}  // namespace rueda::security
