// Errors of the library: a Status inside (daemon/base/status.h), and a negative code with a
// sentence per thread outside (rueda.h).
#pragma once

#include "daemon/base/status.h"

namespace rueda::client {

// Stores the sentence for rueda_last_error, and returns the code for the C caller: 0 or negative.
int report(const Status& status);
void clear_last_error();
const char* last_error();

// Converts a code that came from the daemon. A code that rueda.h does not have becomes kInternal.
Code code_from_wire(int32_t code);

}  // namespace rueda::client
