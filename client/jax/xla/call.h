// One run of a handler: the promise that XLA waits for, and the operations of librueda that keep
// it.
#pragma once

#include <atomic>
#include <string>

#include <rueda/rueda.h>
#include <xla/ffi/api/ffi.h>

namespace rueda::jax {

// Keeps XLA's promise when all operations of the call have ended, with the first error if one has
// failed. A call owns itself: it lives until its promise has been kept. The thread that makes it
// calls begin(), follow() and release(); callbacks come on librueda's thread.
class Call {
 public:
  // Makes a call, whose promise is not kept before release().
  static Call* begin();

  // Says that the process is about to end. It leaves the job (rueda_shutdown), which ends the calls
  // that are under way: at once if there are any, and this function waits for that, for some
  // seconds at most; otherwise when one begins. To be called once.
  static void leave_job();

  // Returns the future of the promise; to be called once, before release().
  xla::ffi::Future future() { return xla::ffi::Future(promise_); }

  // Follows an operation to its end. `submitted` is what librueda's function returned: if it is
  // negative the call fails with librueda's sentence, and `handle` is ignored.
  void follow(int submitted, rueda_handle handle);

  // Makes the call fail with this sentence, unless it has failed already. `error` is RUEDA_ERR_*.
  void fail(int error, const std::string& sentence);

  // Says that nothing more will be followed. The call may be gone when this returns.
  void release();

 private:
  Call() { count_.fetch_add(1); }
  ~Call() { count_.fetch_sub(1); }
  static void on_end(rueda_handle handle, int error, const rueda_result* result, void* call);
  void keep_promise();
  static void shut_down();
  static void await_leave();

  // Calls that have not kept their promises. Either leave_job() sees a call, or the call sees it.
  static inline std::atomic<int> count_{0};
  static inline std::atomic<bool> is_leaving_{false};
  static inline std::atomic<bool> has_left_{false};
  static inline std::atomic<int> submitting_{0};  // Calls between begin() and release().
  static inline std::atomic<bool> is_closed_{false};
  static inline std::atomic<bool> is_shutting_down_{false};  // In a thread of Completers.

  xla::ffi::Promise promise_;
  std::atomic<int> open_{1};  // operations that have not ended, and one until release()
  std::atomic<bool> has_failed_{false};
  int error_ = RUEDA_OK;  // written by whoever has set has_failed_, read after all others are done
  std::string sentence_;
};

}  // namespace rueda::jax
