// Gives a rank that has no CUDA library the CUDA driver. It is loaded at run time, as librueda
// loads it, from $RUEDA_CUDA_LIBRARY or libcuda.so.1. Errors are thrown as Failure. The object is
// for one thread, except that another thread may use streams of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "bench/base/failure.h"

namespace rueda::gpu::bench {

// Uses the process's first GPU; its primary context becomes the calling thread's.
class Driver {
 public:
  // Returns "" if there is a GPU that can be used, and otherwise why there is none.
  static std::string lack();

  Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // Must be called first on every other thread that uses the GPU.
  void enter();
  std::string device_name() const;
  // Allocates memory of the GPU. Throws Failure if there is not enough.
  uint64_t allocate(uint64_t bytes);
  void free(uint64_t address);
  // Returns how many bytes of the GPU are free.
  uint64_t free_bytes() const;
  // Allocates pinned memory of the host.
  std::byte* allocate_host(uint64_t bytes);
  void free_host(std::byte* memory);

  void* make_stream();
  void free_stream(void* stream);
  void synchronize(void* stream);
  void copy_to_device(uint64_t to, const std::byte* from, uint64_t bytes, void* stream);
  void copy_to_host(std::byte* to, uint64_t from, uint64_t bytes, void* stream);
  void copy_on_device(uint64_t to, uint64_t from, uint64_t bytes, void* stream);

  // Launches a kernel that computes for some 100 us on every multiprocessor and touches no memory.
  // With a driver that has no modules (a fake one) nothing is launched.
  void compute(void* stream);

 private:
  struct Functions;
  static Functions* functions();
  void check(int result, const char* call) const;
  bool load_kernel();

  Functions& cuda_;
  int device_ = 0;
  void* context_ = nullptr;
  int multiprocessors_ = 0;
  void* kernel_ = nullptr;
  bool has_kernel_ = false;
  bool was_kernel_loaded_ = false;
};

// Holds memory of the GPU for as long as it lives.
class DeviceBuffer {
 public:
  DeviceBuffer(Driver& driver, uint64_t bytes)
      : driver_(driver), address_(driver.allocate(bytes)) {}
  ~DeviceBuffer() { driver_.free(address_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  uint64_t address() const { return address_; }

 private:
  Driver& driver_;
  uint64_t address_;
};

}  // namespace rueda::gpu::bench
