#include "daemon/gpu/cuda/driver.h"

namespace rueda::gpu::cuda {
namespace {

// The oldest driver that has all functions in the versions of the types above.
constexpr unsigned int kVersion = 12000;

template <class Function>
void find(const char* name, Function& function, Status& status) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &result);
  if (error == cudaSuccess && result == cudaDriverEntryPointSuccess && found != nullptr) {
    function = reinterpret_cast<Function>(found);
  } else if (status.is_ok()) {
    status = {Code::kUnavailable,
              std::string("the GPU driver has no ") + name + ": it must be one for CUDA 12"};
  }
}

}  // namespace

Result<Driver> find_driver() {
  Driver driver;
  Status status;
  find("cuDeviceGet", driver.device_get, status);
  find("cuDeviceGetAttribute", driver.device_get_attribute, status);
  find("cuPointerGetAttribute", driver.pointer_get_attribute, status);
  find("cuMemGetAddressRange", driver.mem_get_address_range, status);
  find("cuStreamWaitValue64", driver.stream_wait_value, status);
  find("cuStreamWriteValue64", driver.stream_write_value, status);
  find("cuStreamBatchMemOp", driver.stream_batch, status);
  find("cuMemGetAllocationGranularity", driver.mem_granularity, status);
  find("cuMemCreate", driver.mem_create, status);
  find("cuMemRelease", driver.mem_release, status);
  find("cuMemAddressReserve", driver.mem_reserve, status);
  find("cuMemAddressFree", driver.mem_address_free, status);
  find("cuMemMap", driver.mem_map, status);
  find("cuMemUnmap", driver.mem_unmap, status);
  find("cuMemSetAccess", driver.mem_set_access, status);
  find("cuMemExportToShareableHandle", driver.mem_export, status);
  find("cuMemImportFromShareableHandle", driver.mem_import, status);
  find("cuMemGetHandleForAddressRange", driver.mem_handle_for_range, status);
  if (!status.is_ok()) return status;
  return driver;
}

bool is_sticky(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorExternalDevice:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsRpcFailure:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorMpsClientTerminated:
    case cudaErrorContained: return true;
    default: return false;
  }
}

namespace {

Code code_of(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
    case cudaErrorTooManyPeers: return Code::kResourceExhausted;
    case cudaErrorPeerAccessUnsupported: return Code::kPermission;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidDevicePointer:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorMapBufferObjectFailed:
    case cudaErrorDeviceUninitialized:
    case cudaErrorHostMemoryAlreadyRegistered:
    case cudaErrorInvalidDevice: return Code::kInvalidArgument;
    case cudaErrorHostMemoryNotRegistered: return Code::kNotFound;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemNotReady:
    case cudaErrorDevicesUnavailable: return Code::kUnavailable;
    default: return Code::kInternal;
  }
}

}  // namespace

Status to_status(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return Status::ok();
  return {code_of(error),
          what + ": " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")"};
}

}  // namespace rueda::gpu::cuda
