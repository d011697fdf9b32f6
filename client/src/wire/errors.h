// How the library speaks of errors: Status inside (daemon/base/status.h), negative codes and a
// sentence per thread outside (rueda.h).
#pragma once

#include <string>

#include "daemon/base/status.h"

namespace rueda::client {

// Remembers the sentence for rueda_last_error and returns the code for the C caller: 0 or negative.
int report(const Status& status);
void clear_last_error();
const char* last_error();

// A code that came from the daemon. Anything that rueda.h does not know becomes kInternal.
Code code_from_wire(int32_t code);

// "what: No such file or directory" for the errno given.
std::string errno_text(const std::string& what, int error);

}  // namespace rueda::client
