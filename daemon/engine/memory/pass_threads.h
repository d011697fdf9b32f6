// Threads that help a data loop with passes over a node's memory, which one core cannot saturate.
// They work only while run() lasts, and sleep between.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "daemon/base/mutex.h"
#include "daemon/base/yielding_wait.h"

namespace rueda::engine {

class PassThreads {
 public:
  // Does `part` on `thread`.
  using Part = std::function<void(int thread, int64_t part)>;

  // `threads` is the number of threads, with the caller of run(), at least 1. With 1 none is
  // started.
  explicit PassThreads(int threads);
  ~PassThreads();

  int threads() const { return static_cast<int>(helpers_.size()) + 1; }
  // Calls do_part once for each part from 0 to parts - 1, here as thread 0 and on the helpers, in
  // any order, and returns when all calls have. It must not throw. One caller at a time.
  void run(int64_t parts, const Part& do_part);

 private:
  void help(int thread);
  void take_parts(int thread, int64_t parts, const Part& do_part);

  Mutex mutex_;
  Condition begun_;
  Condition ended_;
  // This is null if there is nothing to help with.
  const Part* do_part_ RUEDA_GUARDED_BY(mutex_) = nullptr;
  int64_t parts_ RUEDA_GUARDED_BY(mutex_) = 0;
  bool stopping_ RUEDA_GUARDED_BY(mutex_) = false;
  std::atomic<uint64_t> round_{0};
  std::atomic<int> helping_{0};
  std::atomic<int64_t> next_part_{0};
  YieldingWait wait_;  // The caller's wait.
  std::vector<std::thread> helpers_;
};

}  // namespace rueda::engine
