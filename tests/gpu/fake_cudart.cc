// A fake CUDA runtime: cudaMalloc and cudaFree on the driver that RUEDA_CUDA_LIBRARY names, for
// fake_allocator.cc.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include <dlfcn.h>

namespace {

template <class Function>
Function driver(const char* name) {
  static void* const library = ::dlopen(std::getenv("RUEDA_CUDA_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
  return library == nullptr ? nullptr : reinterpret_cast<Function>(::dlsym(library, name));
}

constexpr int kNoDriver = 35;

}  // namespace

extern "C" __attribute__((visibility("default"))) int cudaMalloc(void** memory, size_t bytes) {
  auto* const allocate = driver<int (*)(void**, size_t)>("cuMemAlloc_v2");
  return allocate == nullptr ? kNoDriver : allocate(memory, bytes);
}

extern "C" __attribute__((visibility("default"))) int cudaFree(void* memory) {
  auto* const free = driver<int (*)(void*)>("cuMemFree_v2");
  return free == nullptr ? kNoDriver : free(memory);
}
