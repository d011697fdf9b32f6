// The mutex under which the threads of a session work, by the name under which clang checks it.
//
// The link owns the mutex, and hands it out as DaemonLink::mutex(). The session, its device session
// and its handle table reach the link by different members, and clang, which compares names, would
// take these for different mutexes. So all of them say RUEDA_REQUIRES(session_mutex). That is one
// name for the mutexes of all sessions: no function here knows of two sessions.
#pragma once

#include "daemon/base/mutex.h"

namespace rueda::client {

extern Mutex session_mutex;  // is defined nowhere: it stands only in what clang checks

}  // namespace rueda::client
