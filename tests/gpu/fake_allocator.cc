// An allocator of device memory in a library of its own, which calls the CUDA runtime as that of
// PyTorch does: the dynamic linker gives it cudaMalloc and cudaFree.
#include <cstddef>

extern "C" {

int cudaMalloc(void** memory, size_t bytes);
int cudaFree(void* memory);

__attribute__((visibility("default"))) void* rueda_fake_segment_alloc(size_t bytes) {
  void* memory = nullptr;
  return cudaMalloc(&memory, bytes) == 0 ? memory : nullptr;
}

__attribute__((visibility("default"))) int rueda_fake_segment_free(void* memory) {
  return cudaFree(memory);
}
}
