// A handler for tests of order (jax_order.py): it copies its argument to its result, and completes
// after a time that the program computes, without holding a thread of XLA's meanwhile. XLA has few
// threads, and where Python or a loop takes the time, one of two waits for the other.
#include <chrono>
#include <cstring>
#include <thread>

#include <xla/ffi/api/ffi.h>

namespace {

namespace ffi = xla::ffi;

ffi::Future late(ffi::Buffer<ffi::F64> seconds, ffi::AnyBuffer x, ffi::Result<ffi::AnyBuffer> y) {
  ffi::Promise promise;
  ffi::Future future(promise);
  std::memcpy(y->untyped_data(), x.untyped_data(), x.size_bytes());
  const std::chrono::duration<double> wait(*seconds.typed_data());
  std::thread([promise, wait]() mutable {
    std::this_thread::sleep_for(wait);
    promise.SetAvailable();
  }).detach();
  return future;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) XLA_FFI_Error* rueda_test_late(
    XLA_FFI_CallFrame* frame) {
  static auto* handler = ffi::Ffi::Bind()
                             .Arg<ffi::Buffer<ffi::F64>>()
                             .Arg<ffi::AnyBuffer>()
                             .Ret<ffi::AnyBuffer>()
                             .To(late)
                             .release();
  return handler->Call(frame);
}
