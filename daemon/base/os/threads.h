// What to do about a limit of processes that leaves no room for threads.
#pragma once

#include "daemon/base/status.h"

namespace rueda {

// Whether so many threads more can be started now: all of them are, and end. Libraries that find
// that out by themselves abort.
Status check_thread_limit(int count);

// What std::terminate() is to do instead of aborting: it says what was thrown, in one line after
// the program's name, and ends with 1. A thread that could not be started is such a case.
void say_why_it_terminates(const char* program);

}  // namespace rueda
