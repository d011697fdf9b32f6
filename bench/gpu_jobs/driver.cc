#include "bench/gpu_jobs/driver.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include <dlfcn.h>

namespace rueda::gpu::bench {

using rueda::bench::Failure;

namespace {

using Pointer = unsigned long long;

constexpr int kMultiprocessors = 16;  // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
constexpr unsigned int kNonBlocking = 1;
constexpr unsigned int kThreads = 256;

// The kernel is a chain of 40,000 dependent multiply-adds in each thread, of some 4 cycles each.
constexpr const char* kPtx = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry rueda_compute()
{
  .reg .f32 %x;
  .reg .u32 %i;
  .reg .pred %again;
  .reg .u32 %t;
  mov.u32 %t, %tid.x;
  cvt.rn.f32.u32 %x, %t;
  mov.u32 %i, 0;
LOOP:
  fma.rn.f32 %x, %x, 0f3F7FFFFF, 0f3F800000;
  fma.rn.f32 %x, %x, 0f3F7FFFFF, 0f3F800000;
  fma.rn.f32 %x, %x, 0f3F7FFFFF, 0f3F800000;
  fma.rn.f32 %x, %x, 0f3F7FFFFF, 0f3F800000;
  add.u32 %i, %i, 4;
  setp.lt.u32 %again, %i, 40000;
  @%again bra LOOP;
  setp.eq.f32 %again, %x, 0f00000000;
  @%again trap;
  ret;
}
)";

}  // namespace

struct Driver::Functions {
  int (*init)(unsigned int);
  int (*error_string)(int, const char**);
  int (*device_count)(int*);  // these functions may be missing in a fake driver
  int (*device_get)(int*, int);
  int (*device_name)(char*, int, int);
  int (*device_attribute)(int*, int, int);
  int (*context_retain)(void**, int);
  int (*context_set)(void*);
  int (*memory_info)(size_t*, size_t*);
  int (*allocate)(Pointer*, size_t);
  int (*free)(Pointer);
  int (*host_register)(void*, size_t, unsigned int);
  int (*host_unregister)(void*);
  int (*stream_create)(void**, unsigned int);
  int (*stream_destroy)(void*);
  int (*stream_synchronize)(void*);
  int (*to_device)(Pointer, const void*, size_t, void*);
  int (*to_host)(void*, Pointer, size_t, void*);
  int (*on_device)(Pointer, Pointer, size_t, void*);
  int (*module_load)(void**, const void*);
  int (*module_function)(void**, void*, const char*);
  int (*launch)(void*, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
                unsigned int, unsigned int, void*, void**, void**);
  std::string missing;
};

Driver::Functions* Driver::functions() {
  static Functions* const found = []() -> Functions* {
    const char* const named = std::getenv("RUEDA_CUDA_LIBRARY");
    void* const library = ::dlopen(named != nullptr ? named : "libcuda.so.1", RTLD_NOW);
    if (library == nullptr) return nullptr;
    auto* const functions = new Functions{};  // NOLINT: of the process
    const auto find = [&](auto& function, const char* name, bool is_needed = true) {
      void* const symbol = ::dlsym(library, name);
      std::memcpy(&function, &symbol, sizeof(symbol));
      if (symbol == nullptr && is_needed) functions->missing = name;
    };
    find(functions->init, "cuInit");
    find(functions->error_string, "cuGetErrorString");
    find(functions->device_count, "cuDeviceGetCount", false);
    find(functions->device_get, "cuDeviceGet");
    find(functions->device_name, "cuDeviceGetName", false);
    find(functions->device_attribute, "cuDeviceGetAttribute", false);
    find(functions->context_retain, "cuDevicePrimaryCtxRetain");
    find(functions->context_set, "cuCtxSetCurrent");
    find(functions->memory_info, "cuMemGetInfo_v2");
    find(functions->allocate, "cuMemAlloc_v2");
    find(functions->free, "cuMemFree_v2");
    find(functions->host_register, "cuMemHostRegister_v2");
    find(functions->host_unregister, "cuMemHostUnregister");
    find(functions->stream_create, "cuStreamCreate");
    find(functions->stream_destroy, "cuStreamDestroy_v2");
    find(functions->stream_synchronize, "cuStreamSynchronize");
    find(functions->to_device, "cuMemcpyHtoDAsync_v2");
    find(functions->to_host, "cuMemcpyDtoHAsync_v2");
    find(functions->on_device, "cuMemcpyDtoDAsync_v2");
    find(functions->module_load, "cuModuleLoadData", false);
    find(functions->module_function, "cuModuleGetFunction", false);
    find(functions->launch, "cuLaunchKernel", false);
    return functions;
  }();
  return found;
}

std::string Driver::lack() {
  Functions* const cuda = functions();
  if (cuda == nullptr) return "there is no CUDA driver";
  if (!cuda->missing.empty()) return "the CUDA driver has no " + cuda->missing;
  if (cuda->init(0) != 0) return "the CUDA driver does not start";
  int count = 1;
  if (cuda->device_count != nullptr && (cuda->device_count(&count) != 0 || count == 0)) {
    return "there is no GPU to be used";
  }
  return "";
}

Driver::Driver() : cuda_(*functions()) {
  if (const std::string reason = lack(); !reason.empty()) throw Failure(reason);
  check(cuda_.device_get(&device_, 0), "cuDeviceGet");
  check(cuda_.context_retain(&context_, device_), "cuDevicePrimaryCtxRetain");
  if (cuda_.device_attribute != nullptr) {
    check(cuda_.device_attribute(&multiprocessors_, kMultiprocessors, device_),
          "cuDeviceGetAttribute");
  }
  enter();
}

void Driver::check(int result, const char* call) const {
  if (result == 0) return;
  const char* text = nullptr;
  cuda_.error_string(result, &text);
  throw Failure(std::string(call) + ": " + (text != nullptr ? text : "unknown error") + " (" +
                std::to_string(result) + ")");
}

void Driver::enter() { check(cuda_.context_set(context_), "cuCtxSetCurrent"); }

std::string Driver::device_name() const {
  std::array<char, 256> name{};
  if (cuda_.device_name == nullptr) return "a GPU that is none";
  check(cuda_.device_name(name.data(), static_cast<int>(name.size()), device_), "cuDeviceGetName");
  return name.data();
}

uint64_t Driver::allocate(uint64_t bytes) {
  Pointer address = 0;
  check(cuda_.allocate(&address, bytes), "cuMemAlloc");
  return address;
}

void Driver::free(uint64_t address) { cuda_.free(address); }

uint64_t Driver::free_bytes() const {
  size_t free = 0;
  size_t total = 0;
  check(cuda_.memory_info(&free, &total), "cuMemGetInfo");
  return free;
}

std::byte* Driver::allocate_host(uint64_t bytes) {
  constexpr size_t kPage = 4096;
  void* const memory = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
  if (memory == nullptr) throw Failure("there is no host memory");
  std::memset(memory, 0, bytes);
  const int result = cuda_.host_register(memory, bytes, 0);
  if (result != 0) std::free(memory);
  check(result, "cuMemHostRegister");
  return static_cast<std::byte*>(memory);
}

void Driver::free_host(std::byte* memory) {
  cuda_.host_unregister(memory);
  std::free(memory);
}

void* Driver::make_stream() {
  void* stream = nullptr;
  check(cuda_.stream_create(&stream, kNonBlocking), "cuStreamCreate");
  return stream;
}

void Driver::free_stream(void* stream) { cuda_.stream_destroy(stream); }

void Driver::synchronize(void* stream) {
  check(cuda_.stream_synchronize(stream), "cuStreamSynchronize");
}

void Driver::copy_to_device(uint64_t to, const std::byte* from, uint64_t bytes, void* stream) {
  check(cuda_.to_device(to, from, bytes, stream), "cuMemcpyHtoDAsync");
}

void Driver::copy_to_host(std::byte* to, uint64_t from, uint64_t bytes, void* stream) {
  check(cuda_.to_host(to, from, bytes, stream), "cuMemcpyDtoHAsync");
}

void Driver::copy_on_device(uint64_t to, uint64_t from, uint64_t bytes, void* stream) {
  check(cuda_.on_device(to, from, bytes, stream), "cuMemcpyDtoDAsync");
}

bool Driver::load_kernel() {
  if (was_kernel_loaded_) return has_kernel_;
  was_kernel_loaded_ = true;
  if (cuda_.module_load == nullptr || cuda_.launch == nullptr) return false;
  void* module = nullptr;
  check(cuda_.module_load(&module, kPtx), "cuModuleLoadData");
  check(cuda_.module_function(&kernel_, module, "rueda_compute"), "cuModuleGetFunction");
  has_kernel_ = true;
  return true;
}

void Driver::compute(void* stream) {
  if (!load_kernel()) return;
  const auto blocks = static_cast<unsigned int>(std::max(multiprocessors_, 1)) * 4;
  check(cuda_.launch(kernel_, blocks, 1, 1, kThreads, 1, 1, 0, stream, nullptr, nullptr),
        "cuLaunchKernel");
}

}  // namespace rueda::gpu::bench
