// Tells programs of the ends of their operations (rueda_then): one thread, begun with the first
// callback, ends handles as rueda_wait does, and calls back. While handles with callbacks are in
// flight it sleeps in the link, as threads that wait do; otherwise it sleeps until there is one.
// docs/decisions/0091-told-of-an-end.md.
//
// It belongs to the session. Callbacks are called one after the other, in the order in which their
// handles have ended, and without the session's mutex.
#pragma once

#include <cstddef>
#include <functional>
#include <thread>
#include <utility>

#include "client/include/rueda/rueda.h"
#include "client/src/session/daemon_link.h"
#include "client/src/session/handle_table.h"
#include "client/src/session/operation.h"
#include "client/src/session/session_mutex.h"
#include "daemon/base/mutex.h"
#include "daemon/base/status.h"

namespace rueda::client {

class Callbacks {
 public:
  // Ends a handle whose operations have ended: gives it back, fills in its result, and returns its
  // error. It is called with the session's mutex held, and may give it up meanwhile.
  using EndHandle = std::function<Status(Handle& handle, rueda_result& result)>;

  // All of these must outlive this object.
  Callbacks(DaemonLink& link, HandleTable& handles, EndHandle end_handle)
      : link_(link), handles_(handles), end_handle_(std::move(end_handle)) {}
  Callbacks(const Callbacks&) = delete;
  Callbacks& operator=(const Callbacks&) = delete;

  // Returns whether the calling thread is in a callback. A callback must not wait: no other could
  // be called meanwhile.
  static bool is_in_callback();

  // Gives a handle its callback, which it must not have yet. Returns an error, and does nothing, if
  // there can be no thread, or after stop().
  Status add(Handle& handle, Callback callback) RUEDA_REQUIRES(session_mutex);
  // Says that all operations of a handle with a callback have ended.
  void on_ended(Handle& handle) RUEDA_REQUIRES(session_mutex);
  // Takes back all callbacks that have this function: their handles are again as they were before
  // add(). Returns when the function is not being called. The caller is in no callback.
  void take_back(rueda_callback function) RUEDA_EXCLUDES(session_mutex);

  // Ends the job, waits until all callbacks have returned, and ends the thread. It may be called
  // again. The caller is in no callback.
  void stop() RUEDA_EXCLUDES(session_mutex);

 private:
  enum class Phase {
    kAtWork,  // holds the mutex, or is in a callback
    kIdle,    // no handle has a callback
    kInLink   // sleeps for the end of one that has
  };

  Status start() RUEDA_REQUIRES(session_mutex);
  void run() RUEDA_EXCLUDES(session_mutex);
  // Ends the first of the handles that have ended, and calls back. It gives the mutex up meanwhile.
  void call_first() RUEDA_REQUIRES(session_mutex);
  void append(Handle& handle) RUEDA_REQUIRES(session_mutex);
  // Wakes the thread if it sleeps, because there is something to be done.
  void wake() RUEDA_REQUIRES(session_mutex);

  DaemonLink& link_;
  HandleTable& handles_;
  const EndHandle end_handle_;

  std::thread thread_ RUEDA_GUARDED_BY(session_mutex);
  Phase phase_ RUEDA_GUARDED_BY(session_mutex) = Phase::kAtWork;
  bool stops_ RUEDA_GUARDED_BY(session_mutex) = false;
  Condition has_work_;
  // Counts the handles with callbacks that have operations in flight.
  size_t awaited_ RUEDA_GUARDED_BY(session_mutex) = 0;
  // The handles with callbacks that have ended, by Handle::next.
  Handle* first_ended_ RUEDA_GUARDED_BY(session_mutex) = nullptr;
  Handle* last_ended_ RUEDA_GUARDED_BY(session_mutex) = nullptr;
  // The callback that is being called, or NULL.
  rueda_callback called_ RUEDA_GUARDED_BY(session_mutex) = nullptr;
  Condition has_returned_;
};

}  // namespace rueda::client
