// The part of the sandbox that concerns files.
#pragma once

#include <span>
#include <string>

#include "daemon/base/status.h"

namespace rueda::security {

// What may be done with a path, and with all that is beneath it.
struct FileRule {
  enum class Access {
    kRead,    // Files are read, and folders listed.
    kDevice,  // As kRead; devices are written, too, and take their ioctls.
    kSocket,  // Sockets are made, and files removed; nothing is read.
  };
  std::string path;
  Access access = Access::kRead;
};

// Lets the calling thread, and those that it will start, open no files but those of the rules, for
// what they allow; paths that are not there are left out. No program can be executed, and files
// that are open already are not concerned. The error is kUnavailable if the kernel has no Landlock,
// or another sandbox denies it.
Status enter_landlock(std::span<const FileRule> rules);

}  // namespace rueda::security
