// A fake CUDA driver: the functions of libcuda.so.1 that librueda and the tests' programs use, on
// RUEDA_FAKE_GPU_COUNT fake GPUs (1), whose memory lies in the folder RUEDA_FAKE_GPU, where GPU
// workers have it, too. RUEDA_CUDA_LIBRARY names the library; programs that use it run on a real
// driver as well. A context is a GPU.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "tests/gpu/fake/fake_device.h"

namespace {

using rueda::Code;
using rueda::Result;
using rueda::Status;
using namespace rueda::gpu;
using CuPointer = unsigned long long;

constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;
constexpr int kInvalidContext = 201;
constexpr int kNotFound = 500;
constexpr int kNotReady = 600;
constexpr size_t kStagingBytes = size_t{8} << 20;
constexpr uint64_t kMemoryBytes = uint64_t{4} << 30;

int to_result(const Status& status) {
  if (status.is_ok()) return kSuccess;
  if (status.code() == Code::kResourceExhausted) return kOutOfMemory;
  return status.code() == Code::kUnavailable ? kNotReady : kInvalidValue;
}

std::string variable(const char* name) {
  const char* named = std::getenv(name);
  return named != nullptr ? named : "";
}

struct Gpu {
  explicit Gpu(int ordinal)
      : gpu({.ordinal = ordinal,
             .memory_bytes = kMemoryBytes,
             .folder = variable("RUEDA_FAKE_GPU")}),
        device(gpu),
        runner(gpu),
        staging(device.allocate_host(kStagingBytes).value()),
        own_stream(device.make_stream(Priority::kLow).value()),
        default_stream(device.make_stream(Priority::kLow).value()) {}

  fake::FakeGpu gpu;
  fake::FakeDevice device;
  fake::FakeRunner runner;
  std::mutex copy_mutex;
  std::span<std::byte> staging;
  std::unique_ptr<Stream> own_stream;
  std::unique_ptr<Stream> default_stream;
};

// Memory that is yet to be mapped.
struct Created {
  size_t bytes = 0;
  int ordinal = 0;
};

// The state is never destroyed, as a driver's is not.
struct State {
  State() {
    const std::string count = variable("RUEDA_FAKE_GPU_COUNT");
    const int gpus_wanted = count.empty() ? 1 : std::stoi(count);
    for (int i = 0; i < gpus_wanted; ++i) gpus.emplace_back(i);
  }

  std::deque<Gpu> gpus;  // in the order of ordinals
  std::mutex sharing_mutex;
  std::map<DeviceAddress, Sharing> sharing;  // of memory that this process has allocated
  std::map<uint64_t, Created> created;       // by handle
  uint64_t last_handle = 0;
  std::set<void*> captured;  // the streams that are being captured
};

State& state() {
  static State* const the_state = new State;
  return *the_state;
}

thread_local std::vector<void*> current;  // the stack of contexts

Gpu& current_gpu() {
  const bool is_one = !current.empty() && current.back() != nullptr;
  return is_one ? *static_cast<Gpu*>(current.back()) : state().gpus.front();
}

int ordinal_of(const Gpu& gpu) { return gpu.device.facts().ordinal; }

// Returns the GPU that the address belongs to, or null.
Gpu* gpu_at(DeviceAddress address) {
  for (Gpu& gpu : state().gpus) {
    if (gpu.device.find(address).is_ok() || gpu.device.find_reserved(address).is_ok()) return &gpu;
  }
  return nullptr;
}

// Calls `use` with the device of an address.
template <class Use>
int on_device_at(DeviceAddress address, Use use) {
  Gpu* const gpu = gpu_at(address);
  return gpu != nullptr ? use(*gpu) : kInvalidValue;
}

Stream& stream_of(void* handle) {
  return handle != nullptr ? *static_cast<Stream*>(handle) : *current_gpu().default_stream;
}

int wait_for(Stream& stream) {
  for (;;) {
    const Result<bool> is_idle = stream.is_idle();
    if (!is_idle.is_ok()) return to_result(is_idle.status());
    if (is_idle.value()) return kSuccess;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

template <class Copy>
int copy_staged(DeviceAddress address, size_t bytes, Copy copy) {
  return on_device_at(address, [&](Gpu& gpu) {
    const std::lock_guard lock(gpu.copy_mutex);
    for (size_t at = 0; at < bytes; at += kStagingBytes) {
      const int failed = copy(gpu, at, std::min(bytes - at, kStagingBytes));
      if (failed != kSuccess) return failed;
    }
    return kSuccess;
  });
}

void set_sharing(DeviceAddress base, Sharing sharing) {
  const std::lock_guard lock(state().sharing_mutex);
  state().sharing[base] = sharing;
}

int allocate(CuPointer* address, size_t bytes, Sharing sharing) {
  const Result<DeviceAddress> made = current_gpu().device.allocate(bytes, sharing);
  if (!made.is_ok()) return to_result(made.status());
  set_sharing(made.value(), sharing);
  *address = made.value();
  return kSuccess;
}

Sharing sharing_of(DeviceAddress base) {
  const std::lock_guard lock(state().sharing_mutex);
  const auto found = state().sharing.find(base);
  return found == state().sharing.end() ? Sharing::kIpc : found->second;
}

template <class Value>
int put(void* out, Value value) {
  std::memcpy(out, &value, sizeof(value));
  return kSuccess;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int cuInit(unsigned int) { return kSuccess; }

int cuGetErrorString(int result, const char** text) {
  *text = result == kOutOfMemory ? "out of memory"
          : result == kNotReady  ? "not ready"
                                 : "invalid argument";
  return kSuccess;
}

int cuDeviceGetCount(int* count) { return put(count, static_cast<int>(state().gpus.size())); }
int cuDeviceGet(int* device, int ordinal) {
  const bool is_there = ordinal >= 0 && static_cast<size_t>(ordinal) < state().gpus.size();
  return is_there ? put(device, ordinal) : kInvalidValue;
}
int cuDeviceGetUuid_v2(void* uuid, int device) {
  std::memcpy(uuid, state().gpus[device].device.facts().uuid.data(), 16);
  return kSuccess;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  return put<void*>(context, &state().gpus[device]);
}
int cuCtxSetCurrent(void* context) {
  current.assign(1, context);
  return kSuccess;
}
int cuCtxGetCurrent(void** context) {
  return put<void*>(context, current.empty() ? nullptr : current.back());
}
int cuCtxGetDevice(int* device) {
  return current.empty() || current.back() == nullptr ? kInvalidContext
                                                      : put(device, ordinal_of(current_gpu()));
}
int cuCtxPushCurrent_v2(void* context) {
  current.push_back(context);
  return kSuccess;
}
int cuCtxPopCurrent_v2(void** context) {
  if (current.empty()) return kInvalidContext;
  put(context, current.back());
  current.pop_back();
  return kSuccess;
}

// For an address that is reserved, the range is everything that was reserved, and the memory has no
// context.
int cuPointerGetAttribute(void* out, int attribute, CuPointer address) {
  return on_device_at(address, [&](Gpu& gpu) {
    const Result<Allocation> found = gpu.device.find(address);
    const Result<Allocation> reserved = gpu.device.find_reserved(address);
    const Allocation range = reserved.is_ok() ? reserved.value() : found.value();
    const bool is_ipc = found.is_ok() && sharing_of(found.value().base) == Sharing::kIpc;
    switch (attribute) {
      case 1: return put<void*>(out, reserved.is_ok() ? nullptr : &gpu);
      case 2: return put<unsigned int>(out, 2);
      case 7: return put<unsigned long long>(out, found.is_ok() ? found.value().id : 0);
      case 8: return put<unsigned int>(out, 0);
      case 9: return put<int>(out, ordinal_of(gpu));
      case 10: return put<int>(out, is_ipc ? 1 : 0);
      case 11: return put<CuPointer>(out, range.base);
      case 12: return put<size_t>(out, range.bytes);
      case 13: return put<int>(out, found.is_ok() ? 1 : 0);
      case 14: return put<unsigned long long>(out, is_ipc ? 0 : 1);
      default: return kInvalidValue;
    }
  });
}
int cuMemGetAddressRange_v2(CuPointer* base, size_t* bytes, CuPointer address) {
  if (current.empty()) return kInvalidContext;
  Gpu* const gpu = gpu_at(address);
  if (gpu == nullptr) return kNotFound;
  const Result<Allocation> found = gpu->device.find(address);
  if (!found.is_ok()) return kNotFound;
  *base = found.value().base;
  return put(bytes, size_t{found.value().bytes});
}

// The sizes are those of all GPUs together.
int cuMemGetInfo_v2(size_t* free, size_t* total) {
  *total = kMemoryBytes;
  *free = kMemoryBytes - fake::Block::taken_bytes(variable("RUEDA_FAKE_GPU"));
  return kSuccess;
}
int cuMemAlloc_v2(CuPointer* address, size_t bytes) {
  return allocate(address, bytes, Sharing::kIpc);
}
// Does all of virtual memory management in one call.
int rueda_fake_alloc_fd(CuPointer* address, size_t bytes) {
  return allocate(address, bytes, Sharing::kFd);
}
// Returns where the CPU has memory that this process has allocated, for programs that compute
// there.
void* rueda_fake_host_memory(CuPointer address) {
  Gpu* const gpu = gpu_at(address);
  return gpu != nullptr ? gpu->device.host_memory(address) : nullptr;
}
int cuMemFree_v2(CuPointer address) {
  return on_device_at(address, [&](Gpu& gpu) { return to_result(gpu.device.free(address)); });
}

int cuIpcGetMemHandle(void* handle, CuPointer address) {
  if (current.empty()) return kInvalidContext;
  return on_device_at(address, [&](Gpu& gpu) {
    const Result<MemoryHandle> exported = gpu.device.export_memory(address);
    if (!exported.is_ok()) return to_result(exported.status());
    std::memcpy(handle, exported.value().ipc.data(), exported.value().ipc.size());
    return kSuccess;
  });
}

// Virtual memory management. Memory that is unmapped is freed at once. Addresses belong to the GPU
// whose context reserves them: only its memory is mapped there.
int cuMemGetAllocationGranularity(size_t* bytes, const void*, int) {
  return put(bytes, size_t{fake::kGranuleBytes});
}
int cuMemAddressReserve(CuPointer* address, size_t bytes, size_t, CuPointer, unsigned long long) {
  const Result<DeviceAddress> made = current_gpu().device.reserve(bytes);
  return made.is_ok() ? put(address, CuPointer{made.value()}) : to_result(made.status());
}
int cuMemCreate(unsigned long long* handle, size_t bytes, const void* properties,
                unsigned long long) {
  if (bytes == 0 || bytes % fake::kGranuleBytes != 0) return kInvalidValue;
  // CUmemAllocationProp begins with two enums and a location, which is a type and a number.
  int ordinal = 0;
  std::memcpy(&ordinal, static_cast<const char*>(properties) + 3 * sizeof(int), sizeof ordinal);
  const std::lock_guard lock(state().sharing_mutex);
  state().created[++state().last_handle] = {bytes, ordinal};
  return put<unsigned long long>(handle, state().last_handle);
}
int cuMemMap(CuPointer address, size_t bytes, size_t, unsigned long long handle,
             unsigned long long) {
  return on_device_at(address, [&](Gpu& gpu) {
    {
      const std::lock_guard lock(state().sharing_mutex);
      const auto found = state().created.find(handle);
      if (found == state().created.end() || found->second.bytes != bytes ||
          found->second.ordinal != ordinal_of(gpu)) {
        return kInvalidValue;
      }
      state().created.erase(found);
    }
    const Status status = gpu.device.allocate_at(address, bytes);
    if (status.is_ok()) set_sharing(address, Sharing::kFd);
    return to_result(status);
  });
}
int cuMemSetAccess(CuPointer, size_t, const void*, size_t) { return kSuccess; }
int cuMemUnmap(CuPointer address, size_t bytes) {
  return on_device_at(address, [&](Gpu& gpu) {
    const Result<Allocation> found = gpu.device.find(address);
    if (!found.is_ok() || found.value().base != address || found.value().bytes != bytes) {
      return kInvalidValue;
    }
    return to_result(gpu.device.free(address));
  });
}
int cuMemRetainAllocationHandle(unsigned long long* handle, void* address) {
  const auto at = reinterpret_cast<unsigned long long>(address);
  return on_device_at(at, [&](Gpu& gpu) {
    const Result<Allocation> found = gpu.device.find(at);
    if (!found.is_ok()) return kInvalidValue;
    return put<unsigned long long>(handle, found.value().base);
  });
}
int cuMemExportToShareableHandle(void* fd, unsigned long long handle, int, unsigned long long) {
  return on_device_at(handle, [&](Gpu& gpu) {
    const Result<MemoryHandle> exported = gpu.device.export_memory(handle);
    return exported.is_ok() ? put(fd, exported.value().fd) : to_result(exported.status());
  });
}
int cuMemRelease(unsigned long long) { return kSuccess; }

// The memory is portable, whatever the flags: all GPUs have it.
int cuMemHostRegister_v2(void* memory, size_t bytes, unsigned int) {
  int result = kSuccess;
  for (Gpu& gpu : state().gpus) {
    const int one = to_result(gpu.device.register_host({static_cast<std::byte*>(memory), bytes}));
    if (one != kSuccess) result = one;
  }
  return result;
}
int cuMemHostGetDevicePointer_v2(CuPointer* address, void* memory, unsigned int) {
  return put(address, reinterpret_cast<CuPointer>(memory));
}
int cuMemHostUnregister(void* memory) {
  int result = kSuccess;
  for (Gpu& gpu : state().gpus) {
    const int one = to_result(gpu.device.unregister_host(static_cast<std::byte*>(memory)));
    if (one != kSuccess) result = one;
  }
  return result;
}

int cuStreamCreate(void** stream, unsigned int) {
  auto made = current_gpu().device.make_stream(Priority::kLow);
  return made.is_ok() ? put(stream, std::move(made).value().release()) : to_result(made.status());
}
int cuStreamDestroy_v2(void* stream) {
  delete static_cast<Stream*>(stream);
  return kSuccess;
}
int cuStreamSynchronize(void* stream) { return wait_for(stream_of(stream)); }
int cuStreamQuery(void* stream) {
  const Result<bool> is_idle = stream_of(stream).is_idle();
  if (!is_idle.is_ok()) return to_result(is_idle.status());
  return is_idle.value() ? kSuccess : kNotReady;
}
// Nothing is recorded: a caller that asks is told that a capture is under way, and then gives the
// stream no work.
int cuStreamIsCapturing(void* stream, int* status) {
  const std::lock_guard lock(state().sharing_mutex);
  return put(status, state().captured.contains(stream) ? 1 : 0);
}
int cuStreamBeginCapture_v2(void* stream, int) {
  const std::lock_guard lock(state().sharing_mutex);
  return state().captured.insert(stream).second ? kSuccess : kInvalidValue;
}
int cuStreamEndCapture(void* stream, void** graph) {
  const std::lock_guard lock(state().sharing_mutex);
  put<void*>(graph, nullptr);
  return state().captured.erase(stream) == 1 ? kSuccess : kInvalidValue;
}
int cuStreamWriteValue64_v2(void* stream, CuPointer counter, uint64_t value, unsigned int) {
  return to_result(stream_of(stream).write_value(reinterpret_cast<uint64_t*>(counter), value));
}
int cuStreamWaitValue64_v2(void* stream, CuPointer counter, uint64_t value, unsigned int) {
  return to_result(stream_of(stream).wait_value(reinterpret_cast<uint64_t*>(counter), value));
}

int cuMemcpyHtoDAsync_v2(CuPointer dst, const void* src, size_t bytes, void* stream) {
  return to_result(
      stream_of(stream).copy_to_device(dst, static_cast<const std::byte*>(src), bytes));
}
int cuMemcpyDtoHAsync_v2(void* dst, CuPointer src, size_t bytes, void* stream) {
  return to_result(stream_of(stream).copy_to_host(static_cast<std::byte*>(dst), src, bytes));
}
int cuMemcpyDtoDAsync_v2(CuPointer dst, CuPointer src, size_t bytes, void* stream) {
  return to_result(stream_of(stream).copy(dst, src, bytes));
}
int cuMemcpyHtoD_v2(CuPointer dst, const void* src, size_t bytes) {
  return copy_staged(dst, bytes, [&](Gpu& gpu, size_t at, size_t part) {
    std::memcpy(gpu.staging.data(), static_cast<const std::byte*>(src) + at, part);
    const Status status = gpu.own_stream->copy_to_device(dst + at, gpu.staging.data(), part);
    return status.is_ok() ? wait_for(*gpu.own_stream) : to_result(status);
  });
}
int cuMemcpyDtoH_v2(void* dst, CuPointer src, size_t bytes) {
  return copy_staged(src, bytes, [&](Gpu& gpu, size_t at, size_t part) {
    const Status status = gpu.own_stream->copy_to_host(gpu.staging.data(), src + at, part);
    const int failed = status.is_ok() ? wait_for(*gpu.own_stream) : to_result(status);
    std::memcpy(static_cast<std::byte*>(dst) + at, gpu.staging.data(), part);
    return failed;
  });
}

}  // extern "C"
#pragma GCC visibility pop
