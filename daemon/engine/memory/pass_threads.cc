#include "daemon/engine/memory/pass_threads.h"

#include <pthread.h>

#include "daemon/base/check.h"
#include "daemon/base/mutex.h"

namespace rueda::engine {

PassThreads::PassThreads(int threads) {
  RUEDA_CHECK(threads >= 1);
  for (int i = 1; i < threads; ++i) {
    helpers_.emplace_back([this, i] {
      ::pthread_setname_np(::pthread_self(), "rueda-pass");
      help(i);
    });
  }
}

PassThreads::~PassThreads() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  begun_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void PassThreads::take_parts(int thread, int64_t parts, const Part& do_part) {
  while (true) {
    const int64_t part = next_part_.fetch_add(1, std::memory_order_relaxed);
    if (part >= parts) return;
    do_part(thread, part);
  }
}

void PassThreads::run(int64_t parts, const Part& do_part) {
  if (helpers_.empty() || parts <= 1) {
    for (int64_t part = 0; part < parts; ++part) do_part(0, part);
    return;
  }
  {
    const MutexLock lock(mutex_);
    do_part_ = &do_part;
    parts_ = parts;
    next_part_ = 0;
    ++round_;
  }
  begun_.notify_all();
  take_parts(0, parts, do_part);
  MutexLock lock(mutex_);
  do_part_ = nullptr;  // A helper that wakes up now is too late.
  lock.unlock();
  const auto all_ended = [this] { return helping_ == 0; };
  if (wait_.until(all_ended)) return;
  lock.lock();
  while (helping_ != 0) ended_.wait(lock);
}

void PassThreads::help(int thread) {
  YieldingWait wait;
  uint64_t seen = 0;
  MutexLock lock(mutex_);
  while (true) {
    while (!stopping_ && (do_part_ == nullptr || round_ == seen)) begun_.wait(lock);
    if (stopping_) return;
    // The helper waits for the next round without sleeping at first, because a pass of many
    // megabytes is many rounds, one soon after the other.
    do {
      seen = round_;
      const Part* do_part = do_part_;
      const int64_t parts = parts_;
      if (do_part) {
        ++helping_;
        lock.unlock();
        take_parts(thread, parts, *do_part);
        lock.lock();
        if (--helping_ == 0) ended_.notify_one();
      }
      lock.unlock();
      const bool goes_on = wait.until([&] { return round_ != seen; });
      lock.lock();
      if (!goes_on) break;
    } while (!stopping_);
  }
}

}  // namespace rueda::engine
