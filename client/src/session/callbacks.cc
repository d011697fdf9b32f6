#include "client/src/session/callbacks.h"

#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include <pthread.h>
#include <signal.h>

#include "client/src/wire/errors.h"

namespace rueda::client {
namespace {

thread_local bool g_is_in_callback = false;

}  // namespace

bool Callbacks::is_in_callback() { return g_is_in_callback; }

Status Callbacks::add(Handle& handle, Callback callback) {
  if (stops_) return {Code::kShutDown, "Rueda has been shut down"};
  if (!thread_.joinable()) {
    if (Status started = start(); !started.is_ok()) return started;
  }
  handle.callback = callback;
  if (handle.pending > 0) {
    ++awaited_;
    if (phase_ == Phase::kIdle) has_work_.notify_one();
  } else {
    append(handle);
    wake();
  }
  return Status::ok();
}

Status Callbacks::start() {
  // Signals of the application are for its own threads.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  Status status;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    status = {Code::kResourceExhausted,
              std::string("the thread that calls back cannot be started: ") + error.what() +
                  "; raise the limit on threads, or use rueda_wait"};
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

// The session wakes the threads that sleep in the link after it has called this.
void Callbacks::on_ended(Handle& handle) {
  --awaited_;
  append(handle);
}

void Callbacks::append(Handle& handle) {
  handle.next = nullptr;
  (last_ended_ == nullptr ? first_ended_ : last_ended_->next) = &handle;
  last_ended_ = &handle;
}

void Callbacks::wake() {
  if (phase_ == Phase::kIdle) has_work_.notify_one();
  if (phase_ == Phase::kInLink) link_.wake_waiters();
}

void Callbacks::run() {
  ::pthread_setname_np(::pthread_self(), "rueda-callbacks");
  MutexLock lock(link_.mutex());
  for (;;) {
    phase_ = Phase::kAtWork;
    if (first_ended_ != nullptr) {
      call_first();
    } else if (awaited_ > 0) {
      phase_ = Phase::kInLink;
      // No ticket is named to the daemon, and nobody yields: a program that is told of an end does
      // not sleep for it.
      link_.wait_until(
          lock,
          [this]()
              RUEDA_REQUIRES(session_mutex) { return first_ended_ != nullptr || awaited_ == 0; },
          std::nullopt);
    } else if (stops_) {
      return;
    } else {
      phase_ = Phase::kIdle;
      has_work_.wait(lock);
    }
  }
}

void Callbacks::call_first() {
  Handle& handle = *first_ended_;
  first_ended_ = handle.next;
  if (first_ended_ == nullptr) last_ended_ = nullptr;
  const Callback callback = handle.callback;
  const rueda_handle id = handle.id;
  called_ = callback.function;
  rueda_result result{};
  const Status error = end_handle_(handle, result);
  {
    const MutexUnlock unlock(link_.mutex());
    clear_last_error();
    g_is_in_callback = true;
    callback.function(id, error.is_ok() ? RUEDA_OK : report(error), &result, callback.argument);
    g_is_in_callback = false;
  }
  called_ = nullptr;
  has_returned_.notify_all();
}

void Callbacks::take_back(rueda_callback function) {
  MutexLock lock(link_.mutex());
  Handle* next = std::exchange(first_ended_, nullptr);
  last_ended_ = nullptr;
  while (next != nullptr) {
    Handle& handle = *std::exchange(next, next->next);
    if (handle.callback.function != function) append(handle);
  }
  for (const auto& handle : handles_.all()) {
    if (handle->id == 0 || handle->callback.function != function) continue;
    handle->callback = {};
    if (handle->pending > 0) --awaited_;
  }
  wake();  // the thread may sleep for nothing now
  while (called_ == function) has_returned_.wait(lock);
}

void Callbacks::stop() {
  std::thread thread;
  {
    const MutexLock lock(link_.mutex());
    if (!thread_.joinable()) return;
    thread = std::move(thread_);
    link_.end({Code::kShutDown, "Rueda has been shut down"});
    stops_ = true;
    wake();
  }
  thread.join();
}

}  // namespace rueda::client
