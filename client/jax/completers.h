// Threads that complete XLA's futures. XLA may go on with the rest of its program in the thread
// that completes a future, as jaxlib 0.10.2 does, and run whatever comes next there: long
// computations, Python that wants the interpreter's lock, a wait for another future. librueda's
// thread of callbacks must do none of that (rueda.h), so it hands the completion over to these.
#pragma once

#include <deque>
#include <functional>

#include "daemon/base/mutex.h"

namespace rueda::jax {

// A pool of threads that run jobs. Each job has its thread to itself. Thread-safe. The threads
// begin when they are needed, block all signals, sleep while there is nothing to do, and are never
// joined.
class Completers {
 public:
  // Returns the process's pool. It is never destroyed, because its threads may outlive static
  // objects.
  static Completers& of_process();

  // Runs the job in an idle thread or in a new one. Beyond kMost threads the job waits in a queue.
  // If there is no thread and none can be started, the job runs in the caller's. Jobs do not throw.
  void run(std::function<void()> job) RUEDA_EXCLUDES(mutex_);

  // The most threads, and so the most jobs that may be under way beside each other.
  static constexpr int kMost = 64;

 private:
  bool start_thread() RUEDA_REQUIRES(mutex_);
  void work() RUEDA_EXCLUDES(mutex_);

  Mutex mutex_;
  Condition has_job_;
  std::deque<std::function<void()>> jobs_ RUEDA_GUARDED_BY(mutex_);
  int idle_ RUEDA_GUARDED_BY(mutex_) = 0;  // threads that sleep or have just been told of a job
  int threads_ RUEDA_GUARDED_BY(mutex_) = 0;
};

}  // namespace rueda::jax
