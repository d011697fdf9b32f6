#include "client/jax/completers.h"

#include <system_error>
#include <thread>
#include <utility>

#include <pthread.h>
#include <signal.h>

namespace rueda::jax {

Completers& Completers::of_process() {
  static auto* completers = new Completers;
  return *completers;
}

void Completers::run(std::function<void()> job) {
  {
    MutexLock lock(mutex_);
    const bool needs_thread = static_cast<int>(jobs_.size()) >= idle_ && threads_ < kMost;
    if (!needs_thread || start_thread() || threads_ > 0) {
      jobs_.push_back(std::move(job));
      has_job_.notify_one();
      return;
    }
  }
  job();
}

bool Completers::start_thread() {
  // The thread inherits the mask: signals are for the program's own threads.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  bool is_started = true;
  try {
    std::thread([this] { work(); }).detach();
    ++threads_;
    ++idle_;
  } catch (const std::system_error&) {
    is_started = false;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return is_started;
}

void Completers::work() {
  ::pthread_setname_np(::pthread_self(), "rueda-jax");
  MutexLock lock(mutex_);
  for (;;) {
    while (jobs_.empty()) has_job_.wait(lock);
    std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    --idle_;
    lock.unlock();
    job();
    job = nullptr;  // what the job holds is destroyed without the mutex
    lock.lock();
    ++idle_;
  }
}

}  // namespace rueda::jax
