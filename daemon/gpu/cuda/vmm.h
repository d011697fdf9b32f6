// Memory of CUDA's virtual memory management, which is shared as a file descriptor.
#pragma once

#include <cstdint>
#include <span>

#include "daemon/gpu/cuda/driver.h"
#include "daemon/gpu/device.h"

namespace rueda::gpu::cuda {

// Physical memory and the address at which it is mapped.
struct VmmMemory {
  DeviceAddress base = 0;
  uint64_t bytes = 0;  // A multiple of the granule.
  CUmemGenericAllocationHandle handle = 0;
};

// Each of these functions releases on failure what it has taken.
CUresult vmm_allocate(const Driver& driver, int ordinal, uint64_t bytes, VmmMemory& memory);
// Imports memory of a file descriptor that vmm_export() has made, in this process or another.
CUresult vmm_import(const Driver& driver, int ordinal, int fd, uint64_t bytes, VmmMemory& memory);
CUresult vmm_export(const Driver& driver, const VmmMemory& memory, int& fd);
CUresult vmm_free(const Driver& driver, const VmmMemory& memory);
// Maps all pieces once more, one behind another. The mapping keeps the physical memory, and has no
// handle of its own.
CUresult vmm_join(const Driver& driver, int ordinal, std::span<const VmmMemory> pieces,
                  DeviceAddress& base);
CUresult vmm_part(const Driver& driver, DeviceAddress base, std::span<const VmmMemory> pieces);

}  // namespace rueda::gpu::cuda
