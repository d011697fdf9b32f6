// The functions of the CUDA driver that the runtime has no other name for. The runtime looks them
// up in this machine's libcuda: nothing is linked.
#pragma once

#include <string>

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include "daemon/base/status.h"

namespace rueda::gpu::cuda {

struct Driver {
  PFN_cuDeviceGet_v2000 device_get = nullptr;
  PFN_cuDeviceGetAttribute_v2000 device_get_attribute = nullptr;
  PFN_cuPointerGetAttribute_v4000 pointer_get_attribute = nullptr;
  PFN_cuMemGetAddressRange_v3020 mem_get_address_range = nullptr;
  PFN_cuStreamWaitValue64_v11070 stream_wait_value = nullptr;
  PFN_cuStreamWriteValue64_v11070 stream_write_value = nullptr;
  PFN_cuStreamBatchMemOp_v11070 stream_batch = nullptr;
  PFN_cuMemGetAllocationGranularity_v10020 mem_granularity = nullptr;
  PFN_cuMemCreate_v10020 mem_create = nullptr;
  PFN_cuMemRelease_v10020 mem_release = nullptr;
  PFN_cuMemAddressReserve_v10020 mem_reserve = nullptr;
  PFN_cuMemAddressFree_v10020 mem_address_free = nullptr;
  PFN_cuMemMap_v10020 mem_map = nullptr;
  PFN_cuMemUnmap_v10020 mem_unmap = nullptr;
  PFN_cuMemSetAccess_v10020 mem_set_access = nullptr;
  PFN_cuMemExportToShareableHandle_v10020 mem_export = nullptr;
  PFN_cuMemImportFromShareableHandle_v10020 mem_import = nullptr;
  PFN_cuMemGetHandleForAddressRange_v11070 mem_handle_for_range = nullptr;
};

// Looks the functions up; kUnavailable means that the driver lacks one of them. A device must have
// been chosen.
Result<Driver> find_driver();

// Returns true if after this error no call of the process succeeds any more. cudaErrorUnknown may
// be such an error.
bool is_sticky(cudaError_t error);

// Converts an error code. `what` begins the sentence, for example "device memory".
Status to_status(cudaError_t error, const std::string& what);

// Converts an error of the driver to the runtime's number: the two share their numbers.
inline cudaError_t to_runtime(CUresult result) { return static_cast<cudaError_t>(result); }

}  // namespace rueda::gpu::cuda
