#include "daemon/gpu/cuda/vmm.h"

namespace rueda::gpu::cuda {
namespace {

// Takes the handle: it is released when this fails.
CUresult map(const Driver& driver, int ordinal, VmmMemory& memory) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = ordinal;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUdeviceptr base = 0;
  CUresult result = driver.mem_reserve(&base, memory.bytes, 0, 0, 0);
  if (result != CUDA_SUCCESS) {
    driver.mem_release(memory.handle);
    return result;
  }
  result = driver.mem_map(base, memory.bytes, 0, memory.handle, 0);
  if (result == CUDA_SUCCESS) {
    result = driver.mem_set_access(base, memory.bytes, &access, 1);
    if (result != CUDA_SUCCESS) driver.mem_unmap(base, memory.bytes);
  }
  if (result != CUDA_SUCCESS) {
    driver.mem_address_free(base, memory.bytes);
    driver.mem_release(memory.handle);
    return result;
  }
  memory.base = base;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult vmm_allocate(const Driver& driver, int ordinal, uint64_t bytes, VmmMemory& memory) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = ordinal;
  size_t granule = 0;
  CUresult result = driver.mem_granularity(&granule, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (result != CUDA_SUCCESS) return result;
  memory.bytes = (bytes + granule - 1) / granule * granule;
  result = driver.mem_create(&memory.handle, memory.bytes, &properties, 0);
  return result == CUDA_SUCCESS ? map(driver, ordinal, memory) : result;
}

CUresult vmm_import(const Driver& driver, int ordinal, int fd, uint64_t bytes, VmmMemory& memory) {
  void* const file = reinterpret_cast<void*>(static_cast<uintptr_t>(fd));
  const CUresult result =
      driver.mem_import(&memory.handle, file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result != CUDA_SUCCESS) return result;
  memory.bytes = bytes;
  return map(driver, ordinal, memory);
}

CUresult vmm_export(const Driver& driver, const VmmMemory& memory, int& fd) {
  return driver.mem_export(&fd, memory.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

CUresult vmm_free(const Driver& driver, const VmmMemory& memory) {
  CUresult result = driver.mem_unmap(memory.base, memory.bytes);
  if (result == CUDA_SUCCESS) result = driver.mem_address_free(memory.base, memory.bytes);
  if (result == CUDA_SUCCESS) result = driver.mem_release(memory.handle);
  return result;
}

}  // namespace rueda::gpu::cuda
