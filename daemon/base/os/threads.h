// Finds out whether a limit of processes leaves room for threads, and says so if it does not.
#pragma once

#include "daemon/base/status.h"

namespace rueda {

// Returns an error unless so many more threads can be started now. It starts them all, and they end
// at once. Libraries that find that out by themselves abort.
Status check_thread_limit(int count);

// Makes std::terminate() say what was thrown, in one line after the program's name, and end the
// program with 1 if the system refused something, such as to start a thread; it aborts in other
// cases.
void say_why_it_terminates(const char* program);

}  // namespace rueda
