#include "client/jax/xla/call.h"

#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>

#include "client/jax/completers.h"

namespace rueda::jax {
namespace {

// XLA shows the code's name before the sentence. A death is ABORTED: UNAVAILABLE reads as if the
// same call could be made again.
xla::ffi::ErrorCode code_of(int error) {
  using xla::ffi::ErrorCode;
  switch (error) {
    case RUEDA_ERR_INVALID_ARGUMENT: return ErrorCode::kInvalidArgument;
    case RUEDA_ERR_MISMATCH: return ErrorCode::kFailedPrecondition;
    case RUEDA_ERR_DUPLICATE_NAME: return ErrorCode::kAlreadyExists;
    case RUEDA_ERR_TIMEOUT: return ErrorCode::kDeadlineExceeded;
    case RUEDA_ERR_PERMISSION: return ErrorCode::kPermissionDenied;
    case RUEDA_ERR_NOT_FOUND: return ErrorCode::kNotFound;
    case RUEDA_ERR_RESOURCE_EXHAUSTED: return ErrorCode::kResourceExhausted;
    case RUEDA_ERR_INTERNAL: return ErrorCode::kInternal;
    default: return ErrorCode::kAborted;
  }
}

// A call submits what it has within this time, unless it has to wait for operations itself.
constexpr std::chrono::seconds kPatience{5};
constexpr std::chrono::milliseconds kLook{1};

}  // namespace

void Call::follow(int submitted, rueda_handle handle) {
  if (submitted < 0) {
    fail(submitted, rueda_last_error());
    return;
  }
  open_.fetch_add(1, std::memory_order_relaxed);
  if (rueda_then(handle, &Call::on_end, this) == RUEDA_OK) return;
  // There is no thread for callbacks: this thread waits, which is slow and right.
  const int ended = rueda_wait(handle, -1, nullptr);
  if (ended < 0) fail(ended, rueda_last_error());
  open_.fetch_sub(1, std::memory_order_relaxed);
}

void Call::fail(int error, const std::string& sentence) {
  if (has_failed_.exchange(true, std::memory_order_relaxed)) return;
  error_ = error;
  sentence_ = std::string(rueda_error_name(error)) + ": " + sentence;
}

// While the process leaves the job, calls wait here.
Call* Call::begin() {
  ++submitting_;
  while (is_closed_.load()) {
    --submitting_;
    while (is_closed_.load()) std::this_thread::sleep_for(kLook);
    ++submitting_;
  }
  return new Call;
}

// rueda_shutdown must not run beside what submits.
void Call::shut_down() {
  is_closed_.store(true);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (submitting_.load() > 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kLook);
  }
  if (submitting_.load() == 0) rueda_shutdown();
  is_closed_.store(false);
}

// The process must not go while another thread leaves the job for it.
void Call::await_leave() {
  while (is_shutting_down_.load()) std::this_thread::sleep_for(kLook);
}

void Call::leave_job() {
  std::atexit(await_leave);
  is_leaving_.store(true);
  if (count_.load() > 0 && !has_left_.exchange(true)) shut_down();
}

void Call::release() {
  --submitting_;
  // The call is of a program that XLA had not come to when the process began to end. XLA waits for
  // it, and the other ranks may wait for this process.
  if (is_leaving_.load() && !has_left_.exchange(true)) {
    is_shutting_down_.store(true);
    Completers::of_process().run([] {
      shut_down();
      is_shutting_down_.store(false);
    });
  }
  if (open_.fetch_sub(1, std::memory_order_acq_rel) == 1) keep_promise();
}

void Call::on_end(rueda_handle, int error, const rueda_result*, void* call) {
  auto* self = static_cast<Call*>(call);
  if (error < 0) self->fail(error, rueda_last_error());
  if (self->open_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  Completers::of_process().run([self] { self->keep_promise(); });
}

void Call::keep_promise() {
  xla::ffi::Promise promise = std::move(promise_);
  const bool has_failed = has_failed_.load(std::memory_order_relaxed);
  xla::ffi::Error error = has_failed ? xla::ffi::Error(code_of(error_), std::move(sentence_))
                                     : xla::ffi::Error::Success();
  delete this;  // XLA may run for long in what follows, and needs nothing of the call
  if (has_failed) {
    promise.SetError(std::move(error));
  } else {
    promise.SetAvailable();
  }
}

}  // namespace rueda::jax
