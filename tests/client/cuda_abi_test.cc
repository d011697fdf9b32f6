// Compares librueda's copy of the CUDA driver's ABI (client/src/device/cuda_abi.h) with the header
// of the toolkit that this is compiled with.
#include "client/src/device/cuda_abi.h"

#include <cuda.h>
#include <gtest/gtest.h>

namespace rueda::client::cuda {
namespace {

static_assert(sizeof(CuResult) == sizeof(CUresult));
static_assert(sizeof(CuPointer) == sizeof(CUdeviceptr));
static_assert(sizeof(CuUuid) == sizeof(CUuuid));
static_assert(sizeof(CuIpcHandle) == sizeof(CUipcMemHandle));
static_assert(sizeof(int) == sizeof(CUdevice) && sizeof(void*) == sizeof(CUstream));
static_assert(sizeof(unsigned long long) == sizeof(CUmemGenericAllocationHandle));
static_assert(sizeof(uint64_t) == sizeof(cuuint64_t));

TEST(CudaAbi, HasTheNumbersOfTheHeader) {
  EXPECT_EQ(kSuccess, CUDA_SUCCESS);
  EXPECT_EQ(kInvalidValue, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(kNoDevice, CUDA_ERROR_NO_DEVICE);
  EXPECT_EQ(kCaptureImplicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(kLastDefaultStream, reinterpret_cast<uintptr_t>(CU_STREAM_PER_THREAD));
  EXPECT_EQ(int{kContext}, CU_POINTER_ATTRIBUTE_CONTEXT);
  EXPECT_EQ(int{kMemoryType}, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
  EXPECT_EQ(int{kBufferId}, CU_POINTER_ATTRIBUTE_BUFFER_ID);
  EXPECT_EQ(int{kIsManaged}, CU_POINTER_ATTRIBUTE_IS_MANAGED);
  EXPECT_EQ(int{kDeviceOrdinal}, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
  EXPECT_EQ(int{kIsIpcCapable}, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
  EXPECT_EQ(int{kIsMapped}, CU_POINTER_ATTRIBUTE_MAPPED);
  EXPECT_EQ(int{kAllowedHandles}, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES);
  EXPECT_EQ(kDeviceMemory, static_cast<unsigned int>(CU_MEMORYTYPE_DEVICE));
  EXPECT_EQ(kFileDescriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  EXPECT_EQ(kPortableAndMapped,
            static_cast<unsigned int>(CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
  EXPECT_EQ(kAtLeast, static_cast<unsigned int>(CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_EQ(kNonBlocking, static_cast<unsigned int>(CU_STREAM_NON_BLOCKING));
}

}  // namespace
}  // namespace rueda::client::cuda
