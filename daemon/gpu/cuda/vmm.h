// Memory by CUDA's virtual memory management, which is shared as a file descriptor.
#pragma once

#include <cstdint>
#include <span>

#include "daemon/gpu/cuda/driver.h"
#include "daemon/gpu/device.h"

namespace rueda::gpu::cuda {

// Physical memory and where it is mapped.
struct VmmMemory {
  DeviceAddress base = 0;
  uint64_t bytes = 0;  // whole granules
  CUmemGenericAllocationHandle handle = 0;
};

// Each gives back what it took when it fails.
CUresult vmm_allocate(const Driver& driver, int ordinal, uint64_t bytes, VmmMemory& memory);
// Of a file descriptor that vmm_export() has made, here or elsewhere.
CUresult vmm_import(const Driver& driver, int ordinal, int fd, uint64_t bytes, VmmMemory& memory);
CUresult vmm_export(const Driver& driver, const VmmMemory& memory, int& fd);
CUresult vmm_free(const Driver& driver, const VmmMemory& memory);
// Maps all of it once more, one behind another. It keeps what it has mapped, and has no handle.
CUresult vmm_join(const Driver& driver, int ordinal, std::span<const VmmMemory> pieces,
                  DeviceAddress& base);
CUresult vmm_part(const Driver& driver, DeviceAddress base, std::span<const VmmMemory> pieces);

}  // namespace rueda::gpu::cuda
