#include "daemon/gpu/cuda/vmm.h"

namespace rueda::gpu::cuda {
namespace {

uint64_t bytes_of(std::span<const VmmMemory> pieces) {
  uint64_t bytes = 0;
  for (const VmmMemory& piece : pieces) bytes += piece.bytes;
  return bytes;
}

// Maps the pieces one behind another from `base` on, in addresses that are reserved.
CUresult map_all(const Driver& driver, int ordinal, CUdeviceptr base,
                 std::span<const VmmMemory> pieces) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = ordinal;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUresult result = CUDA_SUCCESS;
  uint64_t mapped = 0;
  size_t count = 0;
  for (; count < pieces.size(); ++count) {
    result = driver.mem_map(base + mapped, pieces[count].bytes, 0, pieces[count].handle, 0);
    if (result != CUDA_SUCCESS) break;
    mapped += pieces[count].bytes;
  }
  if (result == CUDA_SUCCESS) result = driver.mem_set_access(base, mapped, &access, 1);
  if (result == CUDA_SUCCESS) return CUDA_SUCCESS;
  while (count-- > 0) {
    mapped -= pieces[count].bytes;
    driver.mem_unmap(base + mapped, pieces[count].bytes);
  }
  return result;
}

// Maps memory, and takes over its handle, which is released if this fails.
CUresult map(const Driver& driver, int ordinal, VmmMemory& memory) {
  const CUresult result = vmm_join(driver, ordinal, {&memory, 1}, memory.base);
  if (result != CUDA_SUCCESS) driver.mem_release(memory.handle);
  return result;
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
  CUresult result = vmm_part(driver, memory.base, {&memory, 1});
  if (result == CUDA_SUCCESS) result = driver.mem_release(memory.handle);
  return result;
}

CUresult vmm_join(const Driver& driver, int ordinal, std::span<const VmmMemory> pieces,
                  DeviceAddress& base) {
  const uint64_t bytes = bytes_of(pieces);
  CUdeviceptr reserved = 0;
  CUresult result = driver.mem_reserve(&reserved, bytes, 0, 0, 0);
  if (result != CUDA_SUCCESS) return result;
  result = map_all(driver, ordinal, reserved, pieces);
  if (result == CUDA_SUCCESS) {
    base = reserved;
  } else {
    driver.mem_address_free(reserved, bytes);
  }
  return result;
}

// A mapping is undone as a whole, and separately from others.
CUresult vmm_part(const Driver& driver, DeviceAddress base, std::span<const VmmMemory> pieces) {
  uint64_t offset = 0;
  for (const VmmMemory& piece : pieces) {
    const CUresult result = driver.mem_unmap(base + offset, piece.bytes);
    if (result != CUDA_SUCCESS) return result;
    offset += piece.bytes;
  }
  return driver.mem_address_free(base, offset);
}

}  // namespace rueda::gpu::cuda
