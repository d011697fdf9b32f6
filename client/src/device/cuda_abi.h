// The part of the CUDA driver's ABI that librueda uses, as it has been since CUDA 11.7: librueda is
// built without a toolkit. tests/client/cuda_abi_test.cc compares this file with a toolkit, where
// one is installed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rueda::client::cuda {

using CuResult = int;
using CuPointer = unsigned long long;
struct CuUuid {
  char bytes[16];
};
struct CuIpcHandle {
  char bytes[64];
};

inline constexpr CuResult kSuccess = 0;
inline constexpr CuResult kInvalidValue = 1;
inline constexpr CuResult kOutOfMemory = 2;
inline constexpr CuResult kNoDevice = 100;
inline constexpr CuResult kCaptureImplicit = 906;

enum Attribute : int {
  kContext = 1,
  kMemoryType = 2,
  kBufferId = 7,
  kIsManaged = 8,
  kDeviceOrdinal = 9,
  kIsIpcCapable = 10,
  kIsMapped = 13,
  kAllowedHandles = 14,
};
inline constexpr unsigned int kDeviceMemory = 2;
inline constexpr int kFileDescriptor = 1;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
inline constexpr unsigned int kPortableAndMapped = 1 | 2;  // CU_MEMHOSTREGISTER_*
inline constexpr unsigned int kAtLeast = 0;                // CU_STREAM_WAIT_VALUE_GEQ
inline constexpr uintptr_t kLastDefaultStream = 2;         // NULL, legacy, per thread
inline constexpr unsigned int kNonBlocking = 1;            // CU_STREAM_NON_BLOCKING

struct Functions {
  CuResult (*init)(unsigned int) = nullptr;
  CuResult (*error_string)(CuResult, const char**) = nullptr;
  CuResult (*pointer_attribute)(void*, int, CuPointer) = nullptr;
  CuResult (*device_get)(int*, int) = nullptr;
  CuResult (*device_uuid)(CuUuid*, int) = nullptr;
  CuResult (*context_get)(void**) = nullptr;
  CuResult (*context_device)(int*) = nullptr;
  CuResult (*context_push)(void*) = nullptr;
  CuResult (*context_pop)(void**) = nullptr;
  CuResult (*primary_context)(void**, int) = nullptr;
  CuResult (*address_range)(CuPointer*, size_t*, CuPointer) = nullptr;
  CuResult (*ipc_get)(CuIpcHandle*, CuPointer) = nullptr;
  CuResult (*retain_handle)(unsigned long long*, void*) = nullptr;
  CuResult (*export_handle)(void*, unsigned long long, int, unsigned long long) = nullptr;
  CuResult (*release_handle)(unsigned long long) = nullptr;
  CuResult (*host_register)(void*, size_t, unsigned int) = nullptr;
  CuResult (*host_pointer)(CuPointer*, void*, unsigned int) = nullptr;
  CuResult (*host_unregister)(void*) = nullptr;
  CuResult (*stream_is_capturing)(void*, int*) = nullptr;
  CuResult (*stream_write)(void*, CuPointer, uint64_t, unsigned int) = nullptr;
  CuResult (*stream_wait)(void*, CuPointer, uint64_t, unsigned int) = nullptr;
  CuResult (*stream_create)(void**, unsigned int) = nullptr;
  CuResult (*stream_destroy)(void*) = nullptr;
  CuResult (*stream_synchronize)(void*) = nullptr;
  CuResult (*copy_to_host)(void*, CuPointer, size_t, void*) = nullptr;
  CuResult (*copy_to_device)(CuPointer, const void*, size_t, void*) = nullptr;
};

}  // namespace rueda::client::cuda
